"""Trainers for Stable-Baselines3: `sb3/ppo`, `sb3/a2c`, `sb3/dqn`, `sb3/sac`, `sb3/td3`,
`sb3/ddpg`, and for sb3-contrib: `sb3/tqc`, `sb3/qrdqn`, `sb3/crossq`, `sb3/trpo`,
`sb3/recurrent_ppo`, `sb3/maskable_ppo`.

SB3's own `learn` ties schedules to the length of one call and restarts counters, so the loop here
is ours: SB3 collects and updates, the horizon decides the progress, and a run cut anywhere equals
the uncut run to the last bit.

An evaluation at a step, and the end of a run, take the weights after the last whole rollout that
ends at or before it: an `EvalCallback` would find them inside the next rollout. The episodes of an
evaluation are a function of the step these weights were trained for, so the same weights have the
same value at every step they are evaluated for.

Reference: Raffin et al. (2021), Stable-Baselines3: Reliable Reinforcement Learning Implementations,
JMLR 22(268).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym

from autorl.core.seeds import evaluation_seeds, integer_seed
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
from autorl.trainers import _streams as streams
from autorl.trainers.agents import AgentTrainer
from autorl.trainers.contract import Change, ExportedModel, FixedValue, ShortRun
from autorl.trainers.environment_state import SPACES
from autorl.trainers.gymnasium_tasks import faults_in_one_line
from autorl.trainers.saved_state import load_parent
from autorl.trainers.sb3 import checkpoint
from autorl.trainers.sb3.algorithms import (
    ALGORITHMS,
    CONTRIB,
    OPTIONS,
    constructor_default,
    constructor_names,
    steps_per_cut,
)
from autorl.trainers.sb3.building import build_model, check_model
from autorl.trainers.sb3.environments import (
    check_vec_env,
    close_all,
    is_game,
    make_environment,
    normaliser,
    raise_if_ended,
    thaw_all,
    vectorise,
)
from autorl.trainers.sb3.evaluation import ACTION_MASKS, evaluate, metrics_in
from autorl.trainers.sb3.export import export_model
from autorl.trainers.sb3.named_classes import check_continues, make_callbacks, start_callbacks
from autorl.trainers.sb3.run_logs import EPISODES, log_folder, make_logger, read_formats
from autorl.trainers.sb3.settings import Settings, check_hyperparameters, fixed_values, optimizers
from autorl.trainers.sb3.shared_policy import check_agents
from autorl.trainers.sb3.suites import suite_of
from autorl.trainers.sb3.wrappers import components
from autorl.trainers.shared import (
    Course,
    after_update,
    check_rollout,
    check_start,
    search_folders,
    train_metric,
)
from autorl.trainers.trained_task import check_agent_fits, faults_of_space, trained_task

_SHORT = {"n_steps": 16, "batch_size": 16, "learning_starts": 1_000, "buffer_size": 10_000}
"""Most of each in a short run; episodes of hindsight replay are to end before it learns."""
_OBSERVATIONS = tuple(kind.__name__ for kind in SPACES)


class SB3Trainer(AgentTrainer):
    """Runs segments of one SB3 algorithm.

    Options (`trainer.kwargs`): any hyperparameter (a default under the configuration),
    `algorithm_class` (a subclass of the algorithm's class as `module:Class`), `policy`
    (MlpPolicy, CnnPolicy, MultiInputPolicy, or `module:Class`; by default what the observations
    need), `policy_kwargs` (features extractor, optimizer and activation as `module:Class`),
    `callbacks` (`module:Class` or `{module:Class: {argument: value}}`, or a list), `logs` (csv,
    tensorboard; see `run_logs`), `deterministic` (evaluate the mode of the policy; default true),
    `device` (`auto`: the GPU that a segment is given, else the CPU), `evaluation_envs` (episodes
    side by side; default 16), `path` (where the user's modules are; default the working folder).
    """

    preload = ("autorl.trainers.sb3.preload",)

    def __init__(self, spec: TrainerSpec) -> None:
        self.name = spec.name.partition("/")[2]
        self.kwargs = spec.kwargs
        self.start = spec.start
        # Its errors too: wrong options are said before anything trains.
        self.algorithm = Settings(self.name, self.kwargs, {}).of
        self.logs = read_formats(spec.kwargs.get("logs"))
        self.folders = search_folders(spec.kwargs)

    @property
    def changes(self) -> Mapping[str, Change]:
        return self.algorithm.changes

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Build the environment once and compare it with the algorithm.

        Its actions, and every name, must be what the algorithm takes.
        """
        check_hyperparameters(self.name, self.algorithm, frozenset(hyperparameters))
        check_vec_env(environment)
        trained_task(environment, dict.fromkeys(sorted(hyperparameters)))
        suite = suite_of(environment.id or "")
        with self._made(environment) as env:
            observations = type(env.observation_space).__name__
            unfit = _unfit_parts(env.observation_space)
            actions = type(env.action_space).__name__
            says_valid = env.has_wrapper_attr(ACTION_MASKS)
        if observations not in _OBSERVATIONS:
            raise InputError(
                f"Stable-Baselines3 takes {', '.join(_OBSERVATIONS)} observations, "
                f"{environment.id} has {observations}",
                key="environment",
            )
        if unfit:
            raise InputError(
                f"Stable-Baselines3 takes no {' and no '.join(unfit)} among the observations of "
                f"{environment.id}; leave it out by a wrapper in environment.wrappers"
                + (f", such as {suite.wrapper}" if suite is not None and suite.wrapper else ""),
                key="environment",
            )
        if actions not in self.algorithm.actions:
            fitting = [
                f"sb3/{name}"
                for name, algorithm in ALGORITHMS.items()
                if actions in algorithm.actions and algorithm.library != CONTRIB
            ]
            advice = f"; try {', '.join(fitting)}" if fitting else ""
            raise InputError(
                f"sb3/{self.name} needs {' or '.join(self.algorithm.actions)} actions, "
                f"{environment.id} has {actions}{advice}",
                key="trainer",
            )

        if self.algorithm.masked and not says_valid:
            raise InputError(
                f"sb3/{self.name} needs an environment with a method `{ACTION_MASKS}` that says "
                f"which actions are valid, {environment.id} has none; a wrapper may add it: "
                "sb3_contrib.common.wrappers:ActionMasker",
                key="environment",
            )

    def check_model(self, environment: EnvironmentSpec, config: Config) -> None:
        """Build the model of a configuration once, and let it act."""
        with self._made(environment) as env:
            spaces = (env.observation_space, env.action_space)
        task = trained_task(environment, config)
        if task != environment:
            with faults_of_space(config), self._made(task) as changed:
                check_agent_fits(env, changed)
        settings = Settings(self.name, self.kwargs, config)
        n_envs = self.n_envs(config, environment)
        if is_game(environment):
            check_agents(environment, env.get_wrapper_attr("agents"), n_envs)
        self.begin_from_start(check_model(settings, spaces, environment, n_envs))

    def begin_from_start(self, model: Any) -> None:
        """Put the policy of the start, if any, into a new model."""
        if self.start is not None:
            normaliser = model.get_vec_normalize_env()
            normalises = normaliser is not None and normaliser.norm_obs
            source = self.starting_model(normalises=normalises)
            checkpoint.begin_from(model, source, self.start)

    def short_run(self, environment: EnvironmentSpec, config: Config) -> ShortRun | None:
        """Describe a run of two halves, on small rollouts and memories."""
        if "algorithm_class" not in self.kwargs:
            return None
        taken = constructor_names(self.algorithm)
        values = {name: constructor_default(self.algorithm, name) for name in taken & _SHORT.keys()}
        values |= {**self.kwargs, **config}
        small = {name: min(values[name], most) for name, most in _SHORT.items() if name in taken}
        rollout = steps_per_cut(
            self.algorithm, {**values, **small}, self.n_envs(config, environment)
        )
        half = (small.get("learning_starts", 0) // rollout + 4) * rollout
        options = FrozenMap({**self.kwargs, "device": "cpu"})  # the GPU is for the segments
        trainer = TrainerSpec(f"sb3/{self.name}", options)
        return ShortRun(trainer, Config({**config, **small}), 2 * half)

    def fixed_values(self) -> tuple[FixedValue, ...]:
        return fixed_values(self.kwargs)

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        with self._made(environment) as env:
            metrics = metrics_in(environment, components(env))
        return (*metrics, *map(train_metric, self.algorithm.losses))

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return the end of the last rollout up to `step`.

        `n_envs` comes from the configuration, trainer or environment.
        """
        rollout = self._rollout(config, environment or EnvironmentSpec())
        return step // rollout * rollout

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        course = Course(segment, report)
        check_start(segment)
        normalize = segment.environment.normalize
        # A gamma the study file gives the normaliser stays, whatever the agent's is.
        own_gamma = isinstance(normalize, Mapping) and "gamma" in normalize
        settings = Settings(
            self.name, self.kwargs, segment.config, normaliser_follows=not own_gamma
        )
        with streams.preserved(), warnings.catch_warnings():
            # Such a size is allowed, and tuned.
            warnings.filterwarnings("ignore", message="You have specified a mini-batch size of")
            run = _Run(self, course, settings)
            try:
                run.begin()
                run.advance()
                return run.finish()
            # The pipe of an environment's process raises these once that has ended.
            except (EOFError, OSError):
                raise_if_ended(run.venv)
                raise
            finally:
                run.close()

    def export_model(
        self, checkpoint: Checkpoint, target: str | Path, *, replace: bool = False
    ) -> ExportedModel:
        """Write the model of a checkpoint as a zip for Stable-Baselines3.

        See `sb3.export`.
        """
        options = {name: value for name, value in self.kwargs.items() if name in OPTIONS}
        return export_model(self.name, options, checkpoint, target, replace=replace)

    @contextmanager
    def _made(self, environment: EnvironmentSpec) -> Iterator[gym.Env[Any, Any]]:
        """Make an environment before a study, and close it."""
        with faults_in_one_line(environment):
            env = make_environment(environment, self.folders)
            yield env
            env.close()

    def n_envs(self, config: Mapping[str, object], environment: EnvironmentSpec) -> int:
        number: Any = config.get("n_envs", self.kwargs.get("n_envs", environment.n_envs))
        return int(number)

    def _rollout(self, config: Mapping[str, object], environment: EnvironmentSpec) -> int:
        return steps_per_cut(
            self.algorithm, {**self.kwargs, **config}, self.n_envs(config, environment)
        )


@dataclass
class _Run:
    """One segment in progress: the model and its environments.

    Facts found out on the way are kept with them.
    """

    trainer: SB3Trainer
    course: Course
    settings: Settings
    venv: Any = None
    model: Any = None
    callback: Any = None
    applied: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rollout: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    iterations: int = 0
    _measured: Mapping[str, float] = FrozenMap()
    _measured_after: int = -1

    @property
    def segment(self) -> Segment:
        return self.course.segment

    def begin(self) -> None:
        """Build everything from the configuration and restore the parent.

        Then streams are set and values read back.
        """
        segment = self.segment
        seed = segment.seed
        n_envs = self.trainer.n_envs(segment.config, segment.environment)
        # 1. what the run is: rollout, random streams, the checkpoint it continues
        self.rollout = steps_per_cut(self.trainer.algorithm, self.settings.values, n_envs)
        length = "n_steps" if self.trainer.algorithm.on_policy else "train_freq"
        check_rollout({length: self.rollout // n_envs, "n_envs": n_envs}, segment)
        keys = () if segment.fork is None else (segment.fork,)
        trainer = self.trainer
        parent = load_parent(segment, f"sb3/{trainer.name}", self.settings.values, trainer.changes)
        # 2. environments before the model: their spaces decide its networks
        task = trained_task(segment.environment, self.settings.values)
        self.venv = vectorise(task, n_envs, self.trainer.folders)
        if task != segment.environment:
            judging = make_environment(segment.environment, self.trainer.folders)
            check_agent_fits(judging, self.venv)
            judging.close()
        same_episodes = parent is not None and self._restore_environments(parent, task)
        algorithm_seed = integer_seed(seed, "algorithm", *keys)
        streams.seed_global(algorithm_seed)
        self.model = self._build()
        if parent:
            self.losses = dict(parent["losses"])
            checkpoint.restore_model(self.model, parent, self.settings.values)
        else:
            trainer.begin_from_start(self.model)
        # 3. episodes: without a `_last_obs`, `_setup_learn` resets the environments
        if parent and same_episodes:
            self.model._last_obs = parent["latest"]["_last_obs"]
        else:
            start = [segment.start] if parent else []
            self.venv.seed(integer_seed(seed, "training", *keys, *start))
            if parent:
                checkpoint.end_episodes(self.model)
        # 4. what `learn` does first; then what that would reset, such as the noise
        self._start_learning()
        if (normaliser := self.model.get_vec_normalize_env()) is not None:
            normaliser.training = True  # see `checkpoint.begin_from`
        if parent:
            checkpoint.restore_latest(self.model, parent, same_episodes=same_episodes)
        # 5. random streams last: all of the above draws from them
        if parent and segment.fork is None:
            checkpoint.restore_streams(self.model, parent)
        else:
            self._reseed(
                algorithm_seed, integer_seed(seed, "training", *keys), forked=same_episodes
            )
        # 6. what took, from the live model
        self.applied = self.settings.read_back(self.model, segment.horizon, segment.environment)
        # 7. callbacks of the user's, which may draw: an uncut run would not draw here
        with streams.preserved():
            start_callbacks(self.callback, self.model)

    def advance(self) -> None:
        """Train as far as whole rollouts fit below `until`.

        It ends where something is not finite.
        """
        course = self.course
        while True:
            following = self.model.num_timesteps + self.rollout
            # Points that the next rollout would pass are measured with the weights of now.
            for point in course.due(following - 1):
                if not course.add(point, self._evaluate(), self._diverged()):
                    return
            if self.segment.until < following:
                course.problem = self._diverged()
                return
            try:
                self._rollout_and_update()
            except ValueError:  # torch refuses a distribution with NaN parameters
                course.problem = self._diverged()
                if course.problem:
                    return
                raise

    def finish(self) -> Outcome:
        with streams.preserved():
            self.callback.on_training_end()
        if self.trainer.logs:
            # Losses of the last update, and the last evaluation.
            self._write_log()
        state = (self.model, self.venv, self.segment, self.settings.values)
        name = f"sb3/{self.trainer.name}"
        return self.course.outcome(
            int(self.model.num_timesteps),
            self.applied,
            lambda: checkpoint.save(*state, name, losses=self.losses),
            notes=self.notes,
        )

    def close(self) -> None:
        if self.model is not None:
            self.model.logger.close()
        if self.venv is not None:
            close_all(self.venv)

    def _restore_environments(self, parent: Mapping[str, Any], task: EnvironmentSpec) -> bool:
        """Go on with the episodes of a checkpoint.

        Returns False, and leaves a note, where that is not possible.
        """
        if trained_task(self.segment.environment, parent["values"]) != task:
            why = "the task changed"
        else:
            why = thaw_all(self.venv, parent["environments"], trust=self.segment.trust)
        if why:
            self.notes += (f"{why}: new episodes at step {self.segment.start}",)
        return not why

    def _build(self) -> Any:
        # Stable-Baselines3's own default where nobody gives one.
        gamma = self.settings.at(self.segment.start, self.segment.horizon).get("gamma", 0.99)
        options = normaliser(self.segment.environment, gamma)
        try:
            model = build_model(self.settings, self.venv, options)
            streams.check_device(model.device, self.settings.device)
        except AssertionError as error:  # SB3 checks its arguments with assertions
            raise InputError(f"sb3/{self.trainer.name}: {error}", key="space") from error
        folder = log_folder(self.segment) if self.trainer.logs else None
        if self.trainer.logs and folder is None:
            self.notes += ("training logs are not kept: there is no folder of a study here",)
        model.set_logger(make_logger(self.trainer.logs, folder))
        return model

    def _start_learning(self) -> None:
        """Do what SB3's `learn` does before its loop.

        Progress is counted to the horizon, and learning rates are set.
        """
        from stable_baselines3.common.utils import update_learning_rate

        model = self.model
        horizon = self.segment.horizon
        callbacks = make_callbacks(self.settings.options.get("callbacks"), self.trainer.folders)
        _, self.callback = model._setup_learn(horizon, callbacks, reset_num_timesteps=False)
        # `_setup_learn` adds the steps so far: progress would be counted to a later end.
        model._total_timesteps = horizon
        model._update_current_progress_remaining(model.num_timesteps, horizon)
        self.settings.set_scheduled(model, horizon)
        for optimizer in optimizers(model):
            update_learning_rate(optimizer, model.lr_schedule(model._current_progress_remaining))
        # A function of step and horizon, which DQN computes only after its next step.
        if hasattr(model, "exploration_schedule") and model.num_timesteps:
            model.exploration_rate = model.exploration_schedule(model._current_progress_remaining)

    def _reseed(self, algorithm_seed: int, training_seed: int, forked: bool) -> None:
        # A donor's episodes go on, but with draws of their own.
        if forked:
            streams.seed_global(algorithm_seed)
            for index in range(self.venv.num_envs):
                self.venv.env_method("reseed", training_seed + index, indices=index)
        self.model.action_space.seed(algorithm_seed)

    def _rollout_and_update(self) -> None:
        model = self.model
        if self.trainer.algorithm.on_policy:
            continued = model.collect_rollouts(
                model.env, self.callback, model.rollout_buffer, n_rollout_steps=model.n_steps
            )
            check_continues(continued, model)
            # As `learn` does between rollout and update.
            model._update_current_progress_remaining(model.num_timesteps, self.segment.horizon)
            if self.trainer.logs:
                self._write_log()
            self.settings.set_scheduled(model, self.segment.horizon)
            model.train()
            self._note_losses()
            return
        rollout = model.collect_rollouts(
            model.env,
            train_freq=model.train_freq,
            action_noise=model.action_noise,
            callback=self.callback,
            learning_starts=model.learning_starts,
            replay_buffer=model.replay_buffer,
            log_interval=EPISODES if self.trainer.logs else None,
        )
        check_continues(rollout.continue_training, model)
        self.settings.set_scheduled(model, self.segment.horizon)
        # -1: as many updates as steps of one environment, as in `OffPolicyAlgorithm.learn`.
        updates = model.gradient_steps if model.gradient_steps >= 0 else rollout.episode_timesteps
        if model.num_timesteps > model.learning_starts and updates > 0:
            model.train(batch_size=model.batch_size, gradient_steps=updates)
            self._note_losses()

    def _note_losses(self) -> None:
        """Take on the losses of the latest update, as Stable-Baselines3 logs them."""
        logged = self.model.logger.name_to_value
        names = [name for name in self.trainer.algorithm.losses if f"train/{name}" in logged]
        self.losses = after_update(self.losses, {name: logged[f"train/{name}"] for name in names})

    def _write_log(self) -> None:
        self.iterations += 1
        if self.trainer.algorithm.on_policy:
            self.model.dump_logs(self.iterations)
        else:
            self.model.dump_logs()

    def _evaluate(self) -> Mapping[str, float]:
        """Evaluate, once for all nominal steps that have the same weights."""
        segment = self.segment
        kwargs = self.trainer.kwargs
        trained = int(self.model.num_timesteps)
        # The same weights: the same episodes, so the same value.
        if self._measured_after == trained:
            return self._measured
        metrics = evaluate(
            self.model,
            segment.environment,
            evaluation_seeds(segment.seed, segment.role, trained, segment.episodes),
            deterministic=bool(kwargs.get("deterministic", True)),
            n_envs=int(kwargs.get("evaluation_envs", 16)),
            folders=self.trainer.folders,
        )
        if self.trainer.logs:
            # By the names of SB3's `EvalCallback`.
            self.model.logger.record("eval/mean_reward", metrics["eval_return"])
            self.model.logger.record("eval/mean_ep_length", metrics["eval_length"])
        self._measured = {**metrics, **self.losses}
        self._measured_after = trained
        return self._measured

    def _diverged(self) -> str:
        import torch

        finite = all(
            bool(torch.isfinite(parameter).all()) for parameter in self.model.policy.parameters()
        )
        return "" if finite else "policy parameters are not finite"


def _unfit_parts(space: gym.Space[Any]) -> list[str]:
    """Name the parts of a dictionary that Stable-Baselines3 has no network for.

    Text, for instance, or a dictionary in it: as `KIND (name)`.
    """
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    return [
        f"{type(part).__name__} ({name})"
        for name, part in parts.items()
        if not isinstance(part, SPACES) or isinstance(part, gym.spaces.Dict)
    ]
