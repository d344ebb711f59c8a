"""Crashes are not charged any more once the user's code has changed."""

import dataclasses
import shutil

import pytest
from small_studies import OF_MIXED
from study_support import table
from test_kill import THIRD, after_events, run_spec_and_die

from autorl.core.types import StudyError
from autorl.store.events import BudgetExtended
from autorl.study import Study
from autorl.study.results.record import StudyRecord
from autorl.study.spec import load_spec
from autorl.trainers.function import make

CRASHES = "raise ValueError"
WORKS = "return config['x'] + seed"
CRASHES_AT_TIMES = "return config['x'] if config['x'] > 0.3 else config['y']"
NOTE = "not charged: 3 failed proposals of other code"


def spec_of(folder, **changes):
    """Full runs of 100 steps on two tuning seeds; the first three are proposed at once."""
    own = {"trainer": f"python:{folder / 'of_refunds.py'}:f", "budget": {"runs": 12}}
    own |= {"fidelity": {"steps": 100, "evaluations": 1}, "seeds": {"tuning": 2, "test": 1}}
    return load_spec({**OF_MIXED, **own, "test": {"top": 0, "baseline": False}, **changes})


def session(folder, body, **changes):
    """A session with a function of this body: its result, None where it gave up, and what was refunded so far."""
    (folder / "of_refunds.py").write_text(f"def f(config, *, seed):\n    {body}\n")
    place = folder / "study"
    begun = place.exists()
    study = (
        Study.open(place, make) if begun else Study.create(spec_of(folder, **changes), place, make)
    )
    try:
        result = study.run()
    except StudyError:
        result = None
    record = StudyRecord(study.spec, study.store, None)
    events = record.events(BudgetExtended)
    assert dataclasses.replace(study.driver.budget.spent, hours=0) == dataclasses.replace(
        record.spent, hours=0
    )
    study.close()
    return result, [event.refunded for event in events]


@pytest.mark.parametrize(
    "budget", [{"runs": 12}, {"environment_steps": 1200}, {"configurations": 6}]
)
def test_what_crashed_is_not_charged_once_the_code_has_changed(tmp_path, capsys, budget):
    assert session(tmp_path, CRASHES, budget=budget) == (None, [])
    result, refunded = session(tmp_path, WORKS)
    assert refunded == [(0, 1, 2)]
    assert result.counts == {"crash": 3, "scored": 6}, "six configurations, as the budget says"
    assert NOTE in capsys.readouterr().err
    assert NOTE in result.caveats


def test_the_same_code_gets_nothing_back_and_no_change_does_so_twice(tmp_path):
    assert session(tmp_path, CRASHES, budget={"runs": 30}) == (None, [])
    assert session(tmp_path, CRASHES) == (None, [])
    first = (0, 1, 2, 3, 4, 5)
    assert session(tmp_path, CRASHES + "  # again") == (None, [first])
    assert session(tmp_path, WORKS)[1] == [first, (6, 7, 8)]


def test_a_study_in_which_all_has_failed_opens_again_and_one_with_a_result_does_not(tmp_path):
    for _ in range(3):
        assert session(tmp_path, CRASHES) == (None, [])
    refunded = [(0, 1, 2, 3, 4, 5)]
    result, given_back = session(tmp_path, CRASHES_AT_TIMES)
    assert given_back == refunded
    assert result.counts["scored"] > 0
    assert result.counts["crash"] > 6
    again, given_back = session(tmp_path, WORKS)
    assert (again.counts, given_back) == (result.counts, refunded)


def test_killed_at_every_event_after_a_change_it_is_given_back_once(tmp_path):
    assert session(tmp_path, CRASHES, budget={"runs": 8}) == (None, [])
    killed = shutil.copytree(tmp_path / "study", tmp_path / "killed")
    result, refunded = session(tmp_path, WORKS)
    strides = [1]  # the first dies between the refund and its own event
    while not run_spec_and_die(killed, None, after_events(strides[-1])):
        strides.append(THIRD)
    assert len(strides) > 3
    assert table(killed) == table(tmp_path / "study")
    tmp_path.joinpath("study").rename(tmp_path / "whole")
    killed.rename(tmp_path / "study")
    again, of_killed = session(tmp_path, WORKS)
    assert (again.counts, of_killed) == (result.counts, refunded)
