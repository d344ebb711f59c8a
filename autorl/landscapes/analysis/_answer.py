"""Answers of analyses, and their words about the scores they used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autorl.core.shown import Shown
from autorl.landscapes.analysis.forest import Forest
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet

if TYPE_CHECKING:
    import pandas as pd

_WEAK_FIT = 0.5  # out-of-bag rank correlation below which importances describe noise


# No comparison: `==` of two tables is a table, not a truth value.
@dataclass(frozen=True, eq=False)
class Answer(Shown):
    """The answer of an analysis.

    Attributes:
        kind: one of `KINDS`.
        data: the landscapes it is about.
        about: what it was computed on, and single numbers, in JSON types. Scores are
            larger-is-better: those of a landscape that is minimised have the other sign.
        table: the rows.
        notes: what a reader must know to believe the rows.
        detail: what a figure is drawn from besides.
    """

    kind: str
    data: tuple[Dataset, ...]
    about: Mapping[str, Any]
    table: pd.DataFrame
    notes: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def landscapes(self) -> list[str]:
        """Ids of the landscapes it is about."""
        return [landscape.manifest.id for landscape in self.data]


def scored(data: Dataset, seeds: SeedSet, step: int | None = None) -> dict[str, Any]:
    return {
        "metric": data.manifest.objective.metric,
        "direction": data.manifest.objective.direction,
        "seeds": seeds,
        "step": int(data.grid.steps[data.grid.step_position(step)]),
    }


def fitted(
    data: Dataset, forest: Forest, seeds: SeedSet, step: int | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Say what a forest was fitted to, with cautions for readers."""
    fit = forest.out_of_bag
    count = len(forest.targets)
    about = {**scored(data, seeds, step), "configurations": count, "out_of_bag": fit}
    notes = left_out(data, count, seeds)
    # A forest fitted to noise has importances too, and nothing in them shows it.
    if fit < _WEAK_FIT:
        note = (
            f"the forest explains little here (out-of-bag rank correlation {fit:.2f}): "
            "what it says about hyperparameters is mostly noise"
        )
        notes = (note, *notes)
    return about, notes


def left_out(data: Dataset, used: int, seeds: SeedSet) -> tuple[str, ...]:
    """Note how many configurations lack a score for some of the seeds."""
    total = len(data.grid.config_ids)
    note = (
        f"{total - used} of {total} configurations have no score for every seed ({seeds}) and are "
        "left out"
    )
    return () if used == total else (note,)
