"""The frame of a chart: pixels of data, and the numbers around."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from autorl.landscapes.analysis import Axis
from autorl.plain_text import shortened

# Pixels around the frame: room for numbers on the left, numbers and a label below.
LEFT = 62
RIGHT = 14
TOP = 12
BOTTOM = 46
_DIGIT = 7
"""Pixels that a letter of an axis takes at most."""


@dataclass(frozen=True)
class Scale:
    """A map from data to pixels along one axis.

    Attributes:
        low, high: what lies at both ends.
        begin, end: pixels of these; y of SVG grows downwards.
        log: whether positions are logarithms.
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value.

        What lies far outside is put beyond the nearer end.
        """
        low = self._position(self.low)
        high = self._position(self.high)
        share = (self._position(value) - low) / ((high - low) or 1.0)
        return self.begin + min(1.05, max(-0.05, share)) * (self.end - self.begin)

    def _position(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.log else value


def scale_of(axis: Axis, values: Sequence[float], begin: float, end: float) -> Scale:
    """Fit a scale to an axis and the values on it.

    The values are finite. Numbers get some room at both ends, categories half a place.
    """
    if axis.categories:
        return Scale(-0.5, len(axis.categories) - 0.5, begin, end)
    positive = [value for value in values if value > 0]
    # A logarithm has no place for what is not positive: such an axis becomes linear.
    if axis.scale == "log" and len(positive) == len(values) and positive:
        low = min(positive)
        high = max(positive)
        # Equal values have no range to take a share of.
        room = (high / low) ** 0.04 if high > low else 2.0
        return Scale(low / room, high * room, begin, end, log=True)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    limits = axis.limits or (None, None)
    bottom = low - room if limits[0] is None else float(limits[0])
    top = high + room if limits[1] is None else float(limits[1])
    return Scale(bottom, top, begin, end)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers within [low, high].

    They are steps of 1, 2 or 5 times a power of ten.
    """
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    # The smallest of 1, 2, 5 and 10 that is large enough gives at most `about` steps.
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    # A tick at the very edge would be lost to the rounding of the division.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def axis_ticks(axis: Axis, scale: Scale, about: int) -> list[tuple[float, str]]:
    """Return positions and texts of an axis, `about` of them at most."""
    texts = axis.categories or tuple(text for _, text in axis.ticks)
    if texts:
        places = [float(at) for at, _ in enumerate(texts)]
        if not axis.categories:
            places = [at for at, _ in axis.ticks]
        every = max(1, math.ceil(len(texts) / max(1, about)))
        named = list(zip(places, texts, strict=True))[::every]
        return [(at, text) for at, text in named if scale.low <= at <= scale.high]
    if not scale.log:
        return [(value, short_number(value)) for value in ticks(scale.low, scale.high, about)]
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    factors = (1.0, 2.0, 5.0) if len(decades) <= about else (1.0,)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    inside = [value for value in values if scale.low <= value <= scale.high]
    return [(value, short_number(value)) for value in inside][
        :: max(1, math.ceil(len(inside) / about))
    ]


def short_number(value: float) -> str:
    """Write a number of an axis: `20k`, `2.5M`, `1e-05`."""
    size = abs(value)
    for limit, mark in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            divisor = {"G": 1e9, "M": 1e6, "k": 1e3}[mark]
            return f"{value / divisor:.4g}{mark}"
    return f"{value:.4g}"


def grid(x_axis: Axis, y_axis: Axis, x: Scale, y: Scale, width: float, height: float) -> list[str]:
    """Draw the lines, numbers and labels of a frame."""
    parts = []
    for value, text in axis_ticks(y_axis, y, about=6):
        at = y(value)
        parts.append(
            f'<line class="grid" x1="{x.begin:.0f}" x2="{x.end:.0f}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{x.begin - 5:.0f}" y="{at + 4:.1f}" text-anchor="end">'
            f"{escape(_cut(text, x.begin - 22))}</text>"
        )
    inner = x.end - x.begin
    longest = max((len(text) for text in x_axis.categories), default=6)
    room = max(44.0, min(110.0, _DIGIT * longest + 10.0))
    for value, text in axis_ticks(x_axis, x, about=max(2, int(inner // room))):
        lines = text.split("\n")
        spans = "".join(
            f'<tspan x="{x(value):.1f}" dy="{0 if index == 0 else 12}">'
            f"{escape(_cut(line, room))}</tspan>"
            for index, line in enumerate(lines[:2])
        )
        parts.append(
            f'<text x="{x(value):.1f}" y="{y.begin + 16:.0f}" text-anchor="middle">{spans}</text>'
        )
    parts.append(
        f'<text x="{(x.begin + x.end) / 2:.0f}" y="{height - 5:.0f}" text-anchor="middle">'
        f"{escape(_cut(x_axis.label, width))}</text>"
    )
    if y_axis.label:
        parts.append(
            f'<text transform="translate(12 {(y.begin + y.end) / 2:.0f}) rotate(-90)" '
            f'text-anchor="middle">{escape(_cut(y_axis.label, height))}</text>'
        )
    return parts


def _cut(text: str, pixels: float) -> str:
    return shortened(text, max(4, int(pixels / 6.2)))


def finite(values: object) -> list[float]:
    """List the finite numbers of an array."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    return [float(value) for value in numbers[np.isfinite(numbers)]]
