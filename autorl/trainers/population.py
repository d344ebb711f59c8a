"""Trainers on the population engine: `population/ppo`, `population/sac` and the others.

A segment is one member's training between two steps, compiled, without the interpreter lock: on the
`threads` executor every core trains a member of its own. A checkpoint is one file of plain
arrays.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.seeds import digest, evaluation_seeds
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)
from autorl.population import engine
from autorl.population.environments import Environment, find_environment
from autorl.population.export import keeps_moments, take, to_sb3, vec_normalize
from autorl.population.hyperparameters import Record, check_names, read_back, record
from autorl.population.members import is_finite
from autorl.population.normalisation import SETTINGS, settings
from autorl.population.outside import NotFiniteError, OutsideEnvironment, Worlds, worlds_of
from autorl.population.sb3_arguments import sb3_arguments
from autorl.population.variants import is_outside
from autorl.space import resolve_schedules
from autorl.statistics.episodes import info_metric, tails_of
from autorl.trainers.agents import AgentTrainer, write_zip
from autorl.trainers.contract import ExportedModel, FixedValue
from autorl.trainers.environment_state import bare_space
from autorl.trainers.gymnasium_tasks import faults_in_one_line
from autorl.trainers.outside_environments import (
    described,
    frozen,
    outside_environment,
    reseed,
    thawed,
    vector_environment,
)
from autorl.trainers.saved_state import load as load_state
from autorl.trainers.saved_state import load_parent, save
from autorl.trainers.shared import (
    ENVIRONMENT,
    Course,
    after_update,
    check_rollout,
    check_start,
    schedule_parts,
    train_metric,
)
from autorl.trainers.shared import check_names as check_options
from autorl.trainers.trained_task import (
    SAME_AGENT,
    beside_task,
    faults_of_space,
    of_task,
    trained_task,
)


class PopulationTrainer(AgentTrainer):
    """Runs segments of one algorithm of the engine.

    Environments are native, or Gymnasium's, which Python steps.

    Options (`trainer.kwargs`): any hyperparameter, as a default under the configuration.
    """

    def __init__(self, spec: TrainerSpec) -> None:
        self.name = spec.name.partition("/")[2]
        self.algorithm = engine.find_algorithm(self.name)
        self.kwargs = spec.kwargs
        self.start = spec.start
        check_names(self.algorithm.settings, list(spec.kwargs))

    @property
    def changes(self) -> Mapping[str, Literal["apply", "rebuild"]]:
        """How a continued run may change each hyperparameter.

        The parts of its schedule are included.
        """
        settings = self.algorithm.settings.items()
        changes = {name: setting.change for name, setting in settings if setting.change is not None}
        parts = schedule_parts(
            name for name, setting in settings if setting.change and setting.scheduled
        )
        return {**changes, **dict.fromkeys([*parts, ENVIRONMENT], "apply")}

    @property
    def preload(self) -> tuple[str, ...]:
        return (
            f"autorl.population.{self.name}",
            "autorl.population.preload",
            "autorl.trainers.population",
        )

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Check the environment and the names of hyperparameters.

        The environment must be native, the user's own `Environment`, or one of Gymnasium whose
        spaces fit the algorithm.
        """
        names = dict.fromkeys(sorted(hyperparameters))
        check_names(self.algorithm.settings, beside_task(names))
        trained_task(environment, names)
        with faults_in_one_line(environment):
            self._environment(environment)

    def check_model(self, environment: EnvironmentSpec, config: Config) -> None:
        """Check that an agent, and a start, fit the study's own task."""
        with faults_of_space(config), faults_in_one_line(environment):
            judging = self._environment(environment)
            self._trained_in(environment, config, judging)
        if self.start is not None:
            self._new(judging, self._record(config, environment, 1), 0)

    def fixed_values(self) -> tuple[FixedValue, ...]:
        return tuple(FixedValue(name, (name,), value) for name, value in self.kwargs.items())

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        measured = map(train_metric, self.algorithm.measures)
        single = ["eval_return", "eval_length"]
        if is_outside(environment.id) and environment.vec_env == "dummy":
            single += map(info_metric, environment.info)
        further = ("eval_return_std", "train_return", *measured)
        return (*single, *tails_of(single, environment.metrics), *further)

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return the end of the last iteration up to `step`.

        `n_envs` is the configuration's, the trainer's or the environment's.
        """
        # The length of a rollout is no function of the horizon: any will do.
        stride = self.algorithm.stride(self._record(config, environment or EnvironmentSpec(), 1))
        return step // stride * stride

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        course = Course(segment, report)
        check_start(segment)
        judging = self._environment(segment.environment)
        environment = self._trained_in(segment.environment, segment.config, judging)
        # CPU time of this thread: on the executor `threads` others train in the same process. A
        # vector has threads of its own, and a process to itself.
        together = getattr(environment, "make_vector", None) is not None
        cpu_clock = time.process_time if together else time.thread_time
        cpu = cpu_clock()
        hp = self._record(segment.config, segment.environment, segment.horizon)
        stride = self.algorithm.stride(hp)
        n_envs = int(hp.n_envs)
        length = "train_freq" if "train_freq" in self.algorithm.settings else "n_steps"
        check_rollout({length: stride // n_envs, "n_envs": n_envs}, segment)
        state, parent, notes = self._state(segment, judging, environment, hp)
        applied = self._applied(segment, hp)
        of_worlds: list[bytes] = []
        with worlds_of(environment, state) as worlds:
            notes += _resume(worlds, segment, parent)
            bound = self.algorithm.bind(state, environment, hp, worlds)
            try:
                course.problem = self._advance(course, bound, state, judging, stride)
            except NotFiniteError as error:
                course.problem = str(error)
            if worlds is not None and segment.save and not course.problem:
                of_worlds = frozen(worlds)
        return course.outcome(
            engine.steps(state),
            applied,
            lambda: self._save(segment, state, judging, of_worlds),
            notes=notes,
            cost={"cpu_seconds": cpu_clock() - cpu},
        )

    def _advance(
        self,
        course: Course,
        bound: engine.Bound,
        state: engine.State,
        environment: Environment,
        stride: int,
    ) -> str:
        """Train to the segment's end, and evaluate on the way.

        Returns:
            Text about what is not finite; empty if all is.
        """
        segment = course.segment
        measured = -1  # the step the last evaluation was of
        metrics: dict[str, float] = {}
        # The end may be a point as well, and then comes twice: it is evaluated once.
        for step in (*segment.evaluate_at, segment.until):
            iterations = (step - engine.steps(state)) // stride
            # Two points may lie in one rollout.
            if iterations > 0:
                bound.advance(iterations)
            trained = engine.steps(state)
            if not is_finite(state["member"]):
                return "parameters are not finite"
            for point in course.due(step):
                # Weights that serve several points keep their value: no other episodes, no other
                # noise.
                if trained != measured:
                    keys = evaluation_seeds(segment.seed, segment.role, trained, segment.episodes)
                    metrics = engine.evaluation(
                        bound, state, environment, keys, segment.environment
                    )
                    values = state["member"].measures
                    # There are places for more than an algorithm has.
                    metrics |= after_update(
                        {}, dict(zip(self.algorithm.measures, values, strict=False))
                    )
                    measured = trained
                if not course.add(point, metrics):
                    return course.problem
        return ""

    def export_model(
        self, checkpoint: Checkpoint, target: str | Path, *, replace: bool = False
    ) -> ExportedModel:
        """Save the agent of a checkpoint as a Stable-Baselines3 model.

        The model acts and trains the same. If training normalised, its `VecNormalize` goes beside
        it.

        Raises:
            InputError: Stable-Baselines3 is not installed, the checkpoint is not of this trainer,
                or the file is there already.
        """
        meta = load_state(checkpoint, f"population/{self.name}")
        state = engine.from_arrays(self.algorithm, meta["arrays"])
        hp = record(self.algorithm.settings, beside_task(meta["values"]), meta["horizon"])
        name, variant, wrappers = (meta["task"][key] for key in ("id", "kwargs", "wrappers"))
        environment: Environment
        if is_outside(name):
            environment = described(name, meta["spaces"], variant, wrappers=tuple(wrappers))
        else:
            environment = find_environment(name, variant, wrappers)
        model = to_sb3(self.algorithm, state, environment, hp)
        normaliser = vec_normalize(state["normaliser"], model) if "normaliser" in state else None
        arguments = sb3_arguments(self.algorithm, hp, engine.steps(state))
        moments = "the run's optimizer moments" if keeps_moments(hp) else "new optimizer moments"
        return write_zip(
            model,
            normaliser,
            target,
            replace=replace,
            hyperparameters=(
                f"all hyperparameters of the run, defaults of population/{self.name} included"
            ),
            n_envs=arguments.n_envs,
            learns=moments + " and an empty replay memory" * ("replay" in state),
            notes=(*arguments.notes, *_acts_in(environment)),
        )

    def _values(self, config: Mapping[str, object], environment: EnvironmentSpec) -> dict[str, Any]:
        """The configuration over the trainer's own values over the environment's."""
        return {"n_envs": environment.n_envs, **self.kwargs, **config}

    def _record(
        self, config: Mapping[str, object], environment: EnvironmentSpec, horizon: int
    ) -> Record:
        values = beside_task(self._values(config, environment))
        return record(self.algorithm.settings, values, horizon)

    def _trained_in(
        self, spec: EnvironmentSpec, config: Mapping[str, object], environment: Environment
    ) -> Environment:
        """Find or make the environment that a configuration trains in.

        Args:
            spec: the study's task.
            config: may change it.
            environment: of the study's task, returned where nothing changes it.

        Raises:
            InputError: it cannot be made, or an agent sees or does something else in it.
        """
        task = trained_task(spec, config)
        if task == spec:
            return environment
        changed = self._environment(task)
        seen_and_done = attrgetter("observation_size", "n_actions", "low", "high")
        if seen_and_done(environment) != seen_and_done(changed):
            message = "observations or actions are not those of the study's own task"
            raise InputError(f"{message}: {SAME_AGENT}", key="space")
        return changed

    def _environment(self, spec: EnvironmentSpec) -> Environment:
        """Find a native environment, or make one of Gymnasium's.

        Raises:
            InputError: there is none, or the algorithm does not train on it.
        """
        if spec.vec_env == "subproc":
            raise InputError(
                f"population/{self.name} steps environments in its own process: dummy, envpool or "
                f"gymnasium; use sb3/{self.name} for subproc",
                key="environment.vec_env",
            )
        environment: Environment
        if is_outside(spec.id):
            make = outside_environment if spec.vec_env == "dummy" else vector_environment
            environment = make(spec)
        elif spec.vec_env == "dummy":
            environment = find_environment(spec.id, spec.kwargs, spec.wrappers)
        else:
            raise InputError(
                f"{spec.id} is native: the compiled program steps it, not {spec.vec_env}",
                key="environment.vec_env",
            )
        if spec.normalize is not False:
            environment = dataclasses.replace(environment, normalize=_normalisation(spec.normalize))
        if not (self.algorithm.discrete if environment.n_actions else self.algorithm.continuous):
            kind = "discrete" if environment.n_actions else "continuous"
            raise InputError(
                f"population/{self.name} has no {kind} actions, {environment.id} needs them",
                key="trainer",
            )
        return environment

    def _state(
        self, segment: Segment, judging: Environment, environment: Environment, hp: Record
    ) -> tuple[engine.State, dict[str, Any] | None, tuple[str, ...]]:
        """Return a new member or the parent's, and the parent's checkpoint.

        The parent's is continued, or forked with random streams of its own.
        """
        keys = () if segment.fork is None else (segment.fork,)
        # 128 bits; the generators of the engine take 64.
        key = digest(segment.seed, "training", *keys) % 2**64
        # Compare values, not configurations: the trainer's own values count as well.
        values = self._values(segment.config, segment.environment)
        parent = load_parent(segment, f"population/{self.name}", values, self.changes)
        if parent is None:
            return self._new(environment, hp, key), None, ()
        state = engine.from_arrays(self.algorithm, parent["arrays"])
        of_parent = parent["task"]
        for name, asked in _task(segment.environment, judging).items():
            if of_parent[name] != asked:
                raise InputError(
                    f"the checkpoint is of {of_parent[name]!r}, not of {asked!r}",
                    key=f"environment.{name}",
                )
        if segment.fork is not None:
            state = engine.fork(state, key)
        # Episodes in progress cannot be spread over another number of environments, and a native
        # one holds the parameters of its task.
        changed = FrozenMap(of_task(parent["values"])) != FrozenMap(of_task(values))
        fresh = engine.set_environments(state, environment, int(hp.n_envs), anew=changed)
        why = "the task" if changed else "n_envs"
        note = f"{why} changed: new episodes at step {segment.start}"
        return state, parent, (note,) if fresh else ()

    def _new(self, environment: Environment, hp: Record, key: int) -> engine.State:
        """Make a member, with the policy that runs begin from.

        Raises:
            InputError: the policy does not fit, or a replay memory is asked for beside it.
        """
        state = self.algorithm.create(environment, hp, key, np.float32)
        if self.start is None:
            return state
        if self.start.memory is not None:
            raise InputError(f"only sb3/{self.name} begins with one", key="start.memory")
        options = environment.normalize
        observes = options is not None and bool(options.get("norm_obs", True))
        model = self.starting_model(normalises=observes)
        take(model, self.algorithm, state, environment, hp)
        return state

    def _applied(self, segment: Segment, hp: object) -> dict[str, Any]:
        """Return the hyperparameters as the compiled program reads them at first.

        Raises:
            RuntimeError: one is not what the configuration asks for at the first step.
        """
        config = beside_task(segment.config)
        in_force = read_back(self.algorithm.settings, hp, config, segment.start)
        asked = resolve_schedules(config, segment.start, segment.horizon)
        for name, value in asked.items():
            if not _same(in_force[name], value):
                raise RuntimeError(
                    f"hyperparameter {name} is {in_force[name]} in the engine, not {value}"
                )
        return in_force | of_task(segment.config)

    def _save(
        self,
        segment: Segment,
        state: engine.State,
        environment: Environment,
        of_worlds: list[bytes],
    ) -> Checkpoint:
        meta: dict[str, Any] = {
            "task": _task(segment.environment, environment),
            "horizon": segment.horizon,
            "values": self._values(segment.config, segment.environment),
            "arrays": engine.to_arrays(state),
            "environments": of_worlds,
        }
        if isinstance(environment, OutsideEnvironment):
            spaces = (environment.observation_space, environment.action_space)
            meta["spaces"] = [bare_space(space) for space in spaces]
        return save(segment, f"population/{self.name}", engine.steps(state), meta)


def _task(spec: EnvironmentSpec, environment: Environment) -> dict[str, Any]:
    """Return the task of a run by keys of a study file."""
    return {
        "id": spec.id,
        "kwargs": plain(environment.variant),
        "wrappers": list(environment.wrappers),
        "vec_env": spec.vec_env,
        "normalize": environment.normalize is not None,
    }


def _normalisation(normalize: bool | FrozenMap) -> FrozenMap:
    """Return the checked arguments of `VecNormalize`.

    Raises:
        InputError: one is unknown, or its value is not allowed.
    """
    options = normalize if isinstance(normalize, FrozenMap) else FrozenMap()
    check_options(options, SETTINGS, "argument of VecNormalize", "environment.normalize")
    settings(options, SETTINGS["gamma"].default)
    return options


def _resume(
    worlds: Worlds | None, segment: Segment, parent: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Go on with the episodes outside the engine that a checkpoint has.

    Returns a note where new ones have to begin.
    """
    # All begin anew anyway if a member is new, or has another number of environments.
    if worlds is None or parent is None or not worlds.started():
        return ()
    reason = thawed(worlds, parent["environments"], trust=segment.trust)
    if reason:
        worlds.forget()
        return (f"{reason}: new episodes at step {segment.start}",)
    if segment.fork is not None:
        reseed(worlds)
    return ()


def _acts_in(environment: Environment) -> tuple[str, ...]:
    """Say what beside its id describes a model's environment."""
    arguments = "".join(f", {name}={plain(value)!r}" for name, value in environment.variant.items())
    chain = "".join(f" within {shown(entry)}" for entry in environment.wrappers)
    if not arguments and not chain:
        return ()
    native = arguments and not isinstance(environment, OutsideEnvironment)
    maker = "autorl.population.gymnasium_variants.make" if native else "gymnasium.make"
    return (f"it acts in {maker}({environment.id!r}{arguments}){chain}",)


def _same(in_force: object, asked: object) -> bool:
    if asked is None:
        return bool(in_force == "none")
    if isinstance(in_force, float) and isinstance(asked, int | float):
        # The engine computes schedules by code of its own, whose last bits may differ.
        return math.isclose(in_force, asked, rel_tol=1e-12)
    return bool(in_force == asked)
