"""The parts of a chart: axes and marks, as values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import number
from autorl.core.shown import Shown
from autorl.space import Hyperparameter

Array: TypeAlias = npt.NDArray[np.float64]
Limits: TypeAlias = tuple[float | None, float | None]
Point: TypeAlias = tuple[float, float, str]
"""A place, a height, and what the point is called."""
GAP: Point = (math.nan, math.nan, "")


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: with the unit.
        scale: of positions. A flipped logarithm is linear here: its positions are transformed
            (`positions`).
        categories: names at the positions 0, 1, ...; empty: a number axis.
        ticks: (position, name) where the renderer would not find good ones.
        limits: None = as the data are.
        thin: whether names of categories may be left out when there are many.
        bare: whether it is not drawn.
    """

    label: str
    scale: Literal["linear", "log"] = "linear"
    categories: tuple[str, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    limits: Limits | None = None
    thin: bool = False
    bare: bool = False


@dataclass(frozen=True, eq=False)
class Line:
    """Points, joined or not, with an interval each.

    The interval is a band if joined without markers, else error bars.

    Attributes:
        band: low and high.
        x, y: points; a gap in either begins another path.
        names: what the points are called when pointed at.
        marker: o, s or ^; empty = none.
        muted: drawn in grey, as background.
        stepped: whether a value holds until the next point.
    """

    label: str
    x: Array
    y: Array
    band: tuple[Array, Array] | None = None
    names: tuple[str, ...] = ()
    marker: str = ""
    joined: bool = True
    muted: bool = False
    stepped: bool = False

    @classmethod
    def through(cls, label: str, points: Sequence[Point], **style: Any) -> Self:
        """Join points, with gaps where `GAP` is."""
        x, y, names = zip(*points, strict=True) if points else ((), (), ())
        places, heights = (np.array(values, dtype=np.float64) for values in (x, y))
        return cls(label, places, heights, None, names, **style)

    @classmethod
    def dots(
        cls,
        label: str,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        names: Iterable[str],
        band: tuple[Array, Array] | None = None,
        *,
        marker: str = "o",
        muted: bool = False,
    ) -> Self:
        """Make points that are not joined."""
        places, heights = (np.asarray(values, dtype=np.float64) for values in (x, y))
        return cls(label, places, heights, band, tuple(names), marker, joined=False, muted=muted)


@dataclass(frozen=True, eq=False)
class Bars:
    """Horizontal bars, the first on top.

    Attributes:
        values: (n bars,).
        interval: low and high of each bar's interval.
        texts: what stands behind the bars.
    """

    values: Array
    interval: tuple[Array, Array] | None = None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Values (rows, columns), the first row on top.

    NaN stays empty. `annotate`: write the numbers into the cells.
    """

    values: Array
    label: str
    limits: Limits = (None, None)
    annotate: bool = False


@dataclass(frozen=True, eq=False)
class Spans:
    """Bars from one position to another along rows, colored by value.

    Attributes:
        rows: places on the vertical axis, the first on top.
        begin, end: positions on the horizontal axis.
        values: NaN is grey.
        names: what the bars are called when pointed at.
        label: of the values.
    """

    rows: Array
    begin: Array
    end: Array
    values: Array
    names: tuple[str, ...]
    label: str


Mark: TypeAlias = Line | Bars | HeatMap | Spans


@dataclass(frozen=True, eq=False)
class Chart(Shown):
    """A figure: title, text about the data, axes, and marks.

    The marks are lines, or one of another sort with lines on top.
    """

    title: str
    about: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]


def axis_of(item: Hyperparameter, names: tuple[str, ...] = ()) -> Axis:
    """Make the axis of a hyperparameter as it is searched.

    `names` are those of its choices.
    """
    if not item.numeric:
        return Axis(item.name, categories=names)
    label = scale_label(item)
    if item.scale != "flipped_log":
        return Axis(label, item.scale)
    # No library has this scale: positions are -log10(1 - x), with ticks such as 0.9, 0.95, 0.98.
    lower, upper = item.bounds
    decades = range(math.floor(-math.log10(1.0 - lower)), math.ceil(-math.log10(1.0 - upper)) + 1)
    candidates = [1.0 - part * 10.0**-decade for decade in decades for part in (1.0, 0.5, 0.2)]
    shown = [value for value in candidates if lower <= value <= upper]
    ticks = tuple(
        (float(at), number(value)) for at, value in zip(positions(item, shown), shown, strict=True)
    )
    return Axis(label, ticks=ticks)


def scale_label(item: Hyperparameter) -> str:
    """Name a hyperparameter, and its scale unless that is linear."""
    if not item.numeric or item.scale == "linear":
        return item.name
    return f"{item.name} ({item.scale.replace('_', ' ')} scale)"


def positions(item: Hyperparameter, values: Iterable[float]) -> Array:
    """Place values on the axis that `axis_of` makes.

    They are the values themselves, or -log10(1 - x) for a flipped logarithm.
    """
    numbers = np.asarray(list(values), dtype=np.float64)
    # Growing with x, so that the axis is not turned over.
    return -np.log10(1.0 - numbers) if item.scale == "flipped_log" else numbers
