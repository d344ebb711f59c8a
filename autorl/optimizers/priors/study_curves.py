"""The reference curves of one study: what its frozen study file holds.

A curve of the study is the score of a proposal at its rungs: so many tuning seeds, reduced by the
study's objective. Reference curves are made in the same way of those that sources bring, so that
they are as noisy, and stand in the study file at the sources' own evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.optimizers.priors.families import task_weights
from autorl.optimizers.priors.packed import Array, opened, pack, sealed, unpack
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.table import Curves, TaskTable
from autorl.statistics.reductions import Reduction

_KEY = "optimizer.curve_data"


@dataclass(frozen=True, eq=False)
class SourceCurves:
    """The reference curves of a source.

    Attributes:
        source, environment: where they are from.
        fractions: evaluations as parts of a full run, shape (points,).
        scores: between 0 and 1, shape (curves, points).
        weight: what the source counts beside the others; their sum is 1.
        sha256: of the source's manifest.
    """

    source: str
    environment: str
    fractions: tuple[float, ...]
    scores: Array
    weight: float = 1.0
    sha256: str = ""

    def at(self, fractions: Sequence[float]) -> tuple[Array, int]:
        """Return scores at parts of a run, and the first one known.

        A score is that of the last evaluation by then: what comes later is not known yet. Shape
        (curves, fractions).
        """
        places = np.searchsorted(self.fractions, np.asarray(fractions) + 1e-6, side="right") - 1
        first = int((places < 0).sum())
        return self.scores[:, np.maximum(places, 0)], first


@dataclass(frozen=True, eq=False)
class StudyCurves:
    """The reference curves of a study.

    Attributes:
        sources: what they are from.
        skipped: a line for each source that is no part of them.
    """

    sources: tuple[SourceCurves, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of curves of all sources."""
        return sum(len(source.scores) for source in self.sources)

    def to_dict(self) -> dict[str, Any]:
        """Return its content for a study file, in JSON types."""
        sources = [
            vars(source)
            | {
                "fractions": list(source.fractions),
                "rows": len(source.scores),
                "scores": pack(source.scores),
            }
            for source in self.sources
        ]
        return sealed({"skipped": list(self.skipped), "sources": sources})

    def line(self) -> str:
        """Count the curves and the tasks they are from."""
        text = f"{counted(self.count, 'reference curve')} of {counted(len(self.sources), 'task')}"
        return text + (f", hash {self.to_dict()['sha256'][:12]}" if self.sources else "")


def reference_curves(
    gathered: Gathered, environment: str | None, *, n_seeds: int, reduction: Reduction, named: bool
) -> StudyCurves:
    """Make the reference curves of a study from its sources.

    Args:
        gathered: tables with their curves, and lines about what is none.
        environment: of the study; None: all families count alike.
        n_seeds: tuning seeds that a score of the study is made of.
        reduction: of the study's objective.
        named: whether a source without curves is an error, or a line.

    Raises:
        InputError: `named`, and a source has no curves.
    """

    def made(table: TaskTable) -> SourceCurves:
        if table.curves is None:
            raise InputError("it has no complete learning curves")
        scores = scores_of(table.curves, n_seeds, reduction)
        return SourceCurves(
            table.source, table.environment, table.curves.fractions, scores, sha256=table.sha256
        )

    sources, skipped = gathered.usable(made, "optimizer.curves", named=named)
    weights = task_weights([source.environment for source in sources], environment)
    weighted = [
        replace(source, weight=weight) for source, weight in zip(sources, weights, strict=True)
    ]
    return StudyCurves(tuple(weighted), skipped)


def scores_of(curves: Curves, n_seeds: int, reduction: Reduction) -> Array:
    """Return scores of so many seeds at every evaluation, shape (curves, points).

    A configuration gives as many curves as its seeds allow. With fewer seeds than the study has
    they are noisier than its own, and fewer runs are stopped.
    """
    values = curves.values
    configurations, recorded, points = values.shape
    reduced = np.stack(
        [reduction.stacked(values[:, :, : place + 1]) for place in range(points)], axis=-1
    )
    size = min(n_seeds, recorded)
    groups = recorded // size
    grouped = reduced[:, : groups * size].reshape(configurations * groups, size, points)
    return np.asarray(grouped.mean(axis=1))


def study_curves_of(content: Mapping[str, Any]) -> StudyCurves:
    """Read the reference curves of a study.

    Raises:
        InputError: they were changed, or are none.
    """
    with opened(content, _KEY) as body:
        sources = []
        for entry in body["sources"]:
            fractions = tuple(entry["fractions"])
            scores = unpack(entry["scores"], (entry.pop("rows"), len(fractions)))
            sources.append(SourceCurves(**entry | {"fractions": fractions, "scores": scores}))
        return StudyCurves(tuple(sources), tuple(body["skipped"]))
