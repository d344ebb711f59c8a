"""Replays a landscape: a segment is answered by a recorded run, in microseconds instead of minutes.

    trainer: {name: tabular, kwargs: {landscape: arlbench/dqn/CartPole-v1, lookup: nearest}}
    space: landscapes/arlbench/dqn/CartPole-v1/space.yaml
    executor: {name: in_process}

Which recorded run answers for a configuration and a seed: see `autorl.landscapes.replay`. An evaluation at step t is
the recorded one at the nearest step <= t. Nothing is known before the first recorded step, so a segment that would end
before it goes on to it, and an evaluation before it is that one. A recorded failure or stop happens at its step. The
cost is simulated: recorded wall seconds per step times the steps of the segment.

A run can be continued from a checkpoint with the same configuration; nothing may change in it, because no recorded run
says what would have happened then. For the same reason exploiting another run brings no new random streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import cast

from autorl.landscapes.dataset import load_landscape
from autorl.landscapes.replay import LOOK_UPS, LookUp, RecordedRun, Replay
from autorl.store.checkpoints import writing
from autorl.trainers._shared import Change, Clock, check_continuation, check_names, check_start, plain
from autorl.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    InputError,
    Outcome,
    Report,
    Segment,
    Status,
    TrainerSpec,
)

_STATE = "state.json"
_NO_TIME = "the landscape records no wall seconds: these are those of the look-up"


@dataclass(frozen=True)
class Tabular:
    """A trainer without training. Its fields are the options of `trainer: {name: tabular, kwargs: {...}}`.

    Attributes:
        landscape: an id, a landscape's folder or a study's; relative to the working folder.
        lookup: `nearest` (any configuration of the data set's space) or `exact` (recorded ones only).
    """

    landscape: str
    lookup: str = "nearest"

    @property
    def changes(self) -> Mapping[str, Change]:
        return {}

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.tabular", "duckdb", "pandas")

    @cached_property
    def replay(self) -> Replay:
        """The recorded runs, loaded when first needed."""
        return Replay(load_landscape(self.landscape), cast("LookUp", self.lookup))

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Raise `InputError` if there is no such landscape, a name is not in its space, or its task is another."""
        manifest = self.replay.landscape.manifest
        check_names(hyperparameters, self.replay.space.names, f"hyperparameter of {manifest.id}", "space")
        if environment.id not in (None, manifest.environment):
            raise InputError(f"{manifest.id} is of {manifest.environment}, not {environment.id}", key="environment.id")

    def align(self, config: Config, step: int) -> int:
        return max(step, int(self.replay.grid.steps[0]))

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        clock = Clock()
        check_start(segment)
        self._check_parent(segment)
        self._check_horizon(segment)
        run = self.replay.run(segment.config, segment.seed, segment.role)
        until = self.align(segment.config, segment.until)
        ended = run.end is not None and (run.end < until or (run.status.failed and run.end <= until))
        status = run.status if ended else Status.DONE
        reached = max(segment.start, run.end) if ended and run.end is not None else until
        reports = _reports(segment, run, reached, failed=status.failed)
        for each in reports:
            report(each)
        cost = clock.cost(reached - segment.start)
        notes = []
        if run.seconds_per_step is None:
            notes.append(_NO_TIME)
        else:
            cost["wall_seconds"] = run.seconds_per_step * (reached - segment.start)
        if run.repeats is not None:
            notes.append(
                f"{segment.role} seed {segment.seed} replays what seed {run.repeats} does: too few are recorded"
            )
        return Outcome(
            segment=segment.id,
            status=status,
            reached=reached,
            reports=tuple(reports),
            cost=cost,
            checkpoint=_save(segment, reached) if segment.save and not status.failed else None,
            applied=dict(segment.config),
            notes=tuple(notes),
            message=f"configuration {run.config_id} with seed {run.seed} was recorded as {status}" if ended else "",
        )

    def _check_horizon(self, segment: Segment) -> None:
        """Raise `InputError` if the segment goes on a whole evaluation interval past the recorded runs."""
        steps = self.replay.grid.steps
        gap = int(steps[-1] - steps[-2]) if len(steps) > 1 else int(steps[-1])
        if segment.until >= steps[-1] + gap:
            raise InputError(f"the recorded runs end at step {steps[-1]}", key="fidelity.steps")

    def _check_parent(self, segment: Segment) -> None:
        if segment.parent is None:
            return
        state = json.loads((Path(segment.parent.path) / _STATE).read_text(encoding="utf-8"))
        if state["step"] != segment.start:
            raise InputError(f"checkpoint is at step {state['step']}, segment {segment.id!r} starts at {segment.start}")
        check_continuation(state["config"], segment.config, self.changes)


def make(spec: TrainerSpec) -> Tabular:
    """Build the trainer from its options."""
    check_names(spec.kwargs, {item.name for item in fields(Tabular)}, "option of tabular", "trainer.kwargs")
    if "landscape" not in spec.kwargs:
        raise InputError(
            "is missing: an id or a folder; `autorl landscape list` names them", key="trainer.kwargs.landscape"
        )
    options = {name: str(value) for name, value in spec.kwargs.items()}
    if options.get("lookup", LOOK_UPS[0]) not in LOOK_UPS:
        raise InputError(f"expected {' or '.join(LOOK_UPS)}, got {options['lookup']!r}", key="trainer.kwargs.lookup")
    return Tabular(**options)


def _reports(segment: Segment, run: RecordedRun, reached: int, *, failed: bool) -> list[Report]:
    """Recorded evaluations at the segment's points; a run that failed was not evaluated at the step it failed at."""
    first = int(run.steps[0])
    points = [(point, max(point, first)) for point in segment.evaluate_at]
    known = [(point, run.at(at)) for point, at in points if (at < reached if failed else at <= reached)]
    return [Report(segment.id, point, metrics) for point, metrics in known if metrics]


def _save(segment: Segment, step: int) -> Checkpoint:
    with writing(segment) as folder:
        state = {"step": step, "config": plain(segment.config)}
        (folder / _STATE).write_text(json.dumps(state, sort_keys=True), encoding="utf-8")
    return Checkpoint(segment.id, segment.folder)
