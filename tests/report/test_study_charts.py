"""Charts of a study's report: the loss on test seeds, curves, populations, configurations."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
from report_support import STUDY, entry, interval, result, run_study

from autorl.report.configurations import ConfigurationRow
from autorl.report.exploring import MOST_SHOWN, chosen, parallel, slices
from autorl.report.html import report_html, result_blocks, study_sections
from autorl.report.learning import curves_chart, curves_of
from autorl.report.pages.document import Section, page
from autorl.report.population import legs_of, population_blocks
from autorl.report.reading import open_view
from autorl.report.text import result_dict, result_text
from autorl.space import Space, load_space
from autorl.store.events import ProposalMade
from autorl.study import Study
from autorl.study.results.result import loss_text
from autorl.study.spec import load_spec

MOST_BYTES = 3_000_000
SPEC = load_spec(STUDY)


def judged(values, rivals, until=1000):
    incumbent = entry("incumbent", 7, 95.0, values, interval(min(values), max(values)))
    return [incumbent] + [
        entry(label, number, 55.0, scores, interval(min(scores), max(scores)), until=until)
        for number, (label, scores) in enumerate(rivals.items())
    ]


def test_a_winner_that_loses_to_the_default_is_named_with_the_difference():
    text = loss_text(SPEC, judged([70.0, 72.0, 74.0, 76.0], {"default": [90.0, 92.0, 94.0, 96.0]}))
    assert "(proposal 7) loses on the test seeds: 73, and the default" in text
    assert "has 93 (IQM); difference -20 [-20, -20]" in text
    assert "noise" not in text


def test_a_loss_within_noise_says_so_and_the_best_rival_is_named():
    rivals = {"default": [71.0, 72.0, 74.0, 76.0], "rank 2": [60.0, 100.0, 50.0, 110.0]}
    text = loss_text(SPEC, judged([70.0, 72.0, 74.0, 76.0], rivals))
    assert "proposal 1 (rank 2 by tuning score)" in text
    assert "may be noise" in text


def test_no_loss_is_claimed_where_there_is_none():
    values = [70.0, 72.0, 74.0, 76.0]
    assert loss_text(SPEC, judged(values, {"default": [1.0, 2.0, 3.0, 4.0]})) == ""
    assert loss_text(SPEC, judged(values, {"default": values})) == ""
    # Trained for another length, it is no rival.
    assert loss_text(SPEC, judged(values, {"default": [90.0] * 4}, until=500)) == ""
    assert loss_text(SPEC, ()) == ""


def test_less_is_better_where_the_study_minimises():
    spec = load_spec({**STUDY, "objective": {"metric": "eval_return", "direction": "minimize"}})
    rival = {"default": [1.0, 2.0, 3.0, 4.0]}
    assert "loses" in loss_text(spec, judged([5.0, 6.0, 7.0, 8.0], rival))
    assert loss_text(spec, judged([0.0, 0.1, 0.2, 0.3], rival)) == ""


def test_the_first_screen_says_it_before_the_table(tmp_path):
    view = open_view(run_study(tmp_path / "s"))
    losing = judged([1.0, 2.0, 3.0, 4.0], {"default": [5.0, 6.0, 7.0, 8.0]})
    found = result(entries=losing, loss=loss_text(view.spec, losing))
    first = result_blocks(view, found)
    view.close()
    assert found.loss in result_text(found)
    assert result_dict(found)["loss"] == found.loss
    kinds = [getattr(block, "kind", type(block).__name__) for block in first]
    assert kinds.index("Headline") < kinds.index("loss") < kinds.index("Table")


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    opened = open_view(run_study(tmp_path_factory.mktemp("charts") / "study"))
    yield opened
    opened.close()


def charts(text):
    return set(re.findall(r'data-chart="([^"]*)"', text))


def test_every_chart_of_a_study_is_there(view):
    text = report_html(view)
    assert {"incumbent", "curves", "seeds", "parallel", "slice"} <= charts(text)
    assert len(text.encode()) < MOST_BYTES


def test_curves_are_those_of_the_table_by_seed(view):
    best = view.result().incumbent.proposal
    curves = curves_of(view.record, best, "eval_return", "test")
    assert sorted(curves) == list(view.spec.plan.test)
    for seed, curve in curves.items():
        rows = view.store.query(
            "SELECT step, value FROM reports JOIN runs USING (run_id) WHERE metric = 'eval_return' "
            "AND seed_role = 'test' AND seed = ? AND run_id IN "
            "(SELECT run_id FROM segments WHERE proposal = ?) ORDER BY step",
            (seed, best),
        )
        assert list(curve.items()) == rows
        assert list(curve) == [20, 40, 60, 80, 100]


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    changes = {
        "optimizer": {"name": "pbt", "population": 4, "generations": 4},
        "budget": {"runs": 8},
        "space": {
            "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
            "rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log"},
        },
    }
    opened = open_view(run_study(tmp_path_factory.mktemp("pbt") / "study", **changes))
    yield opened
    opened.close()


def test_a_population_is_drawn_with_every_part_and_every_copy(population):
    legs = legs_of(population.record)
    assert {leg.member for leg in legs} == {"0", "1", "2", "3"}
    parents = {row.proposal: row.parent for row in population.record.tables.charged()}
    members = {leg.row.proposal: leg.member for leg in legs}
    for leg in legs:
        parent = parents[leg.row.proposal]
        copied = parent is not None and members[parent] != leg.member
        assert (leg.donor is not None) == copied
    best = population.result().incumbent.proposal
    lineage = population_blocks(population.record, best)[0].chart
    bars, *lines = lineage.marks
    assert len(bars.names) == len(legs)
    # A copy has two points and a gap.
    copies = [len(line.x) // 3 for line in lines if line.label.startswith("exploit")]
    assert sum(copies) == sum(leg.donor is not None for leg in legs) > 0
    for leg, row, value in zip(legs, bars.rows, bars.values, strict=True):
        assert lineage.y.categories[int(row)] == leg.member
        assert value == leg.row.score[0]


def test_curves_of_a_member_that_copied_another_begin_at_the_start(population):
    best = population.result().incumbent.proposal
    curves = curves_of(population.record, best, "eval_return", "test")
    assert sorted(curves) == list(population.spec.plan.test)
    # Evaluated at the ends of generations too.
    steps = [sorted({*range(20, 101, 20), *range(25, 101, 25)})] * len(curves)
    assert [list(curve) for curve in curves.values()] == steps


class LeftError(Exception):
    """A study was left on the way, as the test wants it."""


def test_what_is_in_training_is_drawn_beside_incumbent_and_default(tmp_path):
    optimizer = {"name": "asha", "eta": 2, "rungs": 3}
    study = Study.create(load_spec({**STUDY, "optimizer": optimizer}), tmp_path / "study")

    record = study.journal.record

    def until_promoted(event):
        record(event)
        if not isinstance(event, ProposalMade):
            return
        if event.proposed.proposal.parent is not None and event.proposed.id > 8:
            raise LeftError

    study.journal.record = until_promoted
    study.store.batch = nullcontext
    with pytest.raises(LeftError):
        study.run()
    study.close()
    view = open_view(tmp_path / "study")
    chart = curves_chart(view.record, view.result())
    promoted = f"running (proposal {max(view.record.tables.pending())})"
    (drawn,) = [part for part in study_sections(view, view.trace) if part.place == "learning"]
    assert drawn.blocks[0].blocks[1].chart.title == chart.title
    view.close()
    assert "tuning seeds" in chart.title
    lines = {line.label: line for line in chart.marks}
    assert {"incumbent", "default", "running"} <= {label.partition(" (")[0] for label in lines}
    # None of its segments has ended: the curve is that of the run it continues.
    assert max(lines[promoted].x) in (25, 50)


def many(count):
    rng = np.random.default_rng(0)
    kind = {"type": "categorical", "choices": ["<a>", "b"]}
    names = [f"x{index}" for index in range(20)]
    space = load_space(dict.fromkeys(names, "uniform(0, 1)") | {"kind": kind})
    trials = []
    for number in range(count):
        score = float(rng.normal())
        values = {name: float(rng.random()) for name in names} | {"kind": "<a>"}
        trials.append(ConfigurationRow(number, "complete", score, number == 0, values))
    return space, trials


def test_many_configurations_keep_the_incumbent_and_the_best_and_the_page_small():
    space, trials = many(4096)
    shown = chosen(trials, maximize=True)
    assert isinstance(space, Space)
    assert len(shown) == MOST_SHOWN
    assert any(trial.incumbent for trial in shown)
    for end in (max, min):
        assert end(trials, key=lambda trial: trial.score) in shown
    blocks = [*parallel(space, shown, "score"), *slices(space, shown, "score")]
    assert len(page("many", "", [Section("all", "", blocks)]).encode()) < MOST_BYTES


def test_a_line_of_the_parallel_coordinates_stands_where_its_values_are():
    space, trials = many(3)
    (figure,) = parallel(space, trials, "score")
    scores = [trial.score for trial in trials]
    assert len(figure.chart.x.categories) == len(space.names) + 1
    others, best = figure.chart.marks
    assert [np.isnan(line.y).sum() for line in (others, best)] == [2, 1]
    for line in figure.chart.marks:
        for part in range(int(np.isnan(line.y).sum())):
            begin = part * (len(space.names) + 2)
            units = line.y[begin : begin + len(space.names) + 1]
            number = int(re.search(r"configuration (\d+)", line.names[begin]).group(1))
            assert units[0] == pytest.approx(trials[number].values["x0"], abs=1e-3)
            share = (trials[number].score - min(scores)) / (max(scores) - min(scores))
            assert units[-1] == pytest.approx(share, abs=1e-3)
