"""Whatever trainer reports them: steps of reports lie inside the segment, and each is after the one before."""

import dataclasses

import pytest
from scripted import Scripted, Toy, chain, full, listed, run, study_with, toy_spec

from autorl.types import Report, Status, StudyError


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
    assert study.store.query("SELECT * FROM evals") == []


@pytest.mark.parametrize("reached", [(37, 96), (53, 130)])
def test_nominal_steps_are_reported_by_runs_that_end_elsewhere(monkeypatch, reached):
    """A run ends where a rollout does: before the nominal step, or after it; what follows starts there."""
    trainer = Toy()
    original = trainer.train

    def train(segment, report):
        return dataclasses.replace(original(segment, report), reached=reached[segment.until > 50])

    trainer.train = train
    spec = toy_spec(fidelity={"steps": 100, "evaluations": 10, "episodes": 1}, parallelism=1)
    study = study_with(
        monkeypatch, spec, Scripted(listed(chain(0.5, 50), chain(0.5, 100, 0))), trainer
    )
    run(study)
    rows = study.store.query("SELECT DISTINCT step FROM evals ORDER BY step")
    assert [step for (step,) in rows] == list(range(10, 101, 10))
    assert study.store.query("SELECT DISTINCT status FROM segments") == [(Status.DONE.value,)]
