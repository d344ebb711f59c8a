"""The reference curves of one study: what its frozen study file holds.

A curve of the study is the score of a proposal at its rungs: so many tuning seeds, reduced by the
study's objective. Reference curves are made in the same way of those that sources bring, so that
they are as noisy, and stand in the study file at the sources' own evaluations.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.optimizers.priors.build import family_weights
from autorl.optimizers.priors.curves import Curves
from autorl.optimizers.priors.families import family_of
from autorl.optimizers.priors.packed import Array, checked, pack, unpack, unreadable
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import MOST_TASKS
from autorl.space.canonical import sha256
from autorl.statistics.reductions import Reduction

VERSION = 1
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

    @cached_property
    def sha256(self) -> str:
        """Hash of its content."""
        return str(self.to_dict()["sha256"])

    def to_dict(self) -> dict[str, Any]:
        """Return its content for a study file, in JSON types."""
        content = {
            "version": VERSION,
            "skipped": list(self.skipped),
            "sources": [
                {
                    "source": source.source,
                    "environment": source.environment,
                    "sha256": source.sha256,
                    "weight": source.weight,
                    "fractions": list(source.fractions),
                    "rows": len(source.scores),
                    "scores": pack(source.scores),
                }
                for source in self.sources
            ],
        }
        return {"sha256": sha256(content)} | content

    def lines(self) -> tuple[str, ...]:
        """Describe which sources they are from, and which not and why."""
        head = f"{counted(self.count, 'reference curve')} of {counted(len(self.sources), 'task')}"
        if self.sources:
            head += f", hash {self.sha256[:12]}"
        used = [
            f"curves: {source.source} (weight {source.weight:.2f}): {len(source.scores)}, "
            f"{counted(len(source.fractions), 'evaluation')} each"
            for source in self.sources
        ]
        return (head, *used, *(f"no reference curves: {line}" for line in self.skipped))


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
    skipped = list(gathered.skipped)
    usable = []
    for table in (table for tables in gathered.groups for table in tables):
        if table.curves is not None:
            usable.append((table, table.curves))
            continue
        line = f"{table.source}: it has no complete learning curves"
        if named:
            raise InputError(line, key="optimizer.curves")
        skipped.append(line)
    for table, _ in usable[MOST_TASKS:]:
        skipped.append(f"{table.source}: a study takes {MOST_TASKS} tasks at most")
    usable = usable[:MOST_TASKS]
    family = None if environment is None else family_of(environment)
    weights = family_weights([family_of(table.environment) for table, _ in usable], family)
    sources = tuple(
        SourceCurves(
            source=table.source,
            environment=table.environment,
            fractions=curves.fractions,
            scores=scores_of(curves, n_seeds, reduction),
            weight=weight,
            sha256=table.sha256,
        )
        for (table, curves), weight in zip(usable, weights, strict=True)
    )
    return StudyCurves(sources, tuple(skipped))


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
    body = checked(content, VERSION, _KEY)
    try:
        sources = tuple(_source(entry) for entry in body["sources"])
        return StudyCurves(sources, tuple(body["skipped"]))
    except (KeyError, TypeError, ValueError, zlib.error, binascii.Error) as error:
        raise unreadable(error, _KEY) from None


def _source(entry: Mapping[str, Any]) -> SourceCurves:
    fractions = tuple(float(fraction) for fraction in entry["fractions"])
    return SourceCurves(
        source=entry["source"],
        environment=entry["environment"],
        fractions=fractions,
        scores=unpack(entry["scores"], (int(entry["rows"]), len(fractions))),
        weight=float(entry["weight"]),
        sha256=entry["sha256"],
    )
