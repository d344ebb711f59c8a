"""The HTML report, its chart and its checklist."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from report_support import run_study

from autorl.report.checklist import checklist
from autorl.report.html import report_html
from autorl.report.reading import open_view
from autorl.report.svg import Band, step_chart, ticks


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    found = open_view(run_study(tmp_path_factory.mktemp("html") / "study"))
    yield found
    found.close()


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of order; collects the text."""

    VOID = ("meta",)

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in ("line", "path", "rect")

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
    assert "<script" not in html
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


def test_the_chart_is_xml_with_the_points_in_place():
    svg = step_chart(
        [(0.0, 0.0), (50.0, 5.0), (100.0, 10.0)], [Band("a < b", 5.0, 4.0, 6.0)], "x", "y"
    )
    root = ElementTree.fromstring(svg)
    (path,) = root.findall("path")
    coordinates = [float(value) for value in re.findall(r"[\d.]+", path.get("d"))]
    (x0, y0, x1, y1, x2, y2) = coordinates
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    (level,) = [line for line in root.findall("line") if line.get("class") == "level"]
    assert float(level.get("y1")) == pytest.approx(y1, abs=0.1)
    (band,) = root.findall("rect")
    assert float(band.get("height")) == pytest.approx((y0 - y2) * 0.2, abs=0.2)


def test_a_chart_of_one_point_or_of_equal_scores_is_drawn_and_of_none_is_an_error():
    for points in ([(0.0, 3.0)], [(1.0, 0.0), (2.0, 0.0)]):
        assert "nan" not in step_chart(points, [], "x", "y")
    with pytest.raises(ValueError, match="at least one point"):
        step_chart([], [], "x", "y")


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
