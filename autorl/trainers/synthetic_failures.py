"""Failures that the synthetic trainer makes on purpose, for tests."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from autorl.plain_values import plain
from autorl.seeds import digest
from autorl.trainers.options import check_names
from autorl.types import Segment, Status

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


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_positive(value: object) -> bool:
    """Tell whether a value is a finite number of at least 0."""
    return is_number(value) and value >= 0


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
        # Of the configuration alone: it fails with every seed and after a restart. 2^128 is the
        # range of the digest.
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
