"""The steps of a study while it runs: the disk, its progress, its hours, and what may be added to it."""

import pytest
from refusals import expect_error
from scripted import Scripted, Toy, full, listed, run, study_with, toy_spec
from study_support import small_spec

from autorl.core.seeds import MOST_SEEDS
from autorl.study import Study

# -- progress and hours ------------------------------------------------------------------------------------------------


def test_progress_before_during_and_after_a_search(monkeypatch):
    optimizer = Scripted(listed(full(0.2), full(0.9), full(0.4)))
    study = study_with(
        monkeypatch, toy_spec(budget={"runs": 2.5}, objective={"direction": "minimize"}), optimizer
    )
    begun = study.progress()
    assert (begun.phase, begun.proposals, begun.settled, begun.running) == ("search", 0, 0, 0)
    assert (begun.best, begun.best_proposal, begun.budget_used) == (None, None, 0.0)
    assert begun.finished_segments == 0
    study.advance()
    running = study.progress(1)
    assert (running.proposals, running.settled, running.running) == (2, 0, 2)
    assert (running.budget_used, running.finished_segments) == (0.8, 1)
    study.driver.work.clear()
    study.driver.request_anew()
    run(study)
    ended = study.progress(2)
    assert (ended.phase, ended.settled, ended.best, ended.best_proposal) == ("test", 2, 0.2, 0)


# -- what is added -----------------------------------------------------------------------------------------------------


def test_a_study_has_at_most_so_many_test_seeds_as_runs_have_numbers():
    study = Study.in_memory(small_spec(seeds={"tuning": 1, "test": 2}))
    expect_error("expected at most 5000 test seeds, got 5001", study.add_test_seeds, MOST_SEEDS + 1)
    for count in (1, 2):
        expect_error("has 2 test seeds already", study.add_test_seeds, count)
    study.add_test_seeds(MOST_SEEDS)
    assert study.spec.plan.test == tuple(range(100, 100 + MOST_SEEDS))


@pytest.mark.parametrize("runs", [0, -1, float("nan"), 1e18])
def test_a_budget_is_not_extended_by_nothing(runs):
    study = Study.in_memory(small_spec())
    assert expect_error("expected more runs, a number up to", study.extend, runs).key == "--runs"


@pytest.mark.parametrize("budget", [{"hours": 1}, {"environment_steps": 800}])
def test_only_a_budget_of_runs_or_configurations_is_extended(budget):
    study = Study.in_memory(small_spec(budget=budget))
    expect_error("only a budget in runs or configurations", study.extend, 1)


def test_what_pays_for_no_proposal_is_refused_with_what_is_left(monkeypatch):
    optimizer = Scripted(lambda number, seen: full(0.1 * number))
    study = study_with(monkeypatch, toy_spec(budget={"runs": 2.25}), optimizer, Toy())
    run(study)
    assert expect_error("", study.extend, 0.5).message == (
        "+0.5 would train nothing: the next proposal costs more than the 0.75 full runs left; "
        "add more"
    )
    assert study.driver.budget.extra_runs == 0.0
    study.extend(0.75)
    run(study)
    assert len(study.driver.lineage) == 3
