"""Analytic learning curves with a known optimum.

The trainer of tests, CI and dry measurements. The skill of a run is the exact sum over its steps of
the quality of the configuration it had there. A chain of segments therefore equals one long segment
to the last bit, a change of configuration matters from the step it is made at, and a moving optimum
rewards a schedule. With u the hyperparameters in the unit cube, u* the optimum, w the weights and h
the horizon:

    quality(config, t) = 1 - sum_i w_i (u_i - u*_i(t))^2 / sum_i w_i
    u*_i(t) = u*_i + drift t / h
    score(t) = height * (mean quality so far) * saturation(t) + noise
    saturation(t) = (1 - exp(-rate t / h)) / (1 - exp(-rate))
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, ConfigDict

from autorl.core.numbers import is_number
from autorl.core.plain_values import plain
from autorl.core.seeds import digest, generator
from autorl.core.types import (
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Segment,
    Status,
    TrainerSpec,
)
from autorl.trainers.contract import AnyChange, Change, Trainer
from autorl.trainers.options import Amount, Count, Number, Positive, read_options
from autorl.trainers.saved_state import load, load_parent, save
from autorl.trainers.shared import Course, check_names, check_rollout, check_start

KINDS = ("crash", "nan", "hang", "memory", "stop")


def config_key(config: Mapping[str, object]) -> str:
    """Hash a configuration, for draws that are its own."""
    return hashlib.sha256(json.dumps(plain(config), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Conditions:
    """Says which runs fail: those that meet all of these.

    Attributes:
        above, below: limits by hyperparameter.
        fraction: of configurations.
        seeds: only these.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    above: Mapping[str, Number] = FrozenMap()
    below: Mapping[str, Number] = FrozenMap()
    fraction: Amount | None = None
    seeds: tuple[int, ...] | None = None

    def hold(self, kind: str, segment: Segment) -> bool:
        """Tell whether a run fails in a way of `KINDS`."""
        config = segment.config
        met = [name in config and config[name] > limit for name, limit in self.above.items()]
        met += [name in config and config[name] < limit for name, limit in self.below.items()]
        if self.fraction is not None:
            # Drawn from the configuration alone: it fails with every seed and after a restart.
            # 2^128 is the range of the digest.
            met.append(digest(0, "noise", kind, config_key(config)) / 2**128 < self.fraction)
        if self.seeds is not None:
            met.append(segment.seed in self.seeds)
        return bool(met) and all(met)


def _ascending(interval: tuple[float, float]) -> tuple[float, float]:
    if interval[0] >= interval[1]:
        raise ValueError
    return interval


Interval = Annotated[tuple[Number, Number], AfterValidator(_ascending)]
Rule = Annotated[
    Amount | Conditions | None,
    "a fraction, or a mapping with above, below (limits by hyperparameter), fraction, seeds",
]


def fail(kind: str, step: int) -> Status:
    """Make a failure happen.

    A run that diverges or stops itself is reported. The other kinds never return.
    """
    if kind == "crash":
        raise RuntimeError(f"synthetic crash at step {step}")
    if kind == "hang":
        while True:
            time.sleep(60)
    if kind == "memory":
        hoard: list[np.ndarray[Any, Any]] = []
        while True:
            hoard.append(np.ones(2**21))  # 16 MB at a time, touched, until a limit is met
    return Status.DIVERGED if kind == "nan" else Status.STOPPED


def lose_worker_once(marker: str | None, segment: Segment) -> None:
    """Kill this process unless the marker file is there, and write it."""
    if marker is not None and not Path(marker).exists():
        Path(marker).write_text(segment.id)
        # As the out-of-memory killer ends a worker: no exception, no clean-up.
        os.kill(os.getpid(), signal.SIGKILL)


# Quality is summed in integers of this size: exact in any order, so cuts change nothing.
_UNIT = 2**32


