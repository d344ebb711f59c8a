"""Whatever trainer reports them: steps of reports lie inside the segment, and each is after the one before."""

import dataclasses

import pytest
from scripted import Scripted, Toy, full, listed, run, study_with, toy_spec

from autorl.core.types import Report, StudyError


def reporting(*steps):
    """A trainer of somebody else that reports at these steps."""
    trainer = Toy()
    original = trainer.train

    def train(segment, report):
        outcome = original(segment, report)
        told = tuple(Report(segment.id, step, {"eval_return": 1.0}) for step in steps)
        return dataclasses.replace(outcome, reports=told)

    trainer.train = train
    return trainer


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ((300,), "report at step 300: expected a step after 0, at most 100"),
        ((-5, 100), "report at step -5: expected a step after 0, at most 100"),
        ((0, 100), "report at step 0: expected a step after 0, at most 100"),
        ((50, 50, 100), "report at step 50 after one at step 50: expected a later step"),
        ((100, 50), "report at step 50 after one at step 100: expected a later step"),
    ],
)
def test_an_outcome_with_reports_at_other_steps_is_a_crash(monkeypatch, steps, problem):
    study = study_with(
        monkeypatch, toy_spec(parallelism=1), Scripted(listed(full(0.5))), reporting(*steps)
    )
    with pytest.raises(StudyError):
        run(study)
    assert study.store.query("SELECT status, message FROM segments") == [("crash", problem)]
    assert study.store.query("SELECT * FROM reports") == []
