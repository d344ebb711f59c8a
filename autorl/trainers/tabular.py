"""Replays a landscape: a segment is answered by a recorded run.

    trainer: {name: tabular, kwargs: {landscape: arlbench/dqn/CartPole-v1, lookup: nearest}}
    space: landscapes/arlbench/dqn/CartPole-v1/space.yaml

Which recorded run answers for a configuration and a seed: see `autorl.landscapes.benchmark.replay`.
What is known of it at a step, its failures and its simulated cost: see `autorl.trainers._replay`.

A comparison of optimizers with `nearest` favours search that spreads out: what is proposed near a
good configuration is answered by the same recorded run, so a model that closes in on the good ones
learns nothing there. `surrogate` has no such bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from autorl.landscapes import load_landscape
from autorl.landscapes.benchmark import LOOK_UPS, LookUp, RecordedRun, Replay
from autorl.trainers._replay import ReplayTrainer, flag, required_landscape
from autorl.trainers.options import check_fields
from autorl.types import InputError, SeedRole, Segment, TrainerSpec


@dataclass(frozen=True)
class Tabular(ReplayTrainer):
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
        return ("autorl.trainers.tabular", "duckdb", "pandas")

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


def make(spec: TrainerSpec) -> Tabular:
    """Build the trainer from its options."""
    check_fields(spec, Tabular)
    landscape = required_landscape(spec)
    lookup = str(spec.kwargs.get("lookup", Tabular.lookup))
    if lookup not in LOOK_UPS:
        raise InputError(
            f"expected {' or '.join(LOOK_UPS)}, got {lookup!r}", key="trainer.kwargs.lookup"
        )
    return Tabular(landscape, lookup, flag(spec, "wrap_seeds"))
