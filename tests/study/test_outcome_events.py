"""Outcomes as they are recorded: judged, placed among the runs, and compared when trained again."""

from dataclasses import replace

import pytest
from scripted import chain
from segments import segment_of

from autorl.core.seeds import SeedPlan
from autorl.core.types import (
    Checkpoint,
    EnvironmentSpec,
    Fence,
    Outcome,
    Proposed,
    Report,
    SegmentId,
    Status,
)
from autorl.statistics.evaluation import Judge, Objective, join
from autorl.study.lineage import Lineage
from autorl.study.outcome_events import agree, ended, judged

NAME = SegmentId(1, 0)
JUDGE = Judge([Objective("m")])


def segment(**more):
    place = {
        "start": 40,
        "until": 100,
        "horizon": 100,
        "environment": EnvironmentSpec("Pendulum-v1"),
    }
    return segment_of(NAME, **place | more)


def outcome(*values, status=Status.DONE, reached=100, steps=(50, 100), **more):
    reports = tuple(
        Report(NAME, step, value if isinstance(value, dict) else {"m": value})
        for step, value in zip(steps, values, strict=True)
    )
    return Outcome(NAME, status, reached, reports, {"environment_steps": 60.0}, **more)


def judge(result, of=None, nominal=40, by=JUDGE):
    return judged(of or segment(), result, nominal, by, lambda one: join([one]))


# -- judged ------------------------------------------------------------------------------------------------------------


def test_an_outcome_that_can_be_scored_is_recorded_as_it_is():
    whole = outcome(1.0, 2.0)
    assert judge(whole) is whole


@pytest.mark.parametrize(
    ("reached", "steps", "start", "nominal", "allowed"),
    [
        (100, (50, 100), 40, 40, True),
        (100, (50, 101), 40, 40, False),
        (120, (50, 120), 40, 40, True),  # it ended after its nominal step
        (90, (50, 100), 40, 40, True),  # or before, and the report is of the nominal one
        (100, (45, 100), 48, 40, True),  # its parent reached more than its nominal end
        (100, (45, 100), 40, 48, True),
        (100, (35, 100), 48, 40, False),
    ],
)
def test_reports_lie_within_their_segment(reached, steps, start, nominal, allowed):
    result = judge(
        outcome(1.0, 2.0, reached=reached, steps=steps), segment(start=start), nominal=nominal
    )
    assert result.status is (Status.DONE if allowed else Status.CRASH)
    assert len(result.reports) == (2 if allowed else 0)
    assert bool(result.message) is not allowed


def test_a_failure_stays_what_it_is_and_loses_reports_that_cannot_be():
    failed = outcome(1.0, 2.0, status=Status.TIMEOUT, message="too slow")
    assert judge(failed) is failed
    elsewhere = judge(replace(failed, reports=(Report(NAME, 400, {"m": 1.0}),)))
    assert (elsewhere.status, elsewhere.message) == (Status.TIMEOUT, "too slow")
    assert elsewhere.reports == ()


def test_a_metric_that_was_not_reported_is_named_beside_those_that_were():
    result = judge(outcome({"b": 1.0}, {"b": 1.0, "a": 2.0}))
    assert result.status is Status.CRASH
    assert result.message == "the study needs metric 'm'; the trainer reported a, b"
    some = judge(outcome({"m": 1.0}, {"b": 1.0, "a": 2.0}))
    assert some.message == "the study needs metric 'm'; at step 100 the trainer reported a, b"
    none = judge(outcome(steps=()))
    assert none.message == "the study needs metric 'm'; the trainer reported none"


def test_a_metric_that_is_no_number_is_a_divergence():
    result = judge(outcome(1.0, float("nan")))
    assert result.status is Status.DIVERGED
    assert result.message == "a metric of the objective is NaN or infinite"
    assert len(result.reports) == 2


# -- ended -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lineage():
    """Proposal 1 changes what 0 trained to step 40; 2 goes on with 1 unchanged."""
    made = Lineage(SeedPlan(2, 0))
    parts = chain(0.9, 40, member="a"), chain(0.9, 100, 0, "a", y=0.7), chain(0.9, 120, 1, y=0.7)
    for number, proposal in enumerate(parts):
        made.observe(Proposed(number, proposal))
    return made


def event_of(result, lineage, of=None):
    return ended(of or segment(), result, lineage, JUDGE, lambda one: join([one]))


def test_an_outcome_is_placed_among_the_runs(lineage):
    of = segment(seed=1, parent=Checkpoint(SegmentId(0, 1), "x"))
    place = event_of(outcome(1.0, 2.0), lineage, of).place
    assert place.segment == NAME
    assert (place.run_id, place.parent_run) == (lineage.run_id(1, "tuning", 1), 1)
    assert (place.role, place.algorithm, place.environment) == ("tuning", "toy", "Pendulum-v1")
    assert (place.start_step, place.from_step, place.member) == (40, 40, "a")
    assert place.parent == SegmentId(0, 1)


def test_a_run_from_scratch_has_no_parent(lineage):
    first = segment(id=SegmentId(0, 0), start=0, until=40)
    place = event_of(outcome(1.0, 2.0), lineage, first).place
    assert (place.run_id, place.parent_run, place.parent, place.start_step) == (0, None, None, 0)


def test_only_what_succeeded_has_reductions(lineage):
    assert event_of(outcome(1.0, 4.0), lineage).reductions == (("m", 100, 4.0, 4.0, 100, 2.5, 2.5),)
    failed = outcome(1.0, 4.0, status=Status.CRASH)
    assert event_of(failed, lineage).reductions is None


def test_the_log_of_one_study_names_no_study(lineage):
    recorded = event_of(outcome(1.0, 2.0, fence=Fence(2, 1, "3-small")), lineage).outcome
    assert recorded.fence == Fence(2, 1, "")


# -- trained again -----------------------------------------------------------------------------------------------------


def test_two_trainings_agree_where_every_step_that_both_evaluated_does():
    first = outcome(1.0, 2.0)
    assert agree(first, outcome(1.0, 2.0))
    assert not agree(first, outcome(1.0, 2.5))
    assert not agree(first, outcome(1.5, 2.0))
    assert not agree(first, outcome(1.0, 2.0, reached=101))
    # The second was cut elsewhere: step 60 was not evaluated the first time.
    assert agree(first, outcome(7.0, 2.0, steps=(60, 100)))
    assert not agree(first, outcome(7.0, 2.0, steps=(60, 100), reached=90))
