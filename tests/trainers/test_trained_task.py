"""The task in the space: trained in as a configuration says, evaluated in as the study says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import torch
from segments import refusal, run, run_well, segment

from autorl.core.types import EnvironmentSpec, freeze
from autorl.study.setup import changeable, check, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers.sb3 import trainer as sb3_trainer

torch.set_num_threads(1)  # as the executors do
G = "environment.kwargs.g"
LIMIT = "environment.wrappers.TimeLimit.max_episode_steps"
ROLLOUT = {"n_steps": 64, "batch_size": 64, "n_epochs": 1}
NATIVE = EnvironmentSpec("Pendulum-v1", n_envs=2)
WRAPPED = EnvironmentSpec(
    "outside_tasks:Outside/Pendulum-v1",
    wrappers=freeze([{"gymnasium.wrappers:TimeLimit": {"max_episode_steps": 10}}]),
    n_envs=2,
)
TRAINERS = pytest.mark.parametrize("trainer", ["sb3/ppo", "population/ppo"])


def of(trainer: str, config: Mapping[str, Any], until: int = 512, **changes: Any) -> Any:
    environment = changes.pop("environment", NATIVE)
    folder = changes.pop("folder", None)
    of_run = {"horizon": 512, "episodes": 2, **changes}
    return segment(trainer, environment, {**ROLLOUT, **config}, until, folder, **of_run)


@TRAINERS
def test_the_studys_own_value_trains_as_without_it(trainer: str) -> None:
    plain = run_well(of(trainer, {}))
    own = run_well(of(trainer, {G: 10.0}))
    assert own.reports == plain.reports
    assert own.applied == {**plain.applied, G: 10.0}


@TRAINERS
def test_training_is_in_the_changed_task_and_evaluation_in_the_studys_own(trainer: str) -> None:
    still = {"learning_rate": 0.0}
    plain, light = (run_well(of(trainer, still | more)) for more in ({}, {G: 2.0}))
    own, other = (one.reports[0].metrics for one in (plain, light))
    # An agent that learns nothing is evaluated alike; its episodes of training are of another task.
    assert own["eval_return"] == other["eval_return"]
    assert own["train_return"] < other["train_return"]
    learns = run_well(of(trainer, {G: 2.0})).reports[0].metrics
    assert learns["eval_return"] != run_well(of(trainer, {})).reports[0].metrics["eval_return"]


@TRAINERS
def test_arguments_of_a_wrapper_are_the_studys_own_in_evaluations(
    trainer: str, tmp_path: Any
) -> None:
    outcome = run_well(of(trainer, {LIMIT: 7}, 256, folder=tmp_path / "a", environment=WRAPPED))
    assert outcome.applied[LIMIT] == 7
    # A wrapper that cuts ends an episode in training, and in evaluations with its own limit.
    of_limits = ({}, {LIMIT: 7}, {LIMIT: 13})
    measured = [run_well(of(trainer, config, environment=WRAPPED)) for config in of_limits]
    lengths = {one.reports[0].metrics["eval_length"] for one in measured}
    assert lengths == {10}
    changed = run_well(of(trainer, {LIMIT: 13}, environment=WRAPPED, after=outcome))
    assert changed.notes == ("the task changed: new episodes at step 256",)


@TRAINERS
def test_a_cut_run_equals_the_whole_and_a_changed_task_goes_on(trainer: str, tmp_path: Any) -> None:
    light = {G: 2.0}
    first = run_well(of(trainer, light, 256, folder=tmp_path / "first"))
    whole = run_well(of(trainer, light, evaluate_at=(256, 512)))
    second = run_well(of(trainer, light, after=first))
    assert (*first.reports, *second.reports)[-1].metrics == whole.reports[-1].metrics
    assert not second.notes
    heavier = run_well(of(trainer, {G: 12.0}, after=first))
    assert heavier.applied[G] == 12.0
    assert heavier.reports[-1].metrics != second.reports[-1].metrics
    assert heavier.notes == ("the task changed: new episodes at step 256",)


def test_environments_that_are_of_another_task_are_an_error(monkeypatch: Any) -> None:
    make = sb3_trainer.vectorise
    monkeypatch.setattr(sb3_trainer, "vectorise", lambda task, *more: make(NATIVE, *more))
    assert "was not made of" in run(of("sb3/ppo", {G: 2.0})).message


def study(trainer: str, name: str, entry: Any, **changes: Any) -> dict[str, Any]:
    return {
        "trainer": {"name": trainer, "kwargs": ROLLOUT},
        "environment": "Pendulum-v1",
        "space": {name: entry},
        "fidelity": {"steps": 256},
        "budget": {"runs": 4},
        **changes,
    }


REFUSED = {
    "an unknown argument": ("environment.kwargs.gg", "uniform(5, 15)", "gg"),
    "a value out of bounds": ("environment.kwargs.m", "uniform(-1, 2)", "expected a number in"),
    "other actions": ("environment.kwargs.max_torque", "uniform(1, 2)", "must be trained on"),
    "a schedule": (
        *(G, {"type": "float", "lower": 5, "upper": 15, "schedule": ["linear"]}),
        "without a schedule",
    ),
    "a wrapper that is not there": (LIMIT, "int(50, 100)", "needs one wrapper TimeLimit"),
    "another part of the section": ("environment.n_envs", [1, 2], "expected environment.kwargs.N"),
}


@TRAINERS
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_task_does_not_have_is_refused_before_training(trainer: str, case: str) -> None:
    name, entry, message = REFUSED[case]
    error = refusal(study(trainer, name, entry))
    assert message in error.message
    assert "\n" not in error.message


def test_other_observations_are_refused() -> None:
    stacked = {"autorl.trainers.sb3.wrappers:FrameStack": {"n_stack": 2}}
    environment = {"id": "Pendulum-v1", "wrappers": [stacked]}
    name = "environment.wrappers.FrameStack.n_stack"
    error = refusal(study("sb3/ppo", name, "int(2, 4)", environment=environment))
    assert "the observations are Box" in error.message


def test_other_trainers_train_in_the_studys_own_task() -> None:
    without = {"trainer": "synthetic", "environment": {}}
    error = refusal(study("synthetic", G, "uniform(5, 15)") | without)
    assert error.message == f"synthetic trains in the study's own task, which {G} changes"


@TRAINERS
def test_a_population_may_change_the_task_as_it_trains(trainer: str) -> None:
    entry = {"type": "float", "lower": 5, "upper": 15, "changeable": True}
    spec = load_spec(study(trainer, G, entry, optimizer="pbt", budget={"runs": 8}))
    check(spec, trainer_loader(spec))
    assert changeable(spec, trainer_loader(spec)) == {G}
