"""The HTML report, its chart and its checklist."""

from html.parser import HTMLParser

import pytest
from report_support import run_study

from autorl.core.plain_text import number
from autorl.report.checklist import checklist
from autorl.report.html import report_html
from autorl.report.reading import open_view
from autorl.report.text import value_text


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    found = open_view(run_study(tmp_path_factory.mktemp("html") / "study"))
    yield found
    found.close()


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of order; collects the text."""

    VOID = ("meta", "input", "link")

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return " ".join(parser.text)


def section(html, name):
    return html.partition(f'<section id="{name}"')[2].partition("</section>")[0]


def test_the_incumbent_stands_beside_the_default(view):
    text = section(report_html(view), "incumbent")
    default = view.spec.search_space.default()
    assert default
    incumbent = view.result().incumbent.config
    for name in default:
        values = (value_text(config[name]) for config in (incumbent, default))
        cells = "".join(f'<td class="number">{value}</td>' for value in values)
        assert f"<td>{name}</td>{cells}" in text


def test_the_report_is_well_formed_and_holds_every_proposal(view):
    html = report_html(view)
    text = parsed(html)
    result = view.result()
    rows = section(html, "proposals").partition("<tbody>")[2]
    best = f'<tr class="best"><td class="number">{view.record.best}</td>'
    assert rows.strip().startswith(best)
    assert number(result.test.value) in text
    assert "not tested" not in text.lower()
    assert str(view.folder.parent) not in html  # where it lies is nobody's business
    for row in view.store.query("SELECT score FROM proposals"):
        assert number(float(row[0].strip("[]"))) in text
    for seed in (*view.spec.plan.tuning, *view.spec.plan.test):
        assert str(seed) in text


def test_several_objectives_show_their_front(tmp_path):
    objective = [
        {"metric": "eval_return"},
        {"metric": "environment_steps", "direction": "minimize"},
    ]
    view = open_view(run_study(tmp_path / "study", objective=objective))
    text = parsed(report_html(view))
    view.close()
    assert "Not dominated by any other on tuning seeds; hypervolume" in text
    assert "tuning last environment_steps" in text


def test_without_test_seeds_the_report_claims_no_result(tmp_path):
    view = open_view(run_study(tmp_path / "s", seeds={"tuning": 2, "test": 0}, budget={"runs": 4}))
    text = parsed(report_html(view))
    answers = {item.question: item.answer for item in checklist(view)}
    view.close()
    assert "there is no number to report yet" in text
    assert "Horizontal lines" not in text
    assert answers["Are all results reported on the test setting?"] == "no"
    (separate,) = [question for question in answers if "separate training and test" in question]
    assert answers[separate] == "no"


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
