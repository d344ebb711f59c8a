"""Budgets are exact: full-run equivalents over seeds and rungs, failures counted, retries not, the test phase apart."""

import dataclasses
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from scripted import Scripted, Shuffled, Toy, chain, full, run, study_with, tables, toy_spec
from study_support import StoppedError, small_spec, stop_after

from autorl.core.types import FrozenMap, InputError, SearchEnd, SegmentId, Status, StudyError, Wait
from autorl.store import Store
from autorl.store.events import SegmentLost, SessionBegun, StudyFinished, TestSeedsAdded
from autorl.study import Study
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.study.results.record import StudyRecord
from autorl.study.setup import make_optimizer


def steps_trained(study, role="tuning"):
    return study.store.query(
        "SELECT COALESCE(SUM(environment_steps), 0) FROM runs WHERE seed_role = ?", (role,)
    )[0][0]


def counted(monkeypatch, trainer=None, places=20, **changes):
    """A study of full runs, each with another x, that has ended, and its optimizer."""
    optimizer = Scripted(lambda number, seen: full(number / places))
    study = study_with(monkeypatch, toy_spec(**changes), optimizer, trainer)
    run(study)
    return study, optimizer


def with_runs(runs):
    """A study whose budget is less than its own optimizer could use, for a scripted one."""
    spec = toy_spec()
    return spec.model_copy(update={"budget": spec.budget.model_copy(update={"runs": runs})})


@pytest.mark.parametrize(
    ("budget", "tuning", "proposals"),
    [
        ({"runs": 8}, 1, 8),
        ({"runs": 8}, 3, 2),
        ({"runs": 9}, 3, 3),
        ({"configurations": 5}, 3, 5),
        ({"environment_steps": 700}, 1, 7),
        ({"environment_steps": 799}, 1, 7),
        ({"environment_steps": 800}, 2, 4),
    ],
)
def test_full_length_proposals(monkeypatch, budget, tuning, proposals):
    seeds = {"tuning": tuning, "test": 0}
    study, optimizer = counted(monkeypatch, budget=budget, seeds=seeds)
    assert optimizer.count == proposals
    assert steps_trained(study) == proposals * tuning * 100


@pytest.mark.parametrize(
    ("runs", "proposals"), [(2.3, 23), (0.7, 7), (1.1, 11), (0.3, 3), (2.35, 23)]
)
def test_short_proposals_use_up_a_fractional_budget_exactly(monkeypatch, runs, proposals):
    optimizer = Scripted(lambda number, seen: full(number / 40, until=10))
    study = study_with(monkeypatch, with_runs(runs), optimizer)
    run(study)
    assert optimizer.count == proposals
    assert steps_trained(study) == proposals * 10


def test_a_continuation_costs_only_its_new_steps(monkeypatch):
    script = [chain(0.1, 30), chain(0.1, 60, 0), chain(0.1, 100, 1), chain(0.2, 100), chain(0.3, 1)]
    optimizer = Scripted(
        lambda number, seen: (
            script[number] if number in {call[1] + 1 for call in calls()} else Wait()
        )
    )

    def calls():
        return [("told", -1), *(call for call in optimizer.order if call[0] == "told")]

    study = study_with(monkeypatch, toy_spec(budget={"runs": 2}), optimizer)
    run(study)
    assert optimizer.count == 4, (
        "30 + 30 + 40 + 100 steps are the budget; one more step is not affordable"
    )
    assert study.driver.charges.steps == steps_trained(study) == 200


def test_failed_and_stopped_runs_are_counted_in_full(monkeypatch):
    kinds = [
        Status.DONE,
        Status.DIVERGED,
        Status.STOPPED,
        Status.CRASH,
        Status.TIMEOUT,
        Status.OUT_OF_MEMORY,
    ]
    trainer = Toy(before=lambda segment: kinds[int(segment.id.split(".")[0]) % 6])
    study, optimizer = counted(monkeypatch, trainer, budget={"runs": 12})
    assert optimizer.count == 12
    assert study.driver.budget.used == 1.0


