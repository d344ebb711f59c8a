"""The trainers `tabular` and `surrogate`: known runs of a landscape answer segments.

An answer takes microseconds instead of minutes.

    trainer: {name: tabular, kwargs: {landscape: arlbench/dqn/CartPole-v1, lookup: nearest}}
    space: landscapes/arlbench/dqn/CartPole-v1/space.yaml

`tabular` answers by recorded runs: `autorl.landscapes.benchmark.replay` says which. A comparison of
optimizers with `nearest` favours search that spreads out: what is proposed near a good
configuration is answered by the same recorded run, so a model that closes in on the good ones
learns nothing there. `surrogate` has no such bias: a random forest answers for any configuration,
with the recorded seed noise, and every outcome states its out-of-bag score
(`autorl.landscapes.benchmark.surrogate`).

An evaluation at step t is the run's at the nearest of its steps <= t. Nothing is known before the
first of them, so a segment that would end before it goes on to it, and an evaluation before it is
that one. A failure or stop happens at its step. The cost is simulated: the run's wall seconds per
step times the steps of the segment.

A run can be continued from a checkpoint with the same configuration; nothing may change in it,
because no recorded run says what would have happened then. For the same reason exploiting another
run brings no new random streams.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from autorl.core.plain_values import plain
from autorl.core.types import (
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
from autorl.landscapes import load_landscape
from autorl.landscapes.benchmark import (
    MIN_CORRELATION,
    TREES,
    LookUp,
    RecordedRun,
    Replay,
    Surrogate,
)
from autorl.landscapes.regression import MIN_TREES
from autorl.population.variants import landscape_name
from autorl.trainers.contract import Trainer
from autorl.trainers.options import Flag, read_options
from autorl.trainers.saved_state import load_parent, save
from autorl.trainers.shared import Course, check_names, check_start

_NO_TIME = "the landscape records no wall seconds: these are those of the look-up"


Folder = Annotated[str, "an id or a folder; `autorl landscape list` names them"]


class _ReplayTrainer(Trainer):
    """A trainer without training."""

    @property
    def runs(self) -> Replay | Surrogate:
        """The source of answers, loaded when first needed."""
        raise NotImplementedError

    def notes(self, segment: Segment, run: RecordedRun) -> list[str]:
        """Return what a reader of the outcome needs."""
        raise NotImplementedError

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
        name = landscape_name(environment)
        if name and manifest.environment != name:
            raise InputError(
                f"{manifest.id} is of {manifest.environment}, not {name}", key="environment.id"
            )

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        return self.runs.landscape.metrics

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        return max(step, int(self.runs.grid.steps[0]))

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        course = Course(segment, report)
        check_start(segment)
        # Nothing may change: no recorded run says what would have happened.
        load_parent(segment, segment.trainer.name, segment.config, {})
        steps = self.runs.grid.steps
        gap = int(steps[-1] - steps[-2]) if len(steps) > 1 else int(steps[-1])
        if segment.until >= steps[-1] + gap:
            raise InputError(f"the recorded runs end at step {steps[-1]}", key="fidelity.steps")
        run = self.runs.run(segment.config, segment.seed, segment.role)
        until = self.align(segment.config, segment.until)
        ended = run.ended(until)
        status = run.status if ended else Status.DONE
        reached = max(segment.start, run.end) if ended and run.end is not None else until
        for point, metrics in _points(segment, run, reached, failed=status.failed):
            course.add(point, metrics)
        notes = self.notes(segment, run)
        cost: dict[str, float] = {}
        # The look-up took microseconds: what counts is the time that training took.
        if run.seconds_per_step is None:
            notes.append(_NO_TIME)
        else:
            cost["wall_seconds"] = run.seconds_per_step * (reached - segment.start)
        values = {"values": plain(segment.config)}
        return course.outcome(
            reached,
            segment.config,
            lambda: save(segment, segment.trainer.name, reached, values),
            status=status,
            notes=notes,
            message=self.message(run) if ended else "",
            cost=cost,
        )


def _points(
    segment: Segment, run: RecordedRun, reached: int, *, failed: bool
) -> list[tuple[int, Mapping[str, float]]]:
    """Return the segment's points with the run's evaluations there.

    One that failed was not evaluated at the step it failed at.
    """
    # Nothing is known before it, so an earlier evaluation is that one.
    first = int(run.steps[0])
    points = [
        point for point in segment.evaluate_at if (max(point, first) < reached + (not failed))
    ]
    measured = run.through([max(point, first) for point in points])
    return [pair for pair in zip(points, measured, strict=True) if pair[1]]


@dataclass(frozen=True)
class Tabular(_ReplayTrainer):
    """A trainer without training.

    Its fields are the options of `trainer: {name: tabular, kwargs: {...}}`.

    Attributes:
        landscape: an id, a landscape's folder or a study's. A relative one begins at the study
            file's folder, or at the working folder; the stored study names the folder it was
            found in.
        lookup: `nearest` (any configuration of the data set's space) or `exact` (recorded ones
            only).
        wrap_seeds: whether seeds past the recorded ones repeat them. Off, because such scores are
            not independent.
    """

    preload = ("autorl.trainers.replay", "duckdb", "pandas")

    landscape: Folder
    lookup: LookUp = "nearest"
    wrap_seeds: Flag = False

    @cached_property
    def runs(self) -> Replay:
        """The recorded runs, loaded when first needed."""
        return Replay(load_landscape(self.landscape), self.lookup, self.wrap_seeds)

    def check_seeds(self, seeds: Sequence[int], role: SeedRole) -> None:
        """Check that a run is recorded for each of these seeds."""
        self.runs.check_seeds(seeds, role)

    def notes(self, segment: Segment, run: RecordedRun) -> list[str]:
        if run.repeats is None:
            return []
        return [
            f"{segment.role} seed {segment.seed} replays what seed {run.repeats} does: "
            "too few are recorded"
        ]


def make_tabular(spec: TrainerSpec) -> Tabular:
    """Build the trainer from its options."""
    return read_options(Tabular, spec.kwargs)


@dataclass(frozen=True)
class SurrogateTrainer(_ReplayTrainer):
    """A trainer without training.

    Its fields are the options of `trainer: {name: surrogate, kwargs: {...}}`.

    Attributes:
        landscape: an id, a landscape's folder or a study's. A relative one begins at the study
            file's folder, or at the working folder; the stored study names the folder it was
            found in.
        min_correlation: out-of-bag rank correlation below which the forest is refused.
        force: takes it all the same.
        trees: of the forest.
    """

    preload = ("autorl.trainers.replay", "duckdb", "pandas", "sklearn.ensemble")

    landscape: Folder
    min_correlation: Annotated[float, Field(ge=-1, le=1), "a number in -1..1"] = MIN_CORRELATION
    force: Flag = False
    trees: Annotated[int, Field(ge=MIN_TREES), f"a whole number of at least {MIN_TREES}"] = TREES

    @cached_property
    def runs(self) -> Surrogate:
        """The forest, fitted when first needed."""
        return Surrogate(
            load_landscape(self.landscape),
            min_correlation=self.min_correlation,
            force=self.force,
            trees=self.trees,
        )

    def notes(self, segment: Segment, run: RecordedRun) -> list[str]:
        forced = " (forced)" if self.runs.quality.correlation < self.min_correlation else ""
        source = self.runs.landscape.manifest.id
        return [f"predicted by a surrogate of {source}: {self.runs.quality}{forced}"]

    def message(self, run: RecordedRun) -> str:
        return (
            f"predicted {run.status}, "
            f"as configuration {run.config_id} with seed {run.seed} was recorded"
        )


def make_surrogate(spec: TrainerSpec) -> SurrogateTrainer:
    """Build the trainer from its options."""
    return read_options(SurrogateTrainer, spec.kwargs)
