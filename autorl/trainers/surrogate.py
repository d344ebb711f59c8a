"""Replays a landscape through a random forest.

Any configuration has runs of its own, with the recorded seed noise.

    trainer: {name: surrogate, kwargs: {landscape: autorl/ppo/CartPole-v1}}
    space: landscapes/autorl/ppo/CartPole-v1/space.yaml

What the forest predicts and how seeds are drawn: see `autorl.landscapes.benchmark.surrogate`. What
is known of a run at a step, its failures and its simulated cost: see `autorl.trainers._replay`.
Every outcome states the forest's out-of-bag score.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from autorl.landscapes import load_landscape
from autorl.landscapes.benchmark import MIN_CORRELATION, TREES, RecordedRun, Surrogate
from autorl.landscapes.regression import MIN_TREES
from autorl.trainers._replay import ReplayTrainer, flag, required_landscape
from autorl.trainers.options import check_fields
from autorl.types import InputError, Segment, TrainerSpec


@dataclass(frozen=True)
class SurrogateTrainer(ReplayTrainer):
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
        return ("autorl.trainers.surrogate", "duckdb", "pandas", "sklearn.ensemble")

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


def make(spec: TrainerSpec) -> SurrogateTrainer:
    """Build the trainer from its options."""
    check_fields(spec, SurrogateTrainer)
    landscape = required_landscape(spec)
    bar = spec.kwargs.get("min_correlation", MIN_CORRELATION)
    trees = spec.kwargs.get("trees", TREES)
    # `True` is a number to Python.
    if isinstance(bar, bool) or not isinstance(bar, int | float) or not -1 <= bar <= 1:
        raise InputError(
            f"expected a number in -1..1, got {bar!r}", key="trainer.kwargs.min_correlation"
        )
    if isinstance(trees, bool) or not isinstance(trees, int) or trees < MIN_TREES:
        raise InputError(
            f"expected a whole number >= {MIN_TREES}, got {trees!r}", key="trainer.kwargs.trees"
        )
    return SurrogateTrainer(landscape, float(bar), flag(spec, "force"), trees)
