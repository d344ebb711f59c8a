"""Whatever trainer reports them: steps of reports lie inside the segment, and each is after the one before."""

import dataclasses

import pandas as pd
import pytest
from scripted import Scripted, Toy, full, listed, run, study_with, toy_spec

from autorl.core.types import Report, StudyError
from autorl.report.html import report_html
from autorl.report.learning import curves_of
from autorl.report.reading import open_view
from autorl.study.results.landscape import from_study


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


def test_updates_between_evaluations_are_drawn_and_are_no_evaluations(tmp_path, monkeypatch):
    """Scores and landscapes are as without them."""

    class Logging(Toy):
        def train(self, segment, report):
            outcome = super().train(segment, report)
            updates = [
                Report(segment.id, step, {"train_entropy": 1 / step}) for step in (10, 20, 70)
            ]
            return dataclasses.replace(outcome, updates=tuple(updates))

    spec = toy_spec(budget={"runs": 2}, parallelism=1, seeds={"tuning": 1, "test": 1})
    folder = tmp_path / "study"
    study = study_with(monkeypatch, spec, Scripted(listed(full(0.2), full(0.7))), Logging(), folder)
    assert run(study).test.seeds == {100: 0.7}
    study.close()
    (curve,) = curves_of(open_view(folder).record, 1, "train_entropy", "tuning").values()
    assert curve == {10: 0.1, 20: 0.05, 70: 1 / 70}
    assert "Training of the incumbent" in report_html(open_view(folder))
    from_study(folder, tmp_path / "landscapes", "me/toy/updates")
    evals = pd.read_parquet(tmp_path / "landscapes" / "me/toy/updates" / "evals")
    assert sorted(set(evals["step"])) == [50, 100]
