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

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

from autorl.core.numbers import check_number
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
    LOOK_UPS,
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
from autorl.trainers.saved_state import load_parent, save
from autorl.trainers.shared import Course, check_fields, check_names, check_start

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset
    from autorl.landscapes.grid import Grid
    from autorl.space import Space

_NO_TIME = "the landscape records no wall seconds: these are those of the look-up"


class _Runs(Protocol):
    """Source of answers: `Replay` or `Surrogate` of `landscapes.benchmark`."""

    landscape: Dataset
    space: Space
    grid: Grid

    def run(self, config: Mapping[str, object], seed: int, role: SeedRole) -> RecordedRun: ...


class _ReplayTrainer(Trainer, ABC):
    """A trainer without training."""

    @property
    @abstractmethod
    def runs(self) -> _Runs:
        """Source of answers, loaded when first needed."""

    @abstractmethod
    def notes(self, segment: Segment, run: RecordedRun) -> list[str]:
        """Notes that a reader of the outcome needs."""

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
        self._check_horizon(segment)
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

    def _check_horizon(self, segment: Segment) -> None:
        """Check that the segment ends where runs were recorded.

        Raises:
            InputError: it goes on a whole evaluation interval past the recorded runs.
        """
        steps = self.runs.grid.steps
        gap = int(steps[-1] - steps[-2]) if len(steps) > 1 else int(steps[-1])
        if segment.until >= steps[-1] + gap:
            raise InputError(f"the recorded runs end at step {steps[-1]}", key="fidelity.steps")


def _required_landscape(spec: TrainerSpec) -> str:
    """The option `landscape`, which has no default."""
    if "landscape" not in spec.kwargs:
        raise InputError(
            "is missing: an id or a folder; `autorl landscape list` names them",
            key="trainer.kwargs.landscape",
        )
    return str(spec.kwargs["landscape"])


def _flag(spec: TrainerSpec, name: str) -> bool:
    """Read an option that is true or false.

    It is false if it is not given.
    """
    value = spec.kwargs.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"expected true or false, got {value!r}", key=f"trainer.kwargs.{name}")
    return value


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

    landscape: str
    lookup: str = "nearest"
    wrap_seeds: bool = False

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.replay", "duckdb", "pandas")

    @cached_property
    def runs(self) -> Replay:
        """The recorded runs, loaded when first needed."""
        # `make` has checked the word.
        return Replay(load_landscape(self.landscape), cast("LookUp", self.lookup), self.wrap_seeds)

    def check_seeds(self, seeds: Sequence[int], role: SeedRole) -> None:
        """Check that a run is recorded for each of these seeds.

        It is called before a study.

        Raises:
            InputError: none is for one of them.
        """
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
    check_fields(spec, Tabular)
    landscape = _required_landscape(spec)
    lookup = str(spec.kwargs.get("lookup", Tabular.lookup))
    if lookup not in LOOK_UPS:
        raise InputError(
            f"expected {' or '.join(LOOK_UPS)}, got {lookup!r}", key="trainer.kwargs.lookup"
        )
    return Tabular(landscape, lookup, _flag(spec, "wrap_seeds"))


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

    landscape: str
    min_correlation: float = MIN_CORRELATION
    force: bool = False
    trees: int = TREES

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.replay", "duckdb", "pandas", "sklearn.ensemble")

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
    check_fields(spec, SurrogateTrainer)
    landscape = _required_landscape(spec)
    bar = spec.kwargs.get("min_correlation", MIN_CORRELATION)
    trees = spec.kwargs.get("trees", TREES)
    check_number(bar, "trainer.kwargs.min_correlation", -1, 1)
    check_number(trees, "trainer.kwargs.trees", MIN_TREES, whole=True)
    return SurrogateTrainer(landscape, float(bar), _flag(spec, "force"), trees)
