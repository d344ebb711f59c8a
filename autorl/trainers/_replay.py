"""What `tabular` and `surrogate` share: known runs answer segments.

An answer takes microseconds instead of minutes.

An evaluation at step t is the run's at the nearest of its steps <= t. Nothing is known before the
first of them, so a segment that would end before it goes on to it, and an evaluation before it is
that one. A failure or stop happens at its step. The cost is simulated: the run's wall seconds per
step times the steps of the segment.

A run can be continued from a checkpoint with the same configuration; nothing may change in it,
because no recorded run says what would have happened then. For the same reason exploiting another
run brings no new random streams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from autorl.landscapes.benchmark import RecordedRun
from autorl.population.variants import allowed_names
from autorl.trainers._json_checkpoint import parent_state, save_state
from autorl.trainers._shared import Clock, check_continuation, check_start
from autorl.trainers.contract import Trainer
from autorl.trainers.options import check_names
from autorl.types import (
    Config,
    EnvironmentSpec,
    InputError,
    Outcome,
    Report,
    SeedRole,
    Segment,
    Status,
    TrainerSpec,
)

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset
    from autorl.landscapes.grid import Grid
    from autorl.space import Space

_NO_TIME = "the landscape records no wall seconds: these are those of the look-up"


class Runs(Protocol):
    """What answers: `Replay` or `Surrogate` of `landscapes.benchmark`."""

    landscape: Dataset
    space: Space
    grid: Grid

    def run(self, config: Mapping[str, object], seed: int, role: SeedRole) -> RecordedRun: ...


class ReplayTrainer(Trainer, ABC):
    """A trainer without training."""

    @property
    @abstractmethod
    def runs(self) -> Runs:
        """What answers, loaded when first needed."""

    @abstractmethod
    def notes(self, segment: Segment, run: RecordedRun) -> list[str]:
        """What a reader of the outcome must know."""

    def message(self, run: RecordedRun) -> str:
        """Why a run ended before its time."""
        return f"configuration {run.config_id} with seed {run.seed} was recorded as {run.status}"

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Check that the landscape has the environment and the hyperparameters.

        Raises:
            InputError: there is no such landscape, a name is not in its space, or its task is
                another.
        """
        manifest = self.runs.landscape.manifest
        check_names(
            hyperparameters, self.runs.space.names, f"hyperparameter of {manifest.id}", "space"
        )
        names = allowed_names(environment)
        if names and manifest.environment not in names:
            raise InputError(
                f"{manifest.id} is of {manifest.environment}, not {names[0]}", key="environment.id"
            )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        return self.runs.landscape.metrics

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        return max(step, int(self.runs.grid.steps[0]))

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        clock = Clock()
        check_start(segment)
        saved = parent_state(segment)
        if saved is not None:
            # Nothing may change: no recorded run says what would have happened.
            check_continuation(saved["config"], segment.config, {})
        self._check_horizon(segment)
        run = self.runs.run(segment.config, segment.seed, segment.role)
        until = self.align(segment.config, segment.until)
        ended = run.ended(until)
        status = run.status if ended else Status.DONE
        reached = max(segment.start, run.end) if ended and run.end is not None else until
        reports = _reports(segment, run, reached, failed=status.failed)
        for evaluation in reports:
            report(evaluation)
        cost = clock.cost(reached - segment.start)
        notes = self.notes(segment, run)
        # The look-up took microseconds: what counts is the time that training took.
        if run.seconds_per_step is None:
            notes.append(_NO_TIME)
        else:
            cost["wall_seconds"] = run.seconds_per_step * (reached - segment.start)
        message = self.message(run) if ended else ""
        checkpoint = None
        if segment.save and not status.failed:
            checkpoint = save_state(segment, reached, {})
        return Outcome(
            segment=segment.id,
            status=status,
            reached=reached,
            reports=tuple(reports),
            cost=cost,
            checkpoint=checkpoint,
            applied=dict(segment.config),
            notes=tuple(notes),
            message=message,
        )

    def _check_horizon(self, segment: Segment) -> None:
        """Check that the segment ends where runs were recorded.

        Raises:
            InputError: it goes on a whole evaluation interval past the recorded runs.
        """
        steps = self.runs.grid.steps
        gap = int(steps[-1] - steps[-2]) if len(steps) > 1 else int(steps[-1])
        if segment.until >= steps[-1] + gap:
            raise InputError(f"the recorded runs end at step {steps[-1]}", key="fidelity.steps")


def required_landscape(spec: TrainerSpec) -> str:
    """The option `landscape`, which has no default."""
    if "landscape" not in spec.kwargs:
        raise InputError(
            "is missing: an id or a folder; `autorl landscape list` names them",
            key="trainer.kwargs.landscape",
        )
    return str(spec.kwargs["landscape"])


def flag(spec: TrainerSpec, name: str) -> bool:
    """Read an option that is true or false.

    It is false if it is not given.
    """
    value = spec.kwargs.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"expected true or false, got {value!r}", key=f"trainer.kwargs.{name}")
    return value


def _reports(segment: Segment, run: RecordedRun, reached: int, *, failed: bool) -> list[Report]:
    """Return the run's evaluations at the segment's points.

    One that failed was not evaluated at the step it failed at.
    """
    # Nothing is known before it, so an earlier evaluation is that one.
    first = int(run.steps[0])
    points = [
        point for point in segment.evaluate_at if (max(point, first) < reached + (not failed))
    ]
    measured = run.through([max(point, first) for point in points])
    return [
        Report(segment.id, point, metrics)
        for point, metrics in zip(points, measured, strict=True)
        if metrics
    ]