def test_an_unaffordable_answer_and_restarts_give_one_table(monkeypatch, tmp_path):
    """Whether the search ends is decided from what was observed, so a restart in the middle of it changes nothing."""

    def answer(number, seen):
        done = sum(hasattr(event, "values") for event in seen)
        return (
            full(number / 20, until=90) if number > 2 and done < 2 else full(number / 20, until=30)
        )

    def study_at(folder):
        return study_with(
            monkeypatch, toy_spec(budget={"runs": 1.5}), lambda: Scripted(answer), folder=folder
        )

    whole = study_at(tmp_path / "whole")
    run(whole)
    assert len(tables(whole)["proposals"]) > 3
    stopped = True
    while stopped:
        study = study_at(tmp_path / "cut")
        left = stop_after(study, 2)  # its session, and one event more
        with suppress(StoppedError):
            run(study)
        stopped = left[0] <= 0
        cut = tables(study)
        study.close()
    assert cut == tables(whole)


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "pbt", "generations": 4, "population": 4, "retrain": 0},
        {"name": "asha", "rungs": 3},
    ],
)
def test_a_budget_of_configurations_lets_runs_go_on_to_their_end(optimizer):
    study = Study.in_memory(
        small_spec(optimizer=optimizer, budget={"configurations": 12}, parallelism=2)
    )
    result = run(study)
    begun = study.store.query("SELECT COUNT(*) FROM proposals WHERE resume_from IS NULL")[0][0]
    assert begun == (4 if optimizer["name"] == "pbt" else 12)
    assert result.incumbent.until == 100


def test_extend_opens_the_search_again(monkeypatch):
    study, optimizer = counted(monkeypatch, places=40)
    assert optimizer.count == 8
    study.extend(3)
    run(study)
    assert optimizer.count == 11
    with pytest.raises(InputError, match="would train nothing"):
        study.extend(0.5)
    study.extend(1.5)
    run(study)
    assert optimizer.count == 12
    study.extend(0.5)
    run(study)
    assert optimizer.count == 13, "two halves are one run"


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "random", "stop": "median", "rungs": 3, "peers": 2},
        {"name": "asha", "rungs": 3},
        {"name": "hyperband", "rungs": 3},
    ],
)
@pytest.mark.parametrize("keep", ["incumbent", "none"])
def test_a_finished_multi_fidelity_study_can_be_extended(tmp_path, optimizer, keep):
    """A run that the optimizer may still continue outlives the search, or is trained again from the
    start."""
    study = Study.create(
        small_spec(optimizer=optimizer, keep={"checkpoints": keep}), tmp_path / "study"
    )
    before = sum(run(study).counts.values())
    study.extend(16)
    assert sum(run(study).counts.values()) > before


def test_hours_end_the_search_but_not_what_is_running():
    spec = toy_spec(budget={"hours": 2.0}, parallelism=2)
    clock = [0.0]
    optimizer = Scripted(lambda number, seen: full(number / 20))
    driver = Driver(spec, Journal(Store.in_memory()), optimizer, lambda: clock[0])
    trainer = Toy()
    for hour in (0.0, 0.5, 1.0, 2.0, 2.5):
        clock[0] = hour
        for segment in driver.advance():
            driver.record(trainer.train(segment, lambda report: None))
    driver.advance()
    assert driver.finished
    assert optimizer.count == len(optimizer.told) == 6, (
        "two at 0, 0.5 and 1 hours each, nothing from 2 hours on"
    )
    assert driver.budget.used == 1.25


