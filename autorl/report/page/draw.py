"""Draws the charts that `autorl.landscapes.analysis` declares as SVG of a page.

A figure has its title, its legend (buttons that hide a series) and one drawing for wide screens and
paper and another for narrow ones, where text would become too small. What is pointed at has its
text in `data-tip`. Without the script a figure is a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np

from autorl.landscapes.analysis import Axis, Bars, Chart, HeatMap, Line
from autorl.plain_text import shortened
from autorl.report.page.frame import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Scale,
    finite,
    grid,
    scale_of,
    short_number,
)

WIDE = 720
NARROW = 350
HEIGHT = 300
COLORS = 7
"""Colors of series, `--c0` and so on in the style."""
_MOST_POINTS = 240
"""Points of a joined line that can be pointed at."""
_LETTER = 7.0
"""Pixels of a letter of text, on average."""
_BAR = 34
_CELL = 28
_LOW_CELL = 18
_FEW_ROWS = 12
_FEW_SPOTS = 100
_VIRIDIS = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725")


def figure(chart: Chart, *, small: bool = False, kind: str = "") -> str:
    """Draw a chart with its title, legend and text.

    Args:
        chart: what is drawn.
        small: one drawing for all screens, to stand beside others.
        kind: the name of the chart, to be addressed by.
    """
    lines = [mark for mark in chart.marks if isinstance(mark, Line)]
    legend = _legend(lines) if len(lines) > 1 else ""
    label = escape(f"{chart.title}. {chart.about}" if chart.about else chart.title)
    widths = (("", NARROW),) if small else (("for-wide", WIDE), ("for-narrow", NARROW))
    drawings = "".join(
        f'<div class="drawing {name}">{drawing(chart, width, label)}</div>'
        for name, width in widths
    )
    about = f"<p class=note>{escape(chart.about)}</p>" if chart.about else ""
    name = f' data-chart="{escape(kind)}"' if kind else ""
    return (
        f'<figure class="chart{" small" if small else ""}"{name}>'
        f"<figcaption><b>{escape(chart.title)}</b>{about}</figcaption>{legend}{drawings}</figure>"
    )


def drawing(chart: Chart, width: int, label: str) -> str:
    """Draw a chart as one SVG, `width` pixels wide.

    Raises:
        ValueError: the chart has nothing to draw.
    """
    if not chart.marks:
        raise ValueError("a chart needs at least one mark")
    first = chart.marks[0]
    if isinstance(first, Bars):
        parts, height = _bars(chart, first, width)
    elif isinstance(first, HeatMap):
        parts, height = _heat_map(chart, first, width)
        for mark in chart.marks[1:]:
            if isinstance(mark, Line):
                parts += _spots(mark, first, width)
    else:
        lines = [mark for mark in chart.marks if isinstance(mark, Line)]
        height = HEIGHT if width == WIDE else 260
        parts = _lines(chart, lines, width, height)
    return (
        f'<svg viewBox="0 0 {width} {height}" class="plot" tabindex="0" role="group" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def shade(share: float) -> str:
    """Return the color of a share: dark for 0, bright for 1."""
    at = min(1.0, max(0.0, share)) * (len(_VIRIDIS) - 1)
    index = min(int(at), len(_VIRIDIS) - 2)
    ends = [_VIRIDIS[index], _VIRIDIS[index + 1]]
    channels = [[int(text[place : place + 2], 16) for place in (1, 3, 5)] for text in ends]
    mixed = [round(low + (high - low) * (at - index)) for low, high in zip(*channels, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def luminance(color: str) -> float:
    """Return the relative luminance of a color (WCAG 2), 0 to 1."""
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _legend(lines: Sequence[Line]) -> str:
    buttons = "".join(
        f'<button type="button" class="key {_color(lines, index)}" data-series="{index}" '
        f'aria-pressed="true">{escape(shortened(line.label, 70))}</button>'
        for index, line in enumerate(lines)
    )
    return f"<div class=legend>{buttons}</div>"


def _color(lines: Sequence[Line], index: int) -> str:
    if lines[index].muted:
        return "muted"
    drawn = sum(not line.muted for line in lines[:index])
    return f"c{drawn % COLORS}"


def _lines(chart: Chart, lines: Sequence[Line], width: int, height: int) -> list[str]:
    across = [value for line in lines for value in finite(line.x)]
    upwards = [value for line in lines for value in finite(line.y)]
    for line in lines:
        upwards += [value for bound in line.band or () for value in finite(bound)]
    x = scale_of(chart.x, across, LEFT, width - RIGHT)
    y = scale_of(chart.y, upwards, height - BOTTOM, TOP)
    parts = grid(chart.x, chart.y, x, y, width, height)
    for index, line in enumerate(lines):
        drawn = "".join([*_band(line, x, y), _path(line, x, y), *_points(chart, line, x, y)])
        color = _color(lines, index)
        parts.append(f'<g class="series {color}" data-series="{index}">{drawn}</g>')
    return parts


def _path(line: Line, x: Scale, y: Scale) -> str:
    if not line.joined:
        return ""
    text = ""
    drawing_on = False
    for at, value in zip(line.x, line.y, strict=True):
        if not (np.isfinite(at) and np.isfinite(value)):
            drawing_on = False
            continue
        across = f"{x(float(at)):.1f}"
        upwards = f"{y(float(value)):.1f}"
        if not drawing_on:
            text += f"M{across} {upwards}"
        else:
            # A value that holds until the next: level, then straight up or down.
            text += f"H{across}V{upwards}" if line.stepped else f"L{across} {upwards}"
        drawing_on = True
    return f'<path class="line" d="{text}"/>'


def _band(line: Line, x: Scale, y: Scale) -> list[str]:
    if line.band is None:
        return []
    low, high = line.band
    rows = [
        (x(float(at)), y(float(bottom)), y(float(top)))
        for at, bottom, top in zip(line.x, low, high, strict=True)
        if np.isfinite(at) and np.isfinite(bottom) and np.isfinite(top)
    ]
    if line.joined and len(rows) > 1:
        upper = " ".join(f"{at:.1f},{top:.1f}" for at, _, top in rows)
        lower = " ".join(f"{at:.1f},{bottom:.1f}" for at, bottom, _ in reversed(rows))
        return [f'<polygon class="band" points="{upper} {lower}"/>']
    return [
        f'<line class="whisker" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom:.1f}" y2="{top:.1f}"/>'
        for at, bottom, top in rows
    ]


def _points(chart: Chart, line: Line, x: Scale, y: Scale) -> list[str]:
    """Draw what can be pointed at.

    Of a long line that is joined only some: its path has all.
    """
    every = 1
    if line.joined and not line.marker:
        every = max(1, len(line.x) // _MOST_POINTS)
    # Of a joined line without markers the points are seen only when pointed at.
    shown = "pt" if line.marker or not line.joined else "pt hid"
    size = 4 if line.marker or not line.joined else 3
    parts = []
    for index in range(0, len(line.x), every):
        at = float(line.x[index])
        value = float(line.y[index])
        if not (np.isfinite(at) and np.isfinite(value)):
            continue
        tip = escape(_tip(chart, line, index))
        parts.append(
            f'<circle class="{shown}" cx="{x(at):.1f}" cy="{y(value):.1f}" r="{size}" '
            f'data-tip="{tip}"/>'
        )
    return parts


def _tip(chart: Chart, line: Line, index: int) -> str:
    at = float(line.x[index])
    name = line.names[index] if line.names else ""
    if not name and chart.x.categories:
        name = chart.x.categories[int(at)]
    if not name:
        name = f"{chart.x.label} {at:,.6g}"
    text = f"{line.label}\n{name}\n{chart.y.label} {float(line.y[index]):,.6g}"
    if line.band is not None:
        low, high = (float(bound[index]) for bound in line.band)
        if np.isfinite(low) and np.isfinite(high):
            text += f" ({low:,.6g} to {high:,.6g})"
    return text


def _bars(chart: Chart, mark: Bars, width: int) -> tuple[list[str], int]:
    """Draw horizontal bars, each below its name: names may be long."""
    height = TOP + BOTTOM + _BAR * len(mark.values)
    ends = [0.0, *finite(mark.values)]
    for bound in mark.interval or ():
        ends += finite(bound)
    low = min(ends)
    high = max(ends)
    if chart.x.limits is not None:
        low, high = (
            end if limit is None else float(limit)
            for end, limit in zip((low, high), chart.x.limits, strict=True)
        )
    x = Scale(low, high if high > low else low + 1.0, 14.0, width - 70.0)
    parts = [
        f'<text x="{width / 2:.0f}" y="{height - 8}" text-anchor="middle">'
        f"{escape(shortened(chart.x.label, int(width / _LETTER)))}</text>"
    ]
    for index, value in enumerate(mark.values):
        if not np.isfinite(value):
            continue
        name = chart.y.categories[index]
        top = TOP + _BAR * index
        left, right = sorted((x(0.0), x(float(value))))
        text = mark.texts[index] if mark.texts else short_number(float(value))
        tip = f"{name}\n{chart.x.label} {float(value):.6g}"
        whisker = ""
        if mark.interval is not None:
            bounds = [float(bound[index]) for bound in mark.interval]
            tip += f" ({bounds[0]:.6g} to {bounds[1]:.6g})"
            if np.isfinite(bounds).all():
                whisker = (
                    f'<line class="whisker" x1="{x(bounds[0]):.1f}" x2="{x(bounds[1]):.1f}" '
                    f'y1="{top + 22}" y2="{top + 22}"/>'
                )
                right = max(right, x(bounds[1]))
        parts.append(
            f'<text x="{x.begin:.0f}" y="{top + 12}">{escape(shortened(name, width // 8))}</text>'
            f'<rect class="bar" x="{min(left, x(0.0)):.1f}" y="{top + 16}" '
            f'width="{max(1.0, abs(x(float(value)) - x(0.0))):.1f}" height="12" '
            f'data-tip="{escape(tip)}"/>{whisker}'
            f'<text x="{right + 6:.1f}" y="{top + 26}">{escape(shortened(text, 24))}</text>'
        )
    return parts, height


def _heat_map(chart: Chart, mark: HeatMap, width: int) -> tuple[list[str], int]:
    rows, columns = mark.values.shape
    below = 74
    left, size, cell = _cells(mark, width)
    height = TOP + below + cell * rows + 30
    numbers = finite(mark.values)
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    low, high = (
        end if limit is None else float(limit)
        for end, limit in zip((low, high), mark.limits, strict=True)
    )
    parts = []
    every = max(1, int(np.ceil(30.0 / size)))
    for row in range(rows):
        top = TOP + cell * row
        name = _flat(chart.y.categories[row])
        parts.append(
            f'<text x="{left - 5:.0f}" y="{top + cell / 2 + 4:.0f}" text-anchor="end">'
            f"{escape(shortened(name, int(left / 7)))}</text>"
        )
        for column in range(columns):
            value = float(mark.values[row, column])
            if not np.isfinite(value):
                continue
            share = (value - low) / ((high - low) or 1.0)
            tip = f"{name}, {_flat(chart.x.categories[column])}\n{mark.label} {value:.6g}"
            begin = left + size * column
            parts.append(
                f'<rect class="cell" x="{begin:.1f}" y="{top}" width="{size + 0.3:.1f}" '
                f'height="{cell}" fill="{shade(share)}" data-tip="{escape(tip)}"/>'
            )
            if mark.annotate and size >= 30:
                # Of WCAG's two contrasts the larger: never below 4.58.
                ink = "dark" if luminance(shade(share)) > 0.179 else "bright"
                parts.append(
                    f'<text class="on-{ink}" x="{begin + size / 2:.1f}" '
                    f'y="{top + cell / 2 + 4:.0f}" '
                    f'text-anchor="middle">{value:.2f}</text>'
                )
    base = TOP + cell * rows
    for column in range(0, columns, every):
        at = left + size * (column + 0.5)
        name = escape(shortened(_flat(chart.x.categories[column]), 12))
        parts.append(
            f'<text transform="translate({at + 3:.1f} {base + 10}) rotate(-40)" '
            f'text-anchor="end">{name}</text>'
        )
    parts += _color_bar(mark, low, high, width, height)
    if chart.x.label:
        parts.append(
            f'<text x="{(left + width - RIGHT) / 2:.0f}" y="{base + below - 6}" '
            f'text-anchor="middle">{escape(shortened(chart.x.label, 50))}</text>'
        )
    if chart.y.label:
        parts.append(
            f'<text transform="translate(11 {TOP + cell * rows / 2:.0f}) rotate(-90)" '
            f'text-anchor="middle">{escape(shortened(chart.y.label, 40))}</text>'
        )
    return parts, height


def _cells(mark: HeatMap, width: int) -> tuple[float, float, int]:
    """Return where a heat map begins, and its cells' width and height."""
    rows, columns = mark.values.shape
    left = 130.0 if width == WIDE else 84.0
    return left, (width - RIGHT - left) / columns, _CELL if rows <= _FEW_ROWS else _LOW_CELL


