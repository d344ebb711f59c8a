"""Optimizers as a `Searcher` of Ray Tune, trainers as a `Trainable`.

    from ray import tune
    from autorl.integrations.ray_tune import AutorlSearcher, trainable

    tuner = tune.Tuner(
        trainable("population/ppo", environment="CartPole-v1", steps=100_000),
        tune_config=tune.TuneConfig(
            search_alg=AutorlSearcher("population/ppo", metric="eval_return", mode="max"),
            num_samples=64,
        ),
    )
    results = tuner.fit()

Ray decides here which trials run when, what is stopped and what is tried again: the same file gives
the same table only under `autorl tune`.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from autorl import optimizers, trainers
from autorl.core.plain_values import plain
from autorl.core.seeds import generator, integer_seed
from autorl.core.types import (
    Checkpoint,
    Config,
    Done,
    Event,
    Failed,
    FrozenMap,
    InputError,
    ProposalId,
    Proposed,
    Scored,
    Segment,
    SegmentId,
    Status,
    TrainerSpec,
    Wait,
)
from autorl.executors.worker import Load, from_folder, run_segment
from autorl.optimizers.registry import DEFAULT
from autorl.space import Space, load_space, read_space
from autorl.statistics.evaluation import Worst
from autorl.store.codec import from_json, to_json
from autorl.study.spec.sections import EnvironmentSection

try:
    from ray.tune import Trainable
    from ray.tune.search import Searcher

    from autorl.integrations.ray_space import ray_config, space_of
except ImportError as error:
    raise InputError(f"Ray Tune is not installed ({error}): pip install 'autorl[ray]'") from error

_FORMAT = "autorl ray searcher 1"
# The length of a trial for the optimizer: Ray's scheduler decides how far it really goes.
_UNTIL = 1
_PLAIN_STATE = [
    "metric",
    "mode",
    "name",
    "options",
    "nested",
    "points",
    "budget",
    "seed",
    "open",
    "latest",
]


class AutorlSearcher(Searcher):  # type: ignore[misc]  # no types of Ray
    """Proposes configurations by an optimizer of this package.

    Its state is what the optimizer has observed, written as JSON. A trial that a scheduler of Ray
    stops counts with its last value, one that failed with the worst value so far.

    Args:
        space: a `Space`, an inline definition or the name of a search space; None: the domains in
            the `param_space` of the `Tuner`.
        optimizer: its name, or a mapping with `name` and options. It makes proposals for whole
            runs: what cuts runs or continues them is a scheduler in Ray Tune.
        metric: of a result, `/` between the names of nested ones; several for several objectives.
        mode: `max` or `min`, one for each metric.
        points_to_evaluate: configurations proposed first, after the default of the space.
        budget: trials the optimizer may plan for; None: `num_samples` where Ray tells it.
        seed: of what is proposed.

    Raises:
        InputError: one of these is wrong.
    """

    CKPT_FILE_TMPL = "searcher-state-{}.json"

    _metric: str | Sequence[str] | None
    _mode: str | Sequence[str] | None
    _events: list[Event]
    _open: dict[str, ProposalId]
    _latest: dict[str, tuple[float, ...]]
    _optimizer: optimizers.BaseOptimizer[Any] | None

    def __init__(
        self,
        space: Space | Mapping[str, object] | str | None = None,
        optimizer: str | Mapping[str, object] = DEFAULT,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        *,
        points_to_evaluate: Sequence[Mapping[str, object]] = (),
        budget: float | None = None,
        seed: int = 0,
    ) -> None:
        _check_objectives(metric, mode)
        super().__init__(metric=metric, mode=mode)
        settings = {"name": optimizer} if isinstance(optimizer, str) else dict(optimizer)
        self._name = str(settings.pop("name", DEFAULT))
        self._options = settings
        _check_optimizer(self._name, settings)
        self._space = space if space is None or isinstance(space, Space) else load_space(space)
        self._nested = False
        self._points = [dict(point) for point in points_to_evaluate]
        self._budget = budget
        self._seed = seed
        self._forget()
        if self._space is not None and metric is not None:
            self._built()  # so that what is wrong is said here

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Take on what the `Tuner` was given.

        False where the space is known already.
        """
        _check_objectives(metric, mode)
        self._metric = self._metric if metric is None else metric
        self._mode = self._mode if mode is None else mode
        samples = spec.get("num_samples", 0)
        if self._budget is None and samples > 0 and not self._events:
            self._budget = float(samples)
        self._optimizer = None
        if self._space is not None:
            return False
        self._space = space_of(config)
        self._nested = True
        return self._space is not None

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration.

        None: an outcome must come first. `FINISHED`: the optimizer has nothing left to propose.
        """
        optimizer = self._built()
        answer = optimizer.ask(generator(self._seed, "ask", self._proposed))
        if isinstance(answer, Wait):
            return None
        if isinstance(answer, Done):
            return str(self.FINISHED)
        number = self._proposed
        self._observe(Proposed(number, answer))
        self._open[trial_id] = number
        return ray_config(answer.config, nested=self._nested)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Remember the latest score of a trial.

        It counts if the last result has none.
        """
        values = self._values(result)
        if trial_id in self._open and values and all(map(math.isfinite, values)):
            self._latest[trial_id] = values

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the optimizer how a trial ended.

        A trial that is not open is ignored.
        """
        number = self._open.pop(trial_id, None)
        latest = self._latest.pop(trial_id, ())
        if number is None:
            return
        values = self._values(result or {}) or latest
        kind = Status.CRASH
        if error:
            message = "the trial ended with an error"
        elif not values:
            message = f"no result has {self._metric}"
        elif not all(map(math.isfinite, values)):
            kind = Status.DIVERGED
            message = f"{self._metric} = {values}"
        else:
            spread = (0.0,) * len(values)
            self._observe(Scored(number, values, spread, reached=_UNTIL, mean=values))
            return
        self._observe(Failed(number, kind, self._worst.at(_UNTIL), message))

    def save(self, checkpoint_path: str) -> None:
        """Write the state as one JSON document."""
        Path(checkpoint_path).write_text(json.dumps(self.__getstate__()), encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """Take on the state that `save` wrote, in place of this one.

        Raises:
            InputError: it is no such file.
        """
        try:
            state = json.loads(Path(checkpoint_path).read_text(encoding="utf-8"))
        except ValueError as error:  # no text, or no JSON
            raise InputError(f"is not JSON: {error}", file=checkpoint_path) from None
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise InputError(f"expected the format {_FORMAT!r}", file=checkpoint_path)
        self.__setstate__(state)

    # Ray pickles a searcher with its Tuner: the same plain data, never an optimizer's insides.
    def __getstate__(self) -> dict[str, Any]:
        state = {name: plain(getattr(self, f"_{name}")) for name in _PLAIN_STATE}
        return state | {
            "format": _FORMAT,
            "space": None if self._space is None else self._space.to_dict(),
            "events": [to_json(event) for event in self._events],
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._forget()
        for name in _PLAIN_STATE:
            setattr(self, f"_{name}", state[name])
        self._latest = {trial: tuple(values) for trial, values in state["latest"].items()}
        self._space = None if state["space"] is None else read_space(state["space"])
        for fields in state["events"]:
            self._note(from_json(fields))

    def _forget(self) -> None:
        """Begin without any event."""
        self._events = []
        self._proposed = 0
        self._worst = Worst()
        self._open = {}
        self._latest = {}
        self._optimizer = None

    def _built(self) -> optimizers.BaseOptimizer[Any]:
        """Return the optimizer, which has observed every event."""
        if self._optimizer is not None:
            return self._optimizer
        if self._space is None:
            raise InputError(
                "expected a search space here or domains in the param_space", key="space"
            )
        if self._metric is None or self._mode is None:
            # Ray tells a searcher those of the `TuneConfig` only where there is a param_space.
            raise InputError("expected the metric and its mode, max or min", key="metric")
        self._optimizer = optimizers.make(
            self._name,
            self._space,
            horizon=_UNTIL,
            budget=math.inf if self._budget is None else self._budget,
            n_objectives=len(_listed(self._metric)),
            initial=self._points,
            **self._options,
        )
        for event in self._events:
            self._optimizer.observe(event)
        return self._optimizer

    def _observe(self, event: Event) -> None:
        self._built().observe(event)
        self._note(event)

    def _note(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, Proposed):
            self._proposed = event.id + 1
        elif isinstance(event, Scored):
            self._worst.observe(event)

    def _values(self, result: Mapping[str, Any]) -> tuple[float, ...]:
        """Return a result's values, or nothing if a metric is missing.

        Larger is better.
        """
        names = _listed(self._metric)
        if not all(name in result for name in names):
            return ()
        signs = [1.0 if mode == "max" else -1.0 for mode in _listed(self._mode)]
        return tuple(sign * float(result[name]) for sign, name in zip(signs, names, strict=True))


def _listed(names: str | Sequence[str] | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)


def _check_objectives(metric: str | Sequence[str] | None, mode: str | Sequence[str] | None) -> None:
    modes = _listed(mode)
    wrong = [name for name in modes if name not in ("max", "min")]
    if wrong:
        raise InputError(f"expected max or min, got {wrong[0]!r}", key="mode")
    if metric is not None and mode is not None and len(modes) != len(_listed(metric)):
        raise InputError("expected one mode for each metric", key="mode")


def _check_optimizer(name: str, options: Mapping[str, object]) -> None:
    """Raise `InputError` for an optimizer that is unknown, or cuts runs."""
    if "stop" in options:
        message = "not here: what stops trials early is a scheduler in Ray Tune"
        raise InputError(message, key="optimizer.stop")
    if not _proposes_whole_runs(name):
        allowed = [able for able in optimizers.names() if _proposes_whole_runs(able)]
        raise InputError(
            f"{name!r} cuts or continues runs, which is a scheduler's work in Ray Tune; allowed: "
            f"{', '.join(allowed)}",
            key="optimizer.name",
        )


def _proposes_whole_runs(name: str) -> bool:
    cls = optimizers.find(name)
    return not cls.partial and cls.search_kind in ("search", "design")


class AutorlTrainable(Trainable):  # type: ignore[misc]  # no types of Ray
    """Trains a segment at each iteration of Ray.

    `trainable` makes a class of it for a trainer. A result holds the trainer's metrics,
    `timesteps_total` and `done`. Ray adds `training_iteration`. The state between iterations is a
    checkpoint, so every iteration writes one. A trial restored from another trial's checkpoint, as
    population-based training does, goes on with other random streams, like an exploit of ours.

    Attributes:
        full_run: of which all trials train segments.
        interval: steps of one training iteration of Ray.
        modules: where modules of the user's are looked for.
    """

    full_run: ClassVar[Segment]
    interval: ClassVar[int]
    modules: ClassVar[str]
    _parent: Checkpoint | None
    _fork: int | None

    def setup(self, config: dict[str, Any]) -> None:
        self._work = Path(tempfile.mkdtemp(prefix="autorl-"))
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    def step(self) -> dict[str, Any]:
        """Train to the next cut.

        Raises:
            RuntimeError: the training failed; the message begins with the kind of failure.
        """
        outcome = run_segment(self._load, self._segment(), lambda report: None)
        if outcome.status.failed:
            raise RuntimeError(f"{outcome.status}: {outcome.message or outcome.damage}")
        if self._parent is not None:
            shutil.rmtree(self._parent.path, ignore_errors=True)
        self._parent = outcome.checkpoint
        self._reached = outcome.reached
        self._fork = None
        metrics = dict(outcome.reports[-1].metrics) if outcome.reports else {}
        over = self._until >= self.full_run.horizon or outcome.status is Status.STOPPED
        return {**metrics, "timesteps_total": outcome.reached, "done": over}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the training's state to a folder of Ray's."""
        state: dict[str, Any] = {
            "trial": self.trial_id,
            "reached": self._reached,
            "until": self._until,
            "segment": None,
        }
        if self._parent is not None:
            state |= {"segment": self._parent.segment, "files": plain(self._parent.files)}
            shutil.copytree(self._parent.path, Path(checkpoint_dir) / "state")
        (Path(checkpoint_dir) / "autorl.json").write_text(json.dumps(state), encoding="utf-8")

    def load_checkpoint(self, checkpoint: str) -> None:
        """Go on from what `save_checkpoint` wrote, here or in another trial."""
        state = json.loads((Path(checkpoint) / "autorl.json").read_text(encoding="utf-8"))
        self._reached = state["reached"]
        self._until = state["until"]
        self._fork = None
        self._parent = None
        if state["segment"] is None:
            return
        if state["trial"] != self.trial_id:
            self._fork = integer_seed(self._seed, "training", self.trial_id, self._until)
        folder = self._new_folder()
        shutil.copytree(Path(checkpoint) / "state", folder)  # theirs is gone when this returns
        segment = SegmentId.parse(state["segment"])
        self._parent = Checkpoint(segment, str(folder), FrozenMap(state["files"]))

    def _begin(self, config: Mapping[str, Any]) -> None:
        """Start from step 0 with a configuration.

        Its key `seed` is the seed of the run.
        """
        values = dict(config)
        self._seed = int(values.pop("seed", self.full_run.seed))
        self._config = Config(values)
        self._load(self.full_run.trainer).check(self.full_run.environment, set(values))
        self._parent = None
        self._fork = None
        self._reached = 0
        self._until = 0
        self._folders = 0
        for leftover in self._work.iterdir():
            shutil.rmtree(leftover, ignore_errors=True)

    @property
    def _load(self) -> Load:
        return functools.partial(from_folder, trainers.load, self.modules)

    def _segment(self) -> Segment:
        self._until = self._next_cut()
        folder = self._new_folder()
        return replace(
            self.full_run,
            id=SegmentId(0, self._seed, self._until),
            config=self._config,
            seed=self._seed,
            parent=self._parent,
            start=self._reached,
            until=self._until,
            evaluate_at=(self._until,),
            fork=self._fork,
            folder=str(folder),
            scratch=f"{folder}-scratch",
        )

    def _next_cut(self) -> int:
        """Return the nominal step where the next iteration ends."""
        full_run = self.full_run
        trainer = self._load(full_run.trainer)
        until: int = self._until if full_run.save else full_run.horizon
        while until < full_run.horizon:
            until = min(full_run.horizon, until + self.interval)
            if trainer.align(self._config, until, full_run.environment) > self._reached:
                break
        return until

    def _new_folder(self) -> Path:
        self._folders += 1
        return self._work / f"checkpoint-{self._folders}"