@dataclass(frozen=True)
class Synthetic(Trainer):
    """Computes learning curves instead of training.

    Its fields are the options of `trainer: {name: synthetic, kwargs: {...}}`.

    Attributes:
        optimum: best value of each hyperparameter named; one number is the best of every numeric
            hyperparameter.
        weights: importance of each hyperparameter (default 1).
        bounds: (lower, upper) of each hyperparameter, to bring it to the unit interval (default 0
            to 1).
        log: hyperparameters on a logarithmic scale.
        drift: how far the optimum moves (in the unit interval) from the first step to the horizon.
        height: score of the optimum at the horizon, without noise.
        rate: how fast the curve saturates.
        noise: standard deviation over seeds, the same for every configuration.
        interaction: standard deviation over (seed, configuration) pairs.
        rollout: steps between two points at which training can be cut.
        seconds: how long each segment sleeps.
        crash, nan, hang, memory, stop: when a run fails (or stops itself): a fraction of
            configurations, or a mapping with `above` and `below` (limits by hyperparameter),
            `fraction`, `seeds` (only these).
        fails_at: when in the run that happens, as a fraction of the horizon.
        lost_once: path of a marker file; the first segment that does not find it writes it and
            kills its own process.
    """

    preload = ("autorl.trainers.synthetic",)

    optimum: Annotated[
        Number | Mapping[str, Number], "a number, or one for each hyperparameter named"
    ] = 0.3
    weights: Annotated[
        Mapping[str, Amount], "a number of at least 0 for each hyperparameter named"
    ] = FrozenMap()
    bounds: Annotated[Mapping[str, Interval], "[lower, upper] for each hyperparameter named"] = (
        FrozenMap()
    )
    log: Annotated[tuple[str, ...], "a list of hyperparameters"] = ()
    drift: Number = 0.0
    height: Number = 1.0
    rate: Positive = 3.0
    noise: Amount = 0.0
    interaction: Amount = 0.0
    rollout: Count = 1
    seconds: Amount = 0.0
    crash: Rule = None
    nan: Rule = None
    hang: Rule = None
    memory: Rule = None
    stop: Rule = None
    fails_at: Amount = 0.5
    lost_once: Annotated[str | None, "the path of a file"] = None

    @property
    def changes(self) -> Mapping[str, Change]:
        return AnyChange()

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        if environment.id is not None:
            message = f"synthetic trains in no environment, got {environment.id!r}: leave it out"
            raise InputError(message, key="environment.id")
        if isinstance(self.optimum, Mapping):
            check_names(
                self.optimum, set(hyperparameters), "hyperparameter", "trainer.kwargs.optimum"
            )

    def check_mean(self, hyperparameters: Collection[str]) -> None:
        """Take every mean: an agent is one number."""

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        return ("eval_return", "eval_return_std", "eval_length")

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        return step // self.rollout * self.rollout

    def score(self, config: Mapping[str, object], seed: int, step: int, horizon: int) -> float:
        """Compute an unchanged run's score at `step`, in closed form."""
        return self._score(config, seed, step, horizon, self._skill(config, 0, step, horizon))

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        course = Course(segment, report)
        check_start(segment)
        check_rollout({"rollout": self.rollout}, segment)
        saved = load_parent(segment, "synthetic", segment.config, self.changes)
        skill = int(saved["skill"]) if saved is not None else 0
        if segment.second is not None:
            skill = (skill + int(load(segment.second, "synthetic")["skill"])) // 2
        lose_worker_once(self.lost_once, segment)
        time.sleep(self.seconds)
        kind, fails_at = self._failure(segment) or ("", math.inf)
        until = self.align(segment.config, segment.until)
        step = segment.start
        status = Status.DONE
        for point in [*segment.evaluate_at, None]:
            # The end comes last, after all points, for the steps past the last of them.
            target = until if point is None else max(step, self.align(segment.config, point))
            reached = int(min(target, fails_at))
            skill += self._skill(segment.config, step, reached, segment.horizon)
            step = reached
            if target >= fails_at:
                status = fail(kind, step)
                break
            if point is not None:
                score = self._score(segment.config, segment.seed, step, segment.horizon, skill)
                metrics = {"eval_return": score, "eval_return_std": self.noise, "eval_length": 1.0}
                course.add(point, metrics)
        state = {"values": plain(segment.config), "skill": skill, "seed": segment.seed}
        return course.outcome(
            step,
            segment.config,
            lambda: save(segment, "synthetic", step, state),
            status=status,
            message="score is not finite" if status is Status.DIVERGED else "",
        )

    def _skill(self, config: Mapping[str, Any], start: int, until: int, horizon: int) -> int:
        """Sum of `quality * 2^32`, rounded step by step, over steps start+1..until."""
        steps = until - start
        # If the optimum stands still, every step has the quality of the first.
        computed = steps if self.drift else min(steps, 1)
        progress = np.arange(start + 1, start + 1 + computed, dtype=np.float64) / horizon
        distance = np.zeros_like(progress)
        total = 0.0
        for name, best in self._targets(config).items():
            weight = float(self.weights.get(name, 1.0))
            total += weight
            target = self._to_unit(name, best) + self.drift * progress
            # Equation of the module docstring: w_i (u_i - u*_i(t))^2.
            distance += weight * (self._to_unit(name, float(config[name])) - target) ** 2
        quality = 1.0 - distance / total if total else np.ones_like(progress)
        units = np.rint(quality * _UNIT).astype(np.int64)
        return int(np.sum(units)) if self.drift else int(units.sum()) * steps

    def _targets(self, config: Mapping[str, object]) -> dict[str, float]:
        """Optimum of the active numeric hyperparameters of `config`."""
        numeric = sorted(name for name, value in config.items() if is_number(value))
        if isinstance(self.optimum, Mapping):
            return {name: self.optimum[name] for name in numeric if name in self.optimum}
        return dict.fromkeys(numeric, self.optimum)

    def _to_unit(self, name: str, value: float) -> float:
        lower, upper = self.bounds.get(name, (0.0, 1.0))
        if name in self.log:
            return (math.log(value) - math.log(lower)) / (math.log(upper) - math.log(lower))
        return (value - lower) / (upper - lower)

    def _score(
        self, config: Mapping[str, object], seed: int, step: int, horizon: int, skill: int
    ) -> float:
        # `expm1` keeps its digits near 0, where 1 - exp(-x) loses them.
        saturation = math.expm1(-self.rate * step / horizon) / math.expm1(-self.rate)
        # The same for every configuration, so that seeds can be compared in pairs.
        noise = self.noise * generator(seed, "noise").standard_normal()
        # And one that is not: of this configuration with this seed.
        mixed = self.interaction * generator(seed, "noise", config_key(config)).standard_normal()
        return float(self.height * skill / (_UNIT * max(step, 1)) * saturation + noise + mixed)

    def _failure(self, segment: Segment) -> tuple[str, int] | None:
        """Find the kind and step of this segment's failure, if any."""
        # At the end of its rollout.
        step = -(-math.ceil(self.fails_at * segment.horizon) // self.rollout) * self.rollout
        if not segment.start < step <= self.align(segment.config, segment.until):
            return None
        for kind in KINDS:
            rule = getattr(self, kind)
            conditions = rule if isinstance(rule, Conditions) else Conditions(fraction=rule)
            if conditions.hold(kind, segment):
                return kind, step
        return None


def make(spec: TrainerSpec) -> Synthetic:
    """Build the trainer from its options."""
    return read_options(Synthetic, spec.kwargs)