def _spots(mark: Line, below: HeatMap, width: int) -> list[str]:
    """Draw points on a heat map.

    The middle of its cell 0 is at 0.
    """
    left, size, cell = _cells(below, width)
    radius = 3 if width == WIDE and len(mark.x) <= _FEW_SPOTS else 2
    parts = []
    for at, value, name in zip(mark.x, mark.y, mark.names, strict=True):
        across = left + size * (float(at) + 0.5)
        down = TOP + cell * (float(value) + 0.5)
        tip = escape(f"{mark.label}\n{name}")
        parts.append(
            f'<circle class="spot" cx="{across:.1f}" cy="{down:.1f}" r="{radius}" '
            f'data-tip="{tip}"/>'
        )
    return parts


def _color_bar(mark: HeatMap, low: float, high: float, width: int, height: int) -> list[str]:
    """Draw what the colors mean below a heat map."""
    begin = 8.0
    end = width - RIGHT
    edges = np.linspace(begin, begin + 0.2 * (end - begin), 21)
    parts = [
        f'<rect x="{left:.1f}" y="{height - 18}" width="{right - left + 0.3:.1f}" height="10" '
        f'fill="{shade(index / 19)}"/>'
        for index, (left, right) in enumerate(pairwise(edges))
    ]
    text = f"{short_number(low)} to {short_number(high)}: {mark.label}"
    parts.append(
        f'<text x="{edges[-1] + 6:.0f}" y="{height - 9}">'
        f"{escape(shortened(text, int((end - edges[-1]) / _LETTER)))}</text>"
    )
    return parts


def _flat(text: str) -> str:
    return text.replace("\n", ", ")


def level(label: str, value: float, interval: tuple[float, float] | None, end: float) -> Line:
    """Make a horizontal line, with its interval as a band."""
    across = np.array([0.0, end])
    band = None
    if interval is not None:
        band = (np.full(2, interval[0]), np.full(2, interval[1]))
    return Line(label, across, np.full(2, value), band, names=("", ""))


def number_axis(label: str) -> Axis:
    """Make an axis of numbers on a linear scale."""
    return Axis(label)