def test_hours_of_earlier_sessions_count(tmp_path, monkeypatch):
    import autorl.store.store as store_module

    study = Study.create(small_spec(budget={"hours": 9.0}), tmp_path / "study")
    with monkeypatch.context() as patch:
        patch.setattr(store_module.time, "time", iter(range(0, 10**7, 3600)).__next__)
        # One hour apart: 1 h, a pause, 2 h.
        begun, lost, finished = (
            SessionBegun(FrozenMap()),
            SegmentLost(SegmentId(0, 0), ""),
            StudyFinished(SearchEnd.BUDGET),
        )
        for event in (begun, finished, begun, lost, finished):
            study.store.append(event)
    study.close()
    reopened = Study.open(tmp_path / "study")
    assert reopened.tables.hours() == pytest.approx(3.0)
    assert 3.0 < reopened.hours() < 3.1
    with monkeypatch.context() as patch:
        patch.setattr(store_module.time, "time", iter(range(10**8, 2 * 10**8, 3600)).__next__)
        # Seeds asked for long after: the pause is nobody's.
        for event in (TestSeedsAdded(()), begun, finished):
            reopened.store.append(event)
    assert reopened.tables.hours() == pytest.approx(4.0)


# -- tokens and GPU-hours ----------------------------------------------------------------------------------------------


class Sampler(Toy):
    """Tells tokens and completions of a run so far, by its configuration; 36 s a step and a GPU."""

    def __init__(self, **more):
        super().__init__(
            lambda config, seed, step: {
                "eval_return": config["x"],
                "tokens": self.of(config, step),
                "completions": self.of(config, step) / 4,
            },
            **more,
        )

    @staticmethod
    def of(config, step):
        return (8 + round(4 * config["x"])) * step

    def train(self, segment, report):
        outcome = super().train(segment, report)
        cost = {**outcome.cost, "wall_seconds": 36.0 * (segment.until - segment.start)}
        return dataclasses.replace(outcome, cost=cost)


def rungs(number, seen):
    """Two to a half, the first of them on to the end, and again."""
    x = number // 3 / 20
    return chain(x, 100, number - 2) if number % 3 == 2 else chain(x, 50)


def used(study):
    """What was used, by its own driver and by who reads it."""
    usage = study.driver.usage
    spent = StudyRecord(study.spec, study.store, None).spent
    assert (usage.used, usage.rate) == (spent.used, spent.rate)
    return usage.used


@pytest.mark.parametrize("script", [lambda number, seen: full(number / 20), rungs])
@pytest.mark.parametrize(("parallelism", "tuning"), [(1, 1), (3, 1), (4, 3)])
@pytest.mark.parametrize(
    ("budget", "unit"),
    [({"tokens": 12000}, 12), ({"completions": 3000}, 3), ({"gpu_hours": 24}, 0.02)],
    ids=["tokens", "completions", "gpu"],
)
def test_what_outcomes_use_up_ends_within_a_proposal_of_the_bound(
    monkeypatch, budget, unit, parallelism, tuning, script
):
    spec = toy_spec(
        budget=budget,
        seeds={"tuning": tuning, "test": 0},
        parallelism=parallelism,
        resources={"gpu": 2} if "gpu_hours" in budget else None,
        executor={"name": "ray" if "gpu_hours" in budget else "in_process"},
    )
    (bound,) = budget.values()
    seen = []
    for order in range(3):
        study = study_with(monkeypatch, spec, Scripted(script), Sampler())
        study.run(executor=Shuffled(study.load, np.random.default_rng(order)))
        assert abs(bound - used(study)) <= unit * 100 * tuning
        assert study.driver.search_end is SearchEnd.BUDGET
        seen.append((tables(study), used(study)))
    assert seen[0] == seen[1] == seen[2], "the order in which outcomes come changes nothing"
    if "tokens" in budget and script is not rungs:
        configs = [study.driver.lineage[number].config for number in study.driver.lineage.proposals]
        assert used(study) == tuning * sum(Sampler.of(config, 100) for config in configs)
    said = study.spec.indeterminate
    assert said == ("a budget in GPU-hours, resources.gpu" if "gpu_hours" in budget else None)


