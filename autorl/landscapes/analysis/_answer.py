"""Answers of analyses, and their words about the scores they used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autorl.landscapes.analysis.forest import Forest
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet

if TYPE_CHECKING:
    import pandas as pd

WEAK_FIT = 0.5  # out-of-bag rank correlation below which importances describe noise


# No comparison: `==` of two tables is a table, not a truth value.
@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of an analysis.

    Attributes:
        kind: importance, subset, or one of `KINDS`.
        landscapes: ids of the landscapes it looked at.
        about: what it was computed on, and single numbers, in JSON types. Scores are
            larger-is-better: those of a landscape that is minimised have the other sign.
        table: the rows.
        notes: what a reader must know to believe the rows.
        data: the landscapes themselves, for the scales of axes.
        detail: further tables a figure is drawn from.
    """

    kind: str
    landscapes: tuple[str, ...]
    about: Mapping[str, Any]
    table: pd.DataFrame
    notes: tuple[str, ...] = ()
    data: tuple[Dataset, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        kind: str,
        data: Sequence[Dataset],
        about: Mapping[str, object],
        table: pd.DataFrame,
        notes: tuple[str, ...] = (),
        detail: Mapping[str, object] | None = None,
    ) -> Answer:
        """Make an answer about all the landscapes that were given."""
        ids = tuple(landscape.manifest.id for landscape in data)
        return cls(kind, ids, about, table, notes, tuple(data), detail or {})


@dataclass(frozen=True)
class Question:
    """The question asked of landscapes.

    Attributes:
        kind: one of `KINDS`.
        names: hyperparameters.
        seeds: None: choose on tuning seeds and show test seeds, where there are both.
        by, reduce: how configurations are ranked; None: as the landscape recorded
            (`Landscape.rule`).
    """

    kind: str
    names: tuple[str, ...] = ()
    seeds: SeedSet | None = None
    step: int | None = None
    by: str | None = None
    reduce: str | None = None


def fitted(
    data: Dataset, forest: Forest, seeds: SeedSet | None, step: int | None
) -> dict[str, Any]:
    return {
        **scored(data, seeds, step),
        "configurations": len(forest.targets),
        "out_of_bag": forest.out_of_bag,
    }


def scored(data: Dataset, seeds: SeedSet | None, step: int | None) -> dict[str, Any]:
    return {
        "metric": data.manifest.objective.metric,
        "direction": data.manifest.objective.direction,
        "seeds": seeds or "all",
        "step": int(data.grid.steps[data.grid.step_position(step)]),
    }


def weak(forest: Forest) -> tuple[str, ...]:
    # A forest fitted to noise has importances too, and nothing in them shows it.
    if forest.out_of_bag >= WEAK_FIT:
        return ()
    return (
        f"the forest explains little here (out-of-bag rank correlation {forest.out_of_bag:.2f}): "
        "what it says about hyperparameters is mostly noise",
    )


def left_out(data: Dataset, used: int, seeds: SeedSet) -> tuple[str, ...]:
    """Note how many configurations lack a score for some of the seeds."""
    total = len(data.grid.config_ids)
    if used == total:
        return ()
    return (
        f"{total - used} of {total} configurations have no score for every seed ({seeds}) and are "
        "left out",
    )
