"""Helpers of several trainers.

Module look-up, costs, and the rules of a continued segment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from autorl.core.plain_text import counted, listed, one_of
from autorl.core.types import (
    Checkpoint,
    Config,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Segment,
    Status,
)
from autorl.trainers.contract import Change

ENVIRONMENT = "environment"
"""What hyperparameters that change the task are parts of (`trained_task`)."""


class Diverged(BaseException):
    """Leaves a user's training at the first metric that is not finite.

    No `except Exception` may swallow it.
    """


def streams_kept() -> AbstractContextManager[None]:
    """Keep the global random streams as they are, those of torch too."""
    from autorl.trainers._streams import preserved  # with torch, which takes a second

    return preserved()


def base_name(name: str) -> str:
    """Return what a name is a part of, or the name itself.

    It is `learning_rate` for `learning_rate.end`, `environment` for `environment.kwargs.gravity`.
    """
    if name.startswith(f"{ENVIRONMENT}."):
        return ENVIRONMENT
    for suffix in (".shape", ".end"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def schedule_parts(names: Iterable[str]) -> list[str]:
    """Return `x.shape` and `x.end` of every hyperparameter x."""
    return [f"{name}{part}" for name in names for part in (".shape", ".end")]


def check_continuation(
    parent: Mapping[str, object], config: Config, changes: Mapping[str, Change]
) -> None:
    """Check what a continued segment changes.

    Raises:
        InputError: `config` differs from its parent's in a hyperparameter that cannot change in
            training.
    """
    for name in sorted({*parent, *config}):
        # Frozen on both sides: a list that was read from JSON equals the tuple of a configuration.
        # A value of None is not the same as none.
        unchanged = FrozenMap(x=parent.get(name)) == FrozenMap(x=config.get(name)) and (
            name in parent
        ) == (name in config)
        if not unchanged and base_name(name) not in changes:
            raise InputError(
                f"cannot change during training (from {parent.get(name)!r} to "
                f"{config.get(name)!r}); it is fixed "
                "when the run starts",
                key=name,
            )


def check_start(segment: Segment, resumable: bool = True) -> None:
    """Check that this trainer can start where the segment asks.

    Raises:
        InputError: the segment starts past 0 without a checkpoint.
    """
    if segment.parent is not None and not resumable:
        raise InputError(
            f"trainer {segment.trainer.name!r} cannot continue from a checkpoint as configured; "
            "train from step 0"
        )
    if segment.parent is None and segment.start:
        raise InputError(
            f"segment {segment.id!r} starts at step {segment.start} without a checkpoint"
        )


def check_rollout(factors: Mapping[str, int], segment: Segment) -> None:
    """Check that a rollout is no longer than a whole run.

    Raises:
        InputError: it is longer, so nothing would be trained.

    Args:
        factors: names and values whose product is the length of a rollout in environment steps.
        segment: the segment to be trained.
    """
    length = math.prod(factors.values())
    if length > segment.horizon:
        product = " x ".join(f"{name} {value:,}" for name, value in factors.items())
        raise InputError(
            f"a rollout, {product} = {length:,} steps, is longer than a run, "
            f"{counted(segment.horizon, 'step', form=',')}: it would never "
            "train; give a run more steps (fidelity.steps) or a rollout fewer"
        )


class Clock:
    """Wall-clock seconds since it was made, for the cost of a segment."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def cost(self, environment_steps: int) -> dict[str, float]:
        return {
            "environment_steps": environment_steps,
            # Monotonic: setting the clock of the machine changes no cost.
            "wall_seconds": time.perf_counter() - self._began,
        }


def not_finite(report: Report) -> str:
    """Name the metrics of `report` that are NaN or infinite.

    Names and values; empty if all are finite.
    """
    return listed(
        [f"{name} = {value}" for name, value in report.metrics.items() if not math.isfinite(value)]
    )


def train_metric(name: str) -> str:
    """Return the name that a measure of the updates has in evaluations."""
    return f"train_{name}"


def after_update(metrics: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of training after an update.

    One that it did not measure stays. One that is not finite has no value from then on: explained
    variance, for instance, where all returns are the same.
    """
    latest = {train_metric(name): float(value) for name, value in measured.items()}
    return {name: value for name, value in {**metrics, **latest}.items() if math.isfinite(value)}


class Course:
    """The points of a segment while it trains, and how it ends.

    Attributes:
        reports: the evaluations so far, all finite, in step order.
        updates: metrics of training at steps that are not evaluated.
        problem: what is not finite, in words; empty while all is well.
    """

    def __init__(self, segment: Segment, report: Callable[[Report], None]) -> None:
        self.segment = segment
        self.reports: list[Report] = []
        self.updates: list[Report] = []
        self.problem = ""
        self._report = report
        self._pending = list(segment.evaluate_at)
        self._told = 0  # updates that were reported
        self._clock = Clock()

    def due(self, reached: float, align: Callable[[int], int] = int) -> list[int]:
        """Return the nominal steps to evaluate at the step reached, each once.

        Args:
            reached: by training.
            align: the step training reaches for a nominal one.
        """
        # Training may pass several; they are in order, so those due are the first.
        steps = [step for step in self._pending if align(step) <= reached]
        self._pending = self._pending[len(steps) :]
        return steps

    def add(self, step: int, metrics: Mapping[str, float], problem: str = "") -> bool:
        """Report an evaluation, and say whether training may go on.

        It ends, and nothing is reported, where a metric is not finite, or with a `problem`.
        """
        point = Report(self.segment.id, step, metrics)
        self.problem = not_finite(point) or problem
        if not self.problem:
            self.reports.append(point)
            self._report(point)
        return not self.problem

    def tell_updates(self) -> None:
        """Report updates, but for those that an evaluation comes before."""
        while self._told < len(self.updates):
            point = self.updates[self._told]
            if self._pending and self._pending[0] < point.step:
                return
            self._report(point)
            self._told += 1

    def outcome(
        self,
        reached: int,
        applied: Mapping[str, Any],
        save: Callable[[], Checkpoint | None],
        *,
        status: Status = Status.DONE,
        notes: Iterable[str] = (),
        message: str = "",
        cost: Mapping[str, float] = FrozenMap(),
    ) -> Outcome:
        """Return how the segment ended at the step reached.

        Args:
            reached: by training.
            applied: hyperparameters, as they took.
            save: writes the checkpoint, where one is wanted of a training that went well.
            status: unless something was not finite.
            notes: for readers of the outcome.
            message: unless something was not finite.
            cost: over what the clock says, of training alone.
        """
        segment = self.segment
        costs = {**self._clock.cost(reached - segment.start), **cost}
        if self.problem:
            status = Status.DIVERGED
            message = f"{self.problem} at step {reached}"
        return Outcome(
            segment=segment.id,
            status=status,
            reached=reached,
            reports=tuple(self.reports),
            cost=costs,
            checkpoint=save() if segment.save and not status.failed else None,
            applied=dict(applied),
            notes=tuple(notes),
            message=message,
            updates=tuple(self.updates),
        )


def check_names(given: Iterable[str], allowed: Collection[str], what: str, key: str) -> None:
    """Raise `InputError` for the first of `given` that is not in `allowed`."""
    for name in given:
        if name not in allowed:
            hint = one_of(name, sorted(allowed))
            raise InputError(f"unknown {what} {name!r}{hint}", key=key)


def search_folders(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the option `path`: where a user's modules are looked for.

    It is a folder or several; empty = working folder.
    """
    path = kwargs.get("path", ())
    return (path,) if isinstance(path, str) else tuple(path)