def trainable(
    trainer: str,
    *,
    steps: int,
    environment: str | Mapping[str, object] | None = None,
    evaluations: int = 10,
    episodes: int = 32,
    seed: int = 0,
    kwargs: Mapping[str, object] | None = None,
    folder: str | Path = ".",
    trust: bool = False,
) -> type[AutorlTrainable]:
    """Make the class by which Ray Tune trains with our trainer.

    Args:
        trainer: its name, as in a study file.
        steps: of a full run. A trial ends there.
        environment: an id, or the section `environment` of a study file.
        evaluations: training iterations of a full run, each with an evaluation at its end.
        episodes: of each evaluation.
        seed: of a run whose configuration has no `seed`.
        kwargs: the trainer's own options.
        folder: where modules of your own lie.
        trust: open pickles in checkpoints that another installation wrote, which run anything.

    Raises:
        InputError: the trainer or an option of it is unknown. The first configuration shows what it
            cannot train.
    """
    place = str(Path(folder).resolve())
    where = {"path": place} if trainers.info(trainer, place).of_user else {}
    spec = TrainerSpec(trainer, FrozenMap({**where, **(kwargs or {})}))
    named = {"id": environment} if isinstance(environment, str) else environment
    section = EnvironmentSection.model_validate(named or {})
    loaded = from_folder(trainers.load, place, spec)
    for name, count in {"steps": steps, "evaluations": evaluations, "episodes": episodes}.items():
        if count < 1:
            raise InputError(f"expected a number of 1 or more, got {count}", key=name)
    full_run = Segment(
        id=SegmentId(0, seed),
        trainer=spec,
        environment=section.resolve(),
        config=Config(),
        seed=seed,
        role="tuning",
        until=steps,
        horizon=steps,
        episodes=episodes,
        save=loaded.resumable,
        trust=trust,
    )
    name = "Autorl_" + "".join(letter if letter.isalnum() else "_" for letter in trainer)
    attributes = {
        "full_run": full_run,
        "interval": math.ceil(steps / evaluations),
        "modules": place,
    }
    return type(name, (AutorlTrainable,), attributes)
