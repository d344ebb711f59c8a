"""Helpers of several trainers.

Module look-up, costs, and the rules of a continued segment.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autorl.core.plain_text import counted, listed
from autorl.core.types import Config, FrozenMap, InputError, Report, Segment
from autorl.trainers.contract import Change


class Diverged(BaseException):
    """Leaves a user's training at the first metric that is not finite.

    No `except Exception` may swallow it.
    """


NORMALISER_ENDING = ".vecnormalize.pkl"
NORMALISER_NOTE = (
    "`VecNormalize.load` reads the statistics: the agent saw normalised observations or rewards"
)
ZIP_IS_A_PROGRAM = "such a file is a program: whoever loads it runs what it says (docs/security.md)"
"""A note of every exported zip: Stable-Baselines3's format holds pickles."""


def base_name(name: str) -> str:
    """Return the hyperparameter a schedule part belongs to.

    It is `learning_rate` for `learning_rate.end`.
    """
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


@contextmanager
def module_path(*folders: str) -> Iterator[None]:
    """Put `folders` first in the module search path for a block.

    The default is the working folder.
    """
    added = [str(Path(folder).resolve()) for folder in folders or (".",)]
    # In front: a module of the user may have the name of an installed one.
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            # The user's module may have taken it out.
            if folder in sys.path:
                sys.path.remove(folder)
