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
from typing import Any, TypeAlias

import numpy as np

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
from autorl.trainers.saved_state import load_parent, save
from autorl.trainers.shared import Course, check_fields, check_names, check_rollout, check_start

KINDS = ("crash", "nan", "hang", "memory", "stop")
RULE = "a fraction, or a mapping with above, below (limits by hyperparameter), fraction, seeds"
_CONDITIONS = ("above", "below", "fraction", "seeds")


def is_rule(value: object) -> bool:
    """Tell whether an option says when runs fail.

    The names of its conditions are checked where it applies.
    """
    if not isinstance(value, Mapping):
        return value is None or is_positive(value)
    limits = all(is_numbers(value.get(side, {})) for side in ("above", "below"))
    seeds = value.get("seeds", ())
    return limits and is_positive(value.get("fraction", 0)) and isinstance(seeds, list | tuple)


def is_positive(value: object) -> bool:
    """Tell whether a value is a finite number of at least 0."""
    return is_number(value, 0.0)


def is_numbers(value: object) -> bool:
    """Tell whether a value is a mapping to finite numbers."""
    return isinstance(value, Mapping) and all(map(is_number, value.values()))


def config_key(config: Mapping[str, object]) -> str:
    """Hash a configuration, for draws that are its own."""
    return hashlib.sha256(json.dumps(plain(config), sort_keys=True).encode()).hexdigest()


def applies(rule: float | Mapping[str, object], kind: str, segment: Segment) -> bool:
    """Tell whether a run fails in this way.

    Args:
        rule: a fraction of configurations, or conditions that must all hold.
        kind: one of `KINDS`.
        segment: of the run.

    Raises:
        InputError: a condition that is none.
    """
    conditions: Mapping[str, Any] = rule if isinstance(rule, Mapping) else {"fraction": rule}
    check_names(conditions, _CONDITIONS, f"condition of {kind}", f"trainer.kwargs.{kind}")
    config = segment.config
    above = conditions.get("above", {}).items()
    below = conditions.get("below", {}).items()
    met = [name in config and config[name] > limit for name, limit in above]
    met += [name in config and config[name] < limit for name, limit in below]
    if "fraction" in conditions:
        # Drawn from the configuration alone: it fails with every seed and after a restart. 2^128 is
        # the range of the digest.
        drawn = digest(0, "noise", kind, config_key(config)) / 2**128
        met.append(drawn < conditions["fraction"])
    if "seeds" in conditions:
        met.append(segment.seed in conditions["seeds"])
    return bool(met) and all(met)


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

    optimum: float | Mapping[str, float] = 0.3
    weights: Mapping[str, float] = FrozenMap()
    bounds: Mapping[str, tuple[float, float]] = FrozenMap()
    log: tuple[str, ...] = ()
    drift: float = 0.0
    height: float = 1.0
    rate: float = 3.0
    noise: float = 0.0
    interaction: float = 0.0
    rollout: int = 1
    seconds: float = 0.0
    crash: float | Mapping[str, Any] | None = None
    nan: float | Mapping[str, Any] | None = None
    hang: float | Mapping[str, Any] | None = None
    memory: float | Mapping[str, Any] | None = None
    stop: float | Mapping[str, Any] | None = None
    fails_at: float = 0.5
    lost_once: str | None = None

    @property
    def changes(self) -> Mapping[str, Change]:
        return AnyChange()

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.synthetic",)

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        if environment.id is not None:
            message = f"synthetic trains in no environment, got {environment.id!r}: leave it out"
            raise InputError(message, key="environment.id")
        if isinstance(self.optimum, Mapping):
            check_names(
                self.optimum, set(hyperparameters), "hyperparameter", "trainer.kwargs.optimum"
            )

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
        lose_worker_once(self.lost_once, segment)
        time.sleep(self.seconds)
        failure = self._failure(segment)
        until = self.align(segment.config, segment.until)
        step = segment.start
        status = Status.DONE
        for point in [*segment.evaluate_at, None]:
            # The end comes last, after all points, for the steps past the last of them.
            target = until if point is None else max(step, self.align(segment.config, point))
            failing = failure is not None and target >= failure[1]
            target = failure[1] if failure is not None and failing else target
            skill += self._skill(segment.config, step, target, segment.horizon)
            step = target
            if failure is not None and failing:
                status = fail(*failure)
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
        numeric = [
            name
            for name, value in config.items()
            if isinstance(value, int | float) and value is not True and value is not False
        ]
        if isinstance(self.optimum, Mapping):
            return {
                name: float(self.optimum[name]) for name in sorted(numeric) if name in self.optimum
            }
        return {name: float(self.optimum) for name in sorted(numeric)}

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
        step = (
            -(-math.ceil(self.fails_at * segment.horizon) // self.rollout) * self.rollout
        )  # its rollout's end
        if not segment.start < step <= self.align(segment.config, segment.until):
            return None
        for kind in KINDS:
            rule = getattr(self, kind)
            if rule is not None and applies(rule, kind, segment):
                return kind, step
        return None


def make(spec: TrainerSpec) -> Synthetic:
    """Build the trainer from its options."""
    check_fields(spec, Synthetic)
    for name, value in spec.kwargs.items():
        fits, allowed = _ALLOWED[name]
        if not fits(value):
            raise InputError(
                f"expected {allowed}, got {plain(value)!r}", key=f"trainer.kwargs.{name}"
            )
    return Synthetic(**spec.kwargs)


def _interval(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(map(is_number, value))
        and value[0] < value[1]
    )


_Allowed: TypeAlias = tuple[Callable[[Any], bool], str]
_AMOUNT: _Allowed = (is_positive, "a number of at least 0")
_RULE: _Allowed = (is_rule, RULE)
_ALLOWED: Mapping[str, _Allowed] = {
    "optimum": (
        lambda value: is_number(value) or is_numbers(value),
        "a number, or one for each hyperparameter named",
    ),
    "weights": (
        lambda value: is_numbers(value) and all(weight >= 0 for weight in value.values()),
        "a number of at least 0 for each hyperparameter named",
    ),
    "bounds": (
        lambda value: isinstance(value, Mapping) and all(map(_interval, value.values())),
        "[lower, upper] for each hyperparameter named",
    ),
    "log": (
        lambda value: (
            isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
        ),
        "a list of hyperparameters",
    ),
    "drift": (is_number, "a number"),
    "height": (is_number, "a number"),
    "rate": (lambda value: is_positive(value) and value > 0, "a number above 0"),
    **dict.fromkeys(("noise", "interaction", "seconds", "fails_at"), _AMOUNT),
    "rollout": (lambda value: is_number(value, 1, whole=True), "a whole number above 0"),
    **dict.fromkeys(KINDS, _RULE),
    "lost_once": (lambda value: value is None or isinstance(value, str), "the path of a file"),
}
