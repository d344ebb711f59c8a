"""The cautions of a result: when each is said, and in which words."""

from types import SimpleNamespace

import pytest
from study_support import small_spec

from autorl.core.plain_text import number
from autorl.core.types import Config
from autorl.statistics.evaluation import Constraint, Judge, Objective
from autorl.study.results.cautions import constraint_cautions
from autorl.study.results.cautions import test_cautions as cautions_of_tests
from autorl.study.results.estimates import Entry, Estimate


def entry(label="incumbent", scores=(), *, until=100, failures=(), failed_value=None):
    seeds = dict(enumerate(scores, start=100))
    test = None
    if seeds:
        test = Estimate(0.0, None, 0.0, None, seeds, len(failures), failed_value)
    failed = dict.fromkeys(failures, "crash")
    return Entry(label, 1, ((0, Config()),), 0.5, test, until, failed)


MANY = [float(number) for number in range(12)]


# -- the test ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("test", "why"), [(3, "not tested yet"), (0, "no test seeds")])
def test_without_a_test_the_tuning_score_is_no_result(test, why):
    spec = small_spec(seeds={"tuning": 2, "test": test})
    assert cautions_of_tests(spec, []) == [
        f"{why}: the tuning score is optimistic and is not a result"
    ]


@pytest.mark.parametrize(
    ("aggregate", "seeds", "texts"),
    [
        ("mean", 1, ["one test seed: no interval, so nothing is known about the noise"]),
        ("iqm", 2, ["fewer than 8 test seeds: the interval of the IQM covers about 49%"]),
        ("iqm", 7, ["fewer than 8 test seeds: the interval of the IQM covers about 89%"]),
        ("iqm", 8, []),
        ("mean", 7, ["fewer than 8 test seeds: the interval of the IQM covers about 89%"]),
        ("mean", 8, []),
        ("cvar(0.2)", 10, ["the interval of cvar(0.2) covers about 60%"]),
        ("cvar(0.3)", 10, ["the interval of cvar(0.3) covers an unknown share"]),
    ],
)
def test_what_a_short_interval_covers_is_said(aggregate, seeds, texts):
    spec = small_spec(evaluation={"aggregate": aggregate})
    said = cautions_of_tests(spec, [entry(scores=MANY[:seeds])])
    assert len(said) == len(texts)
    assert all(line.startswith(text) for line, text in zip(said, texts, strict=True)), said


# -- failed test runs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("direction", "iqm"), [("maximize", 2.5), ("minimize", 4.75)])
def test_failed_test_runs_of_the_incumbent_are_counted_as_its_worst(direction, iqm):
    """The worst counts three times among eight, and the middle four are averaged: 1 2 3 4, or 3 4 5
    7."""
    spec = small_spec(objective={"direction": direction}, evaluation={"aggregate": "iqm"})
    scores = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]
    said = cautions_of_tests(spec, [entry(scores=scores, failures=(200, 201))])
    assert said[-1] == (
        "2 of 8 test runs of the incumbent failed: the test score is of the 6 that succeeded, "
        "which flatters it; with the worst of these in place of each failed run the IQM is "
        f"{number(iqm)}"
    )


# -- constraints -------------------------------------------------------------------------------------------------------


def constrained(violations, values, runs=(), constraints=None, costs=()):
    bounds = constraints or (Constraint("load", max=3.0), Constraint("speed", min=1.0))
    record = SimpleNamespace(
        spec=SimpleNamespace(judge=lambda: Judge([Objective("m")], bounds)),
        tables=SimpleNamespace(
            violations=lambda proposal: violations,
            tested_runs=lambda link: list(runs),
            costs=lambda metric: dict(enumerate(costs)),
        ),
        mean_of_tests=lambda proposal, metric: values.get(metric),
        candidate_steps=lambda proposal: SimpleNamespace(end=None),
        link_at=lambda proposal, end: proposal,
    )
    return constraint_cautions(record, 4)


def test_broken_constraints_are_named_by_the_seeds_that_broke_them():
    assert constrained((0.5, 0.25), {"load": 3.25, "speed": 2.0}) == [
        "no proposal keeps within the constraints: on tuning seeds the incumbent breaks "
        "load <= 3, speed >= 1",
        "on test seeds the incumbent breaks load <= 3: 3.25",
    ]


def test_the_cost_of_a_test_run_counts_where_it_is_of_the_whole_run():
    runs = [
        SimpleNamespace(run_id=number, start_step=start) for number, start in enumerate((0, 0, 40))
    ]
    costs = (140.0, 160.0, 1.0)
    bound = (Constraint("environment_steps", max=100.0),)
    assert constrained((0.0,), {}, runs, bound, costs) == [
        "on test seeds the incumbent breaks environment_steps <= 100: 150"
    ]
    assert constrained((0.0,), {}, runs[2:], bound, costs) == []
