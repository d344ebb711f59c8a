"""Runs that do not end at their nominal step: named in the result when a number of it is of such a run."""

import sqlite3

import pytest
from study_support import run_small, small_spec

from autorl.core.types import StudyError
from autorl.study import Study

EVALUATIONS = {"steps": 100, "evaluations": 5}  # an interval of 20 steps


def caution(result):
    found = [text for text in result.caveats if "rollout" in text]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("rollout", "trained"), [(1, 100), (50, 100), (80, 80), (79, 79), (51, 51)]
)
def test_more_than_one_interval_off_is_named(tmp_path, rollout, trained):
    result = run_small(tmp_path / "s", trainer={"rollout": rollout}, fidelity=EVALUATIONS)
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        assert {steps for (steps,) in connection.execute("SELECT environment_steps FROM runs")} == {
            trained
        }
    assert (caution(result) is not None) is (trained < 80)
    if trained < 80:
        assert f"the incumbent trained {trained} steps for nominal 100:" in caution(result)


def test_runs_shorter_than_a_rollout_fail(tmp_path):
    with pytest.raises(
        StudyError, match="rollout 101 = 101 steps, is longer than a run, 100 steps"
    ):
        run_small(tmp_path / "s", trainer={"rollout": 101}, fidelity=EVALUATIONS)


def test_a_run_in_segments_is_as_long_as_where_it_ends(tmp_path):
    """Rungs of 50 and 100 steps, rollouts of 70: nothing is trained at the first, 70 at the second."""
    spec = small_spec(
        trainer={"rollout": 70}, optimizer={"name": "hyperband", "rungs": 2}, budget={"runs": 30}
    )
    study = Study.create(spec, tmp_path / "s")
    result = study.run()
    ends = study.store.query(
        "SELECT DISTINCT until, to_step FROM segments JOIN proposals USING (proposal) ORDER BY 1"
    )
    study.close()
    assert ends == [(50, 0), (100, 70)]
    assert "the incumbent trained 70 steps for nominal 100" in caution(result)
