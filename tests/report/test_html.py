"""The HTML report, its chart and its checklist."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from report_support import run_study

from autorl.landscapes.analysis import Axis, Bars, Chart, HeatMap, Line
from autorl.report.checklist import checklist
from autorl.report.html import report_html
from autorl.report.page.document import script, script_hash
from autorl.report.page.draw import drawing, level, luminance, shade
from autorl.report.page.frame import ticks
from autorl.report.reading import open_view


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    found = open_view(run_study(tmp_path_factory.mktemp("html") / "study"))
    yield found
    found.close()


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of order; collects the text."""

    VOID = ("meta", "input")

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in ("line", "path", "rect", "circle", "polygon")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return " ".join(parser.text)


def test_the_report_is_well_formed_and_holds_every_proposal(view):
    text = parsed(report_html(view))
    result = view.result()
    assert f"{result.test.value:.6g}" in text
    assert "not tested" not in text.lower()
    for row in view.store.query("SELECT score FROM proposals"):
        assert f"{float(row[0].strip('[]')):.6g}" in text
    for seed in (*view.spec.plan.tuning, *view.spec.plan.test):
        assert str(seed) in text


def test_text_of_the_user_is_escaped(tmp_path):
    folder = run_study(tmp_path / "s", name="<script>alert(1)<script>", budget={"runs": 4})
    view = open_view(folder)
    html = report_html(view)
    view.close()
    assert html.count("<script") == 1
    assert f"<script>{script()}</script>" in html
    assert script_hash() in html
    assert "&lt;script&gt;" in html
    assert str(tmp_path) not in html


def test_several_objectives_show_their_front(tmp_path):
    objective = [
        {"metric": "eval_return"},
        {"metric": "environment_steps", "direction": "minimize"},
    ]
    view = open_view(run_study(tmp_path / "study", objective=objective))
    text = parsed(report_html(view))
    view.close()
    assert "Not dominated by any other on tuning seeds." in text
    assert "tuning last environment_steps" in text


def test_without_test_seeds_the_report_claims_no_result(tmp_path):
    view = open_view(run_study(tmp_path / "s", seeds={"tuning": 2, "test": 0}, budget={"runs": 4}))
    text = parsed(report_html(view))
    answers = {item.question: item.answer for item in checklist(view)}
    view.close()
    assert "there is no result to report yet" in text
    assert "Horizontal lines" not in text
    assert answers["Are all results reported on the test setting?"] == "no"
    assert (
        answers[next(question for question in answers if "separate training and test" in question)]
        == "no"
    )


def test_the_checklist_answers_every_question_with_evidence(view):
    items = checklist(view)
    assert len(items) == 11
    assert all(item.evidence for item in items)
    answers = [item.answer for item in items]
    assert answers.count("author") == 3
    assert "no" not in answers
    (cost,) = [item for item in items if "budget given" in item.question]
    assert "runs 16" in cost.evidence
    assert "tuning: 1,600 steps" in cost.evidence
    assert "test: 2,000 steps" in cost.evidence  # incumbent, default, ranks 2 and 3 on 5 seeds


def test_the_trace_is_the_running_best_of_the_scores(view):
    best, expected = float("-inf"), []
    for recorded in view.store.events():
        if recorded.kind == "scored":
            best = max(best, recorded.event.score[0])
            expected.append(best)
    assert [point.score for point in view.trace] == pytest.approx(expected)
    assert [point.steps for point in view.trace] == sorted(point.steps for point in view.trace)
    assert view.trace[-1].steps == 1600


def chart(*marks):
    return Chart("title", "", Axis("x"), Axis("y"), marks)


def test_the_chart_is_xml_with_the_points_in_place():
    line = Line("a", np.array([0.0, 50.0, 100.0]), np.array([0.0, 5.0, 10.0]), stepped=True)
    svg = drawing(chart(line, level("a < b", 5.0, (4.0, 6.0), 100.0)), 720, "l")
    root = ElementTree.fromstring(svg)
    series = root.findall("g")
    path = series[0].find("path")
    coordinates = [float(value) for value in re.findall(r"[\d.]+", path.get("d"))]
    (x0, y0, x1, y1, x2, y2) = coordinates
    assert "H" in path.get("d")
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    places = [(circle.get("cx"), circle.get("cy")) for circle in series[0].findall("circle")]
    assert places == [(f"{x:.1f}", f"{y:.1f}") for x, y in ((x0, y0), (x1, y1), (x2, y2))]
    corners = series[1].find("polygon").get("points").split()
    heights = [float(corner.split(",")[1]) for corner in corners]
    assert max(heights) - min(heights) == pytest.approx((y0 - y2) * 0.2, abs=0.2)
    assert "a < b" in series[1].find("circle").get("data-tip")


