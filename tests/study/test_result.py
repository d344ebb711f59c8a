"""The result of a study, put together from rows made up: what is tested, compared, and in which order."""

from types import SimpleNamespace

import pytest
from study_support import run_small, small_spec

from autorl.core.types import Config, Incumbent
from autorl.landscapes import load_landscape
from autorl.statistics import Interval
from autorl.store import rows as table_rows
from autorl.study.results import result as results
from autorl.study.results.estimates import Entry, Estimate
from autorl.study.results.result import Point, Result

SCHEDULE = ((0, Config(x=0.5)),)
WIDTH = Interval(1.0, 2.0, 0.95, "percentile")


def entry(label, proposal, scores, *, until=100, failures=()):
    seeds = dict(enumerate(scores, start=100))
    value = sum(scores) / len(scores) if scores else 0.0
    test = Estimate(value, None, value, None, seeds, len(failures)) if scores else None
    return Entry(label, proposal, SCHEDULE, 0.5, test, until, dict(failures))


def result(*entries, tuning=5.0, **more):
    fields = {
        "objective": "last eval_return (mean over seeds), maximize",
        "aggregate": "mean",
        "direction": "maximize",
        "incumbent": Incumbent(SCHEDULE, 100, 7),
        "tuning": tuning,
        "entries": entries,
        "difference": WIDTH,
        "front": (),
        "counts": {},
        "folder": None,
    }
    return Result(**fields | more)


# -- a result ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("direction", "gap"), [("maximize", 3.0), ("minimize", -3.0)])
def test_the_gap_is_positive_where_tuning_was_better(direction, gap):
    assert result(entry("incumbent", 7, [1.0, 3.0]), direction=direction).gap == gap
    assert result().gap is None
    assert result(entry("incumbent", 7, [])).gap is None


def test_the_improvement_is_of_the_seeds_that_both_have():
    entries = entry("incumbent", 7, [4.0, 6.0, 100.0]), entry("default", 0, [1.0, 2.0])
    assert result(*entries).improvement == 3.5
    assert result(*entries, difference=None).improvement is None
    assert result(entries[0]).improvement is None
    assert result(entries[0], entry("default", 0, [])).improvement is None
    assert result(entry("incumbent", 7, []), entries[1]).improvement is None


# -- what was tested ---------------------------------------------------------------------------------------------------


def record_of(rows, spec=None, **more):
    spec = spec or small_spec()
    return SimpleNamespace(
        spec=spec,
        folder=None,
        tables=SimpleNamespace(
            tests=lambda objective=0: [row for index, row in rows if index == objective],
            score=lambda proposal: more.get("scores", {}).get(proposal, ()),
            feasible=lambda: more.get("feasible", {}),
        ),
        schedule=lambda proposal: SCHEDULE,
        until=lambda proposal: 100 - proposal,
        lineage=lambda number: {number: SimpleNamespace(config={})},
    )


def rows_of(proposal, label, *values, objective=0):
    return [
        (
            objective,
            table_rows.TestRow(proposal, label, 100 + place, value, "crash" if failed else "done"),
        )
        for place, (value, failed) in enumerate(
            (value, False) if not isinstance(value, tuple) else (value[0], True) for value in values
        )
    ]


# -- several objectives ------------------------------------------------------------------------------------------------

TWO = [
    {"metric": "eval_return", "direction": "minimize"},
    {"metric": "eval_length", "direction": "maximize", "reduce": "best"},
]


def test_a_front_comes_best_by_the_first_objective_first():
    rows = [
        *rows_of(3, "incumbent", 2.0, 4.0),
        *rows_of(3, "incumbent", 10.0, 30.0, objective=1),
        *rows_of(5, "front 2", (None,)),
    ]
    scores = {3: (2.0, 10.0), 4: (9.0, 90.0), 5: (2.0, 10.0), 6: (1.0, 5.0)}
    record = record_of(rows, small_spec(objective=TWO), scores=scores)
    points = results._points(record, [4, 5, 3, 6], {3, 5})
    first, second = "last eval_return", "best eval_length"
    assert points == (
        Point(6, {}, {first: 1.0, second: 5.0}, None),
        Point(3, {}, {first: 2.0, second: 10.0}, {first: 3.0, second: 20.0}),
        Point(5, {}, {first: 2.0, second: 10.0}, None),
        Point(4, {}, {first: 9.0, second: 90.0}, None),
    )


@pytest.mark.parametrize(("penalty", "score"), [("worst", 3.0), (9.0, 6.0)])
def test_a_failed_run_counts_in_a_front_where_the_study_file_says_its_value(penalty, score):
    rows = rows_of(3, "incumbent", 2.0, (77.0,), 4.0, (None,))
    spec = small_spec(objective=TWO, failures={"penalty": penalty})
    found = results._test_scores(record_of(rows, spec), 3)
    assert found == {"last eval_return": score}


def test_the_volume_of_a_front_is_in_parts_of_the_box_of_all_proposals():
    """By hand. A box from (-12, 0) to (-1, 22): the first objective is minimised."""
    spec = small_spec(objective=TWO)
    names = "last eval_return", "best eval_length"
    feasible = {0: (-1.0, 2.0), 1: (-11.0, 22.0), 2: (-5.0, 15.0), 3: (-9.0, 10.0)}

    def point(number, tuning, test=None):
        two = None if test is None else dict(zip(names, test, strict=True))
        return Point(number, {}, dict(zip(names, tuning, strict=True)), two)

    record = record_of([], spec, feasible=feasible)
    front = [point(0, (1.0, 2.0)), point(2, (5.0, 15.0), (8.0, 15.0)), point(1, (11.0, 22.0))]
    # Columns of the front: 4 wide and 2 high, 6 and 15, 1 and 22.
    volumes = results._volumes(record, front)
    assert vars(volumes) == pytest.approx(
        {"tuning": 120 / 242, "tested": 7 * 15 / 242, "test": 4 * 15 / 242}
    )
    assert results._volumes(record, front[:1]).tuning == pytest.approx(11 * 2 / 242)
    assert results._volumes(record, []) is None


def test_a_time_is_the_same_in_the_result_and_in_the_landscape(tmp_path):
    result = run_small(tmp_path / "s", objective={"reduce": "time_to(0.9)"})
    landscape = load_landscape(tmp_path / "s")
    choice = landscape.best()
    assert (choice.tuning, choice.config) == (result.tuning, result.incumbent.config)
    # One seed of the last of them never reached it: (80 + 2 x 100) / 2.
    times = [60.0, 70.0, 70.0, 70.0, 70.0, 80.0, 90.0, 140.0]
    assert landscape.top(8)["tuning_mean"].tolist() == times
    assert result.direction == "minimize"
    assert "time_to(0.9) of a run, lower is better (never: 200)" in result.objective
