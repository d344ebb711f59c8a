"""Outcomes as they are recorded: judged, placed among the runs, and compared when trained again."""

import pytest
from segments import segment_of

from autorl.core.types import EnvironmentSpec, Outcome, Report, SegmentId, Status
from autorl.statistics.evaluation import Judge, Objective, join
from autorl.study.outcome_events import agree, judged

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
    return judged(of or segment(), result, nominal, by, lambda one: join([one]), "")


# -- judged ------------------------------------------------------------------------------------------------------------


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


def test_a_metric_that_was_not_reported_is_named_beside_those_that_were():
    result = judge(outcome({"b": 1.0}, {"b": 1.0, "a": 2.0}))
    assert result.status is Status.CRASH
    assert result.message == "the study needs metric 'm'; the trainer reported a, b"
    some = judge(outcome({"m": 1.0}, {"b": 1.0, "a": 2.0}))
    assert some.message == "the study needs metric 'm'; at step 100 the trainer reported a, b"
    none = judge(outcome(steps=()))
    assert none.message == "the study needs metric 'm'; the trainer reported none"


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