class Adder(Sampler):
    """Tells the tokens of a segment as a cost of it."""

    def train(self, segment, report):
        outcome = super().train(segment, report)
        tokens = self.of(segment.config, segment.until) - self.of(segment.config, segment.start)
        reports = tuple(
            dataclasses.replace(report, metrics={"eval_return": report.metrics["eval_return"]})
            for report in outcome.reports
        )
        return dataclasses.replace(outcome, reports=reports, cost=outcome.cost | {"tokens": tokens})


def test_counts_may_be_a_cost_of_their_segment(monkeypatch):
    spec = toy_spec(budget={"tokens": 12000}, seeds={"tuning": 2, "test": 0}, parallelism=3)
    of_run, of_segment = (
        study_with(monkeypatch, spec, Scripted(rungs), trainer) for trainer in (Sampler(), Adder())
    )
    run(of_run)
    run(of_segment)
    assert used(of_segment) == used(of_run) > 10_000


@pytest.mark.parametrize("events", range(3, 30, 4))
def test_tokens_of_earlier_sessions_count(monkeypatch, tmp_path, events):
    spec = toy_spec(budget={"tokens": 5000}, seeds={"tuning": 2, "test": 0})
    begun = partial(study_with, monkeypatch, spec, lambda: Scripted(rungs), Sampler())
    whole = begun(tmp_path / "whole")
    run(whole)
    study = begun(tmp_path / "killed")
    stop_after(study, events)
    with suppress(StoppedError):
        run(study)
    study.close()
    study = begun(tmp_path / "killed")
    run(study)
    assert (tables(study), used(study)) == (tables(whole), used(whole))


def test_failures_without_a_count_are_taken_for_their_length(monkeypatch):
    """The first run tells the rate, and all others crash at once."""
    trainer = Sampler(before=lambda segment: Status.CRASH if segment.id.proposal else None)
    study, optimizer = counted(monkeypatch, trainer, budget={"tokens": 8000}, parallelism=1)
    assert (optimizer.count, used(study)) == (10, 8000)


@pytest.mark.parametrize("metric", ["tokens", "completions"])
def test_a_run_that_tells_no_count_ends_the_study(monkeypatch, metric):
    with pytest.raises(StudyError, match=f"needs metric '{metric}'; the trainer reported"):
        counted(monkeypatch, budget={metric: 8000})


# -- trainers that cannot continue -------------------------------------------------------------------------------------


class Forgetful(Toy):
    """Saves nothing, so that what goes on from a rung is trained from step 0."""

    def train(self, segment, report):
        return super().train(dataclasses.replace(segment, save=False), report)


def forgetful(monkeypatch, optimizer, trainer=None, folder=None):
    """A study of 32 full runs of 100 steps; rungs at 25, 50 and 100."""
    spec = toy_spec(
        budget={"runs": 32}, optimizer=optimizer, seeds={"tuning": 2, "test": 2}, test={"top": 1}
    )
    make = partial(make_optimizer, spec, lambda spec: trainer)
    return study_with(monkeypatch, spec, make, trainer or Forgetful(), folder)


@pytest.mark.parametrize(
    "optimizer", ["asha", "hyperband", {"name": "random", "stop": "median", "rungs": 4}]
)
def test_what_is_trained_again_is_charged(monkeypatch, optimizer):
    study = forgetful(monkeypatch, optimizer, Forgetful())
    result = run(study)
    assert study.driver.charges.anew
    assert steps_trained(study) == study.driver.charges.steps <= 3200
    (caveat,) = [text for text in result.caveats if "checkpoint" in text]
    assert caveat.startswith(
        f"{len(study.driver.charges.anew)} proposals continue runs that left no checkpoint"
    )
    assert caveat.endswith("the budget was charged for that")
    continued = forgetful(monkeypatch, optimizer, Toy())
    assert [text for text in run(continued).caveats if "checkpoint" in text] == []
    assert steps_trained(continued) == continued.driver.charges.steps <= 3200
    assert not continued.driver.charges.anew
