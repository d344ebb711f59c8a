"""Segments of runs, described by what matters, and their training in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autorl.core.types import (
    Config,
    EnvironmentSpec,
    InputError,
    Outcome,
    Segment,
    SegmentId,
    TrainerSpec,
    freeze,
)
from autorl.executors.worker import run_segment
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers import load


def segment(
    trainer: str | TrainerSpec,
    environment: str | EnvironmentSpec | None = None,
    config: Mapping[str, Any] | None = None,
    until: int = 1,
    folder: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    after: Outcome | None = None,
    **changes: Any,
) -> Segment:
    """A segment that is evaluated at its end, and saved if it has a folder."""
    if isinstance(trainer, str):
        trainer = TrainerSpec(trainer, freeze(dict(options or {})))
    if not isinstance(environment, EnvironmentSpec):
        environment = EnvironmentSpec(environment)
    values = {"id": "one", "seed": 1, "role": "tuning", "episodes": 2}
    values |= {"until": until, "horizon": until, "evaluate_at": (until,)}
    if folder is not None:
        values |= {"id": Path(folder).name, "folder": str(folder), "save": True}
    if after is not None:
        values |= {"parent": after.checkpoint, "start": after.reached}
    values |= {"trainer": trainer, "environment": environment, "config": Config(config or {})}
    return Segment(**(values | changes))


def segment_of(name: str | int = 0, **values: Any) -> Segment:
    """A segment for executors, by its name or the number of its proposal; `values` are its fields."""
    made = SegmentId(name, 0) if isinstance(name, int) else name
    plain = {"trainer": TrainerSpec("toy"), "config": Config(), "seed": 0, "role": "tuning"}
    return Segment(**(plain | {"id": made, "until": 10, "horizon": 10} | values))


def train(one: Segment) -> Outcome:
    outcome: Outcome = load(one.trainer).train(one, lambda report: None)
    return outcome


def run(one: Segment) -> Outcome:
    """The outcome as a worker gives it, where an error is a message."""
    return run_segment(load, one, lambda report: None)


def refusal(document: Mapping[str, Any]) -> InputError:
    """The error of a study that is refused before it trains."""
    spec = load_spec(document)
    with pytest.raises(InputError) as caught:
        check(spec, trainer_loader(spec))
    return caught.value


def run_well(one: Segment) -> Outcome:
    outcome = run(one)
    assert not outcome.message, outcome.message
    return outcome