def test_a_chart_of_one_point_of_equal_scores_or_with_gaps_is_drawn_and_of_none_is_an_error():
    for x, y in (([0.0], [3.0]), ([1.0, 2.0], [0.0, 0.0]), ([1.0, np.nan, 3.0], [0.0, 1.0, 2.0])):
        svg = drawing(chart(Line("a", np.array(x), np.array(y))), 350, "l")
        assert "nan" not in svg
        assert svg.count("<circle") == sum(np.isfinite(x))
    with pytest.raises(ValueError, match="at least one mark"):
        drawing(chart(), 350, "l")


@pytest.mark.parametrize(("scale", "values"), [("log", [0.0, 1.0]), ("log", [1e-5, 1e-1])])
def test_a_logarithm_has_no_place_for_zero(scale, values):
    line = Line("a", np.array(values), np.array([1.0, 2.0]))
    svg = drawing(Chart("t", "", Axis("x", scale), Axis("y"), (line,)), 720, "l")
    ElementTree.fromstring(svg)
    assert svg.count("<circle") == 2


def test_bars_and_heat_maps_say_their_numbers_and_leave_gaps_empty():
    bars = Bars(np.array([1.0, np.nan]), (np.array([0.5, 0.0]), np.array([1.5, 0.0])))
    svg = drawing(Chart("t", "", Axis("x"), Axis("", categories=("<a>", "b")), (bars,)), 720, "l")
    (bar,) = [rect for rect in ElementTree.fromstring(svg).findall("rect")]
    assert bar.get("data-tip") == "<a> x 1 (0.5 to 1.5)"
    cells = HeatMap(np.array([[1.0, np.nan], [2.0, 3.0]]), "score", annotate=True)
    names = Axis("", categories=("<a>", "b"))
    svg = drawing(Chart("t", "", names, names, (cells,)), 350, "l")
    tips = [rect.get("data-tip") for rect in ElementTree.fromstring(svg).findall("rect")]
    assert [tip for tip in tips if tip] == [
        "<a>, <a> score 1",
        "b, <a> score 2",
        "b, b score 3",
    ]


def test_numbers_in_cells_stand_out_from_every_color():
    names = tuple(map(str, range(21)))
    cells = HeatMap(np.linspace(0.0, 1.0, 21)[:, None], "score", (0.0, 1.0), annotate=True)
    axes = (Axis("", categories=("x",)), Axis("", categories=names))
    svg = ElementTree.fromstring(drawing(Chart("t", "", *axes, (cells,)), 720, "l"))
    inks = [text.get("class") for text in svg.findall("text") if text.get("class")]
    assert inks == sorted(inks)  # bright on dark cells, then dark on bright ones
    for ink, share in zip(inks, np.linspace(0.0, 1.0, 21), strict=True):
        light = luminance(shade(float(share)))
        contrast = (light + 0.05) / 0.05 if ink == "on-dark" else 1.05 / (light + 0.05)
        assert contrast >= 4.5, share
    assert set(inks) == {"on-bright", "on-dark"}


def test_dots_on_a_heat_map_lie_in_its_cells():
    cells = HeatMap(np.array([[1.0, 2.0], [3.0, 4.0]]), "score")
    places = np.array([0.0, 1.0])
    dots = Line("trained", places, places[::-1], names=("<a>", "b"), marker="o", joined=False)
    names = Axis("", categories=("a", "b"))
    svg = ElementTree.fromstring(drawing(Chart("t", "", names, names, (cells, dots)), 720, "l"))
    by_tip = {rect.get("data-tip"): rect for rect in svg.findall("rect") if rect.get("data-tip")}
    first, second = svg.findall("circle")
    assert first.get("data-tip") == "trained <a>"
    for dot, tip in ((first, "b, a score 3"), (second, "a, b score 2")):
        for axis, size, at in (("x", "width", "cx"), ("y", "height", "cy")):
            begin = float(by_tip[tip].get(axis))
            assert begin < float(dot.get(at)) < begin + float(by_tip[tip].get(size))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (-1.0, 1.0, [-1, -0.5, 0, 0.5, 1]),
        (120.0, 480.0, [200, 300, 400]),
    ],
)
def test_ticks_are_round_numbers_inside(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)
