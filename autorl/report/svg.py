"""Line charts as inline SVG.

No script, no network, readable in print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from autorl.report.text import number

WIDTH = 720
NARROW_WIDTH = 360
HEIGHT = 320
# Pixels around the frame: room for numbers on the left, numbers and a label below.
_LEFT = 70
_RIGHT = 16
_TOP = 14
_BOTTOM = 46


@dataclass(frozen=True)
class Band:
    """A horizontal line with an optional interval around it."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


def step_chart(
    points: Sequence[tuple[float, float]],
    bands: Sequence[Band],
    x_label: str,
    y_label: str,
    *,
    width: int = WIDTH,
) -> str:
    """Draw a staircase through points, and horizontal bands.

    x ascends, y holds until the next x. The chart is `width` pixels wide.

    Raises:
        ValueError: there are no points.
    """
    if not points:
        raise ValueError("a chart needs at least one point")
    heights = [y for _, y in points]
    heights += [y for band in bands for y in (band.value, band.low, band.high) if y is not None]
    low = min(heights)
    high = max(heights)
    # Equal scores have no range to take a share of, and zeros no size.
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    # From step 0, so that the first score stands where it was paid for.
    frame = _Frame((0.0, points[-1][0]), (low - room, high + room), width)
    parts = [*_grid(frame), *(part for band in bands for part in _band(frame, band))]
    # Level until the next x, then straight up or down: a score holds until a better one is known.
    path = f"M{frame.x(points[0][0]):.1f} {frame.y(points[0][1]):.1f}"
    for x, y in points[1:]:
        path += f"H{frame.x(x):.1f}V{frame.y(y):.1f}"
    parts.append(f'<path class="line" d="{path}"/>')
    parts.append(
        f'<text x="{width / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(14 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    title = f"<title>{escape(y_label)} over {escape(x_label)}</title>"
    return f'<svg viewBox="0 0 {width} {HEIGHT}" role="img">{title}{"".join(parts)}</svg>'


@dataclass(frozen=True)
class _Frame:
    """A map from data to pixels."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: int = WIDTH

    @property
    def right(self) -> int:
        """Where the frame ends."""
        return self.width - _RIGHT

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / ((high - low) or 1.0) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        # y of SVG grows downwards.
        return HEIGHT - _BOTTOM - (value - low) / ((high - low) or 1.0) * (HEIGHT - _TOP - _BOTTOM)


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


def _grid(frame: _Frame) -> list[str]:
    parts = []
    for value in ticks(*frame.y_range):
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{frame.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        )
    # A number every 80 pixels at most.
    for value in ticks(*frame.x_range, about=min(5, (frame.right - _LEFT) // 80)):
        x = frame.x(value)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
            f"{number(value)}</text>"
        )
    return parts


def _band(frame: _Frame, band: Band) -> list[str]:
    right = frame.right
    y = frame.y(band.value)
    parts = []
    if band.low is not None and band.high is not None:
        top = frame.y(band.high)
        height = frame.y(band.low) - top
        parts.append(
            f'<rect class="band" x="{_LEFT}" y="{top:.1f}" '
            f'width="{right - _LEFT}" height="{height:.1f}"/>'
        )
    parts.append(f'<line class="level" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts.append(f'<text x="{right}" y="{y - 4:.1f}" text-anchor="end">{escape(band.label)}</text>')
    return parts
