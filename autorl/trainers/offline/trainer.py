"""Trainers on recorded episodes: `offline/bc` and `offline/iql`.

A step is an update of the networks. Recorded episodes come from a Minari data set, evaluation
episodes from the environment of the study: they are the same function of seed and role as
everywhere, and no policy is trained on them. A run can be cut at any step.

    trainer: {name: offline/iql, kwargs: {dataset: mujoco/hopper/medium-v0}}
    environment: Hopper-v5

Reference: Younis et al. (2024), Minari; see `learner` for the methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from autorl.core.plain_text import counted
from autorl.core.plain_values import plain
from autorl.core.seeds import evaluation_seeds, integer_seed
from autorl.core.types import (
    Checkpoint,
    EnvironmentSpec,
    InputError,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.trainers import _streams as streams
from autorl.trainers.contract import Change, FixedValue, Trainer
from autorl.trainers.gymnasium_tasks import faults_in_one_line
from autorl.trainers.offline.learner import APPLIED, Learner, Transitions, read_transitions
from autorl.trainers.saved_state import load_parent, save
from autorl.trainers.sb3.environments import make_environment
from autorl.trainers.sb3.evaluation import evaluate, metrics_in
from autorl.trainers.shared import Course, check_names, check_start, search_folders

_CLONING: Mapping[str, Any] = {
    "learning_rate": 3e-4,
    "batch_size": 256,
    "net_arch": (256, 256),
    "standardize": True,
}
# Values of the paper on its locomotion tasks.
_IMPLICIT = {**_CLONING, "gamma": 0.99, "tau": 0.005, "expectile": 0.7, "temperature": 3.0}
METHODS: Mapping[str, Mapping[str, Any]] = {"bc": _CLONING, "iql": _IMPLICIT}
"""The hyperparameters of each method with their defaults."""
_OPTIONS = ("dataset", "deterministic", "evaluation_envs", "path")


class OfflineTrainer(Trainer):
    """Runs segments of one method on a data set.

    Options (`trainer.kwargs`): `dataset` (its name, of Minari; needed), any hyperparameter (below
    the configuration's), `deterministic` (evaluate the mode of the policy; default true),
    `evaluation_envs` (episodes side by side; default 16), `path` (where the user's modules are).
    """

    preload = ("autorl.trainers.sb3.preload",)

    def __init__(self, spec: TrainerSpec) -> None:
        self.method = spec.name.partition("/")[2]
        self.kwargs = spec.kwargs
        self.defaults = METHODS[self.method]
        what = f"option or hyperparameter of {spec.name}"
        check_names(spec.kwargs, {*_OPTIONS, *self.defaults}, what, "trainer.kwargs")
        self.folders = search_folders(spec.kwargs)
        self.dataset = spec.kwargs.get("dataset")
        if not isinstance(self.dataset, str):
            raise InputError(
                "expected the name of a Minari data set, such as mujoco/hopper/medium-v0",
                key="trainer.kwargs.dataset",
            )

    @property
    def changes(self) -> Mapping[str, Change]:
        return {name: "apply" for name in APPLIED if name in self.defaults}

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Compare the environment with the data set."""
        what = f"hyperparameter of offline/{self.method}"
        check_names(hyperparameters, self.defaults, what, "space")
        data = self._data()
        with faults_in_one_line(environment):
            env = make_environment(environment, self.folders)
        actions = env.action_space
        # None for a dictionary.
        shape = env.observation_space.shape
        env.close()
        size = data.observations.shape[1]
        if shape is None or math.prod(shape) != size:
            raise InputError(
                f"{self.dataset} has observations of {counted(size, 'number')}, "
                f"{environment.id} of the shape {shape}; dictionaries need "
                "gymnasium.wrappers:FlattenObservation among environment.wrappers",
                key="environment",
            )
        if actions != data.action_space:
            raise InputError(
                f"the actions of {self.dataset} are {data.action_space}, those of "
                f"{environment.id} {actions}",
                key="environment",
            )

    def fixed_values(self) -> tuple[FixedValue, ...]:
        return tuple(
            FixedValue(name, (name,), value)
            for name, value in self.kwargs.items()
            if name not in _OPTIONS
        )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        return [name for name in metrics_in(environment) if not name.startswith("train_")]

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        course = Course(segment, report)
        check_start(segment)
        of_model = {name: value for name, value in self.kwargs.items() if name not in _OPTIONS}
        values = {**self.defaults, **of_model, **segment.config}
        with streams.preserved():
            learner = self._learner(segment, values)
            applied = learner.applied()
            _check_applied(applied, values)
            step = self._advance(learner, course)

            def saved() -> Checkpoint:
                generator = learner.generator.get_state()
                state = {
                    "values": plain(values),
                    "generator": generator,
                    "learner": learner.state(),
                }
                return save(segment, f"offline/{self.method}", step, state)

            return course.outcome(step, applied, saved)

    def _data(self) -> Transitions:
        assert self.dataset is not None
        return read_transitions(self.dataset)

    def _learner(self, segment: Segment, values: Mapping[str, Any]) -> Learner:
        """Build the networks, or restore those of the parent, with their streams."""
        keys = () if segment.fork is None else (segment.fork,)
        seed = integer_seed(segment.seed, "algorithm", *keys)
        generator = torch.Generator().manual_seed(seed)
        streams.seed_global(seed)
        learner = Learner(self.method == "iql", self._data(), values, generator)
        saved = load_parent(segment, f"offline/{self.method}", values, self.changes)
        if saved is None:
            return learner
        learner.restore(saved["learner"])
        if segment.fork is None:
            generator.set_state(saved["generator"])
        return learner

    def _advance(self, learner: Learner, course: Course) -> int:
        """Train to the end of the segment, or of what is finite.

        Returns the step reached.
        """
        segment = course.segment
        for step in range(segment.start, segment.until + 1):
            if step > segment.start:
                learner.update()
            for point in course.due(step):
                if not course.add(
                    point, self._measured(learner, segment, step), _diverged(learner)
                ):
                    return step
        course.problem = _diverged(learner)
        return segment.until

    def _measured(self, learner: Any, segment: Segment, step: int) -> dict[str, float]:
        return evaluate(
            learner,
            segment.environment,
            evaluation_seeds(segment.seed, segment.role, step, segment.episodes),
            deterministic=bool(self.kwargs.get("deterministic", True)),
            n_envs=int(self.kwargs.get("evaluation_envs", 16)),
            folders=self.folders,
        )


def _diverged(learner: Learner) -> str:
    return "" if learner.finite() else "parameters of the networks are not finite"


def _check_applied(applied: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Compare what the learner has with what was asked for.

    Raises:
        RuntimeError: it has another value.
    """
    for name, value in values.items():
        if plain(applied[name]) != plain(value):
            raise RuntimeError(
                f"hyperparameter {name}: {value!r} was asked for, the learner has {applied[name]!r}"
            )
