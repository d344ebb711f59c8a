"""Runs that train beyond their nominal steps: named in the result when a number of it is of such a run."""

import sqlite3

import pytest
from scripted import toy_spec
from study_support import run_small, small_spec

from autorl.study import Study
from autorl.study.overshoot import overshoot_caveats

EVALUATIONS = {"steps": 100, "evaluations": 5}  # an interval of 20 steps


def caution(result):
    found = [text for text in result.caveats if "rollout" in text]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(("rollout", "said"), [(1, False), (120, False), (121, True), (1000, True)])
def test_more_than_one_interval_beyond_is_named(tmp_path, rollout, said):
    result = run_small(tmp_path / "s", trainer={"rollout": rollout}, fidelity=EVALUATIONS)
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        trained = {steps for (steps,) in connection.execute("SELECT environment_steps FROM runs")}
    assert trained == {max(100.0, rollout)}
    assert (caution(result) is not None) is said
    if said:
        assert f"the incumbent trained {rollout:,} steps for nominal 100:" in caution(result)


def test_a_study_that_is_not_tested_names_its_incumbent_too(tmp_path):
    result = run_small(tmp_path / "s", trainer={"rollout": 500}, seeds={"tuning": 2, "test": 0})
    assert "the incumbent trained 500 steps for nominal 100" in caution(result)


def said(ends, incumbent, tested):
    """The cautions of a study whose proposals of nominal 100 steps ended at `ends`, an interval being 50."""
    rows = [(proposal, 100, end) for proposal, end in enumerate(ends)]
    return overshoot_caveats(lambda sql: rows, toy_spec(), incumbent, tested)


def test_the_largest_is_named_beside_the_incumbent():
    (text,) = said([100, 120, 151, 400, 400], incumbent=1, tested=[1, 2])
    assert text.startswith("the incumbent trained 120 steps for nominal 100 (the most is 400 for 100, proposal 3):")
    (text,) = said([100, 160, 160], incumbent=1, tested=[])
    assert text.startswith("the incumbent trained 160 steps for nominal 100:")


def test_runs_that_no_number_is_made_of_do_not_matter():
    assert said([100, 120, 150, 400], incumbent=1, tested=[1, 2]) == []


def test_runs_that_failed_early_are_not_too_long():
    assert said([0, 90, 100], incumbent=1, tested=[1, 0]) == []


def test_a_run_in_segments_is_as_long_as_where_it_ends(tmp_path):
    """Rungs of 50 and 100 steps, rollouts of 90: it ends at 180, which is no sum of both segments' own overshoot."""
    spec = small_spec(trainer={"rollout": 90}, optimizer={"name": "hyperband", "rungs": 2}, budget={"runs": 30})
    study = Study.create(spec, tmp_path / "s")
    result = study.run()
    longest = study.store.query("SELECT MAX(to_step) FROM segments")
    study.close()
    assert longest == [(180,)]
    assert "the incumbent trained 180 steps for nominal 100" in caution(result)
