"""Charts drawn by matplotlib."""

from __future__ import annotations

import textwrap
from itertools import cycle
from typing import Any

import numpy as np

from autorl.landscapes.analysis._chart import Axis, Bars, Chart, HeatMap, Line

# Okabe and Ito's colors, which the color-blind tell apart, and one more.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a")
GREY = "#8a8a8a"
_MOST_INSIDE = 3  # lines that leave room for a legend on the axes
_MOST_NAMES = 17  # of a thinned axis


def draw(chart: Chart, new_figure: Any) -> Any:
    """Draw the chart on a new figure.

    `new_figure` is matplotlib's class `Figure`, or a function that makes one.
    """
    width, height = _size(chart)
    # 13 letters of the small font to an inch of width, 0.17 inches to a line.
    about = textwrap.wrap(chart.about, int(13 * width))
    head = 0.4 + 0.17 * len(about)
    figure = new_figure(figsize=(width, height + head), layout="constrained")
    # The layout does not see texts of a figure: it gets the rectangle below them.
    figure.get_layout_engine().set(rect=(0.0, 0.0, 1.0, height / (height + head)))
    figure.text(0.01, 1 - 0.08 / (height + head), chart.title, va="top", fontsize="large")
    figure.text(
        0.01,
        1 - 0.34 / (height + head),
        "\n".join(about),
        va="top",
        fontsize="small",
        color="#555555",
    )
    axes = figure.add_subplot()
    first = chart.marks[0]
    if isinstance(first, HeatMap):
        _heat_map(figure, axes, first)
        for mark in chart.marks[1:]:
            if isinstance(mark, Line):
                _spots(axes, mark)
    elif isinstance(first, Bars):
        _bars(axes, first)
    else:
        _lines(axes, [mark for mark in chart.marks if isinstance(mark, Line)])
    if not isinstance(first, HeatMap):
        axes.spines[["top", "right"]].set_visible(False)
        across = "x" if isinstance(first, Bars) else "y"
        axes.grid(axis=across, color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
    long_names = sum(map(len, chart.x.categories)) > 12 * width
    rotation = 35 if long_names else 0
    _axis(axes.xaxis, axes.set_xlim, axes.set_xscale, chart.x, rotation=rotation)
    _axis(axes.yaxis, axes.set_ylim, axes.set_yscale, chart.y)
    axes.set_xlabel(chart.x.label)
    axes.set_ylabel(chart.y.label)
    return figure


def _size(chart: Chart) -> tuple[float, float]:
    """Return width and height in inches.

    There is room for every bar and cell.
    """
    first = chart.marks[0]
    if isinstance(first, Bars):
        longest = max(map(len, chart.y.categories))
        return 7.2 + 0.08 * max(0, longest - 30), 1.1 + 0.27 * len(first.values)
    if isinstance(first, HeatMap):
        rows, columns = first.values.shape
        return max(5.4, 3.6 + 0.48 * columns), max(3.4, 2.0 + 0.38 * rows)
    labels = 0.0 if len(chart.marks) <= _MOST_INSIDE else 2.4
    return max(7.2, 0.75 * len(chart.x.categories)) + labels, 3.8


def _lines(axes: Any, marks: list[Line]) -> None:
    colors = cycle(PALETTE)
    # Another style once all colors are used, so that 21 lines look different.
    styles = cycle(["-"] * len(PALETTE) + ["--"] * len(PALETTE) + [":"] * len(PALETTE))
    for mark in marks:
        color, style = (GREY, "-") if mark.muted else (next(colors), next(styles))
        line = style if mark.joined else "none"
        if mark.band is not None and mark.joined:
            axes.fill_between(mark.x, *mark.band, color=color, alpha=0.15, linewidth=0)
        elif mark.band is not None:
            # matplotlib refuses lengths below 0, of a point outside its interval.
            around = np.maximum(0.0, np.stack([mark.y - mark.band[0], mark.band[1] - mark.y]))
            axes.errorbar(mark.x, mark.y, yerr=around, fmt="none", ecolor=color, capsize=3)
        axes.plot(
            mark.x,
            mark.y,
            linestyle=line,
            marker=mark.marker or None,
            markersize=4.5,
            color=color,
            label=mark.label,
            drawstyle="steps-post" if mark.stepped else "default",
        )
    if len(marks) > _MOST_INSIDE:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize="small")
    else:
        axes.legend(frameon=False, fontsize="small")


def _bars(axes: Any, mark: Bars) -> None:
    places = np.arange(len(mark.values))
    around = None
    if mark.interval is not None:
        low, high = mark.interval
        around = np.maximum(0.0, np.stack([mark.values - low, high - mark.values]))
    axes.barh(
        places, mark.values, xerr=around, color=PALETTE[0], ecolor=GREY, capsize=2, height=0.7
    )
    for at, value, text in zip(places, mark.values, mark.texts, strict=False):
        axes.annotate(
            text,
            (value, at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    if mark.texts:
        # Room for what stands behind the longest bar: labels do not widen an axis.
        axes.margins(x=0.22)
        axes.set_xlim(left=0.0)
    # From bottom to top, so that the first bar is on top.
    axes.set_ylim(len(places) - 0.4, -0.6)


def _heat_map(figure: Any, axes: Any, mark: HeatMap) -> None:
    low, high = mark.limits
    image = axes.imshow(mark.values, cmap="viridis", vmin=low, vmax=high, aspect="auto")
    figure.colorbar(image, ax=axes, label=mark.label)
    if not mark.annotate:
        return
    for (row, column), value in np.ndenumerate(mark.values):
        if not np.isnan(value):
            # The lower part of viridis is dark.
            color = "w" if image.norm(value) < 0.6 else "k"
            axes.text(
                column,
                row,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize="x-small",
                color=color,
            )


def _spots(axes: Any, mark: Line) -> None:
    """Draw points on a heat map."""
    # It has every color: a light edge sets them off.
    axes.plot(mark.x, mark.y, "o", color=GREY, markeredgecolor="w", markersize=4)


def _axis(axis: Any, set_limits: Any, set_scale: Any, chosen: Axis, rotation: float = 0) -> None:
    if chosen.scale == "log":
        set_scale("log")
    if chosen.categories:
        every = max(1, -(-len(chosen.categories) // _MOST_NAMES)) if chosen.thin else 1
        turned = (
            {"rotation": rotation, "ha": "right", "rotation_mode": "anchor"} if rotation else {}
        )
        axis.set_ticks(
            range(0, len(chosen.categories), every), chosen.categories[::every], **turned
        )
    elif chosen.ticks:
        axis.set_ticks([at for at, _ in chosen.ticks], [name for _, name in chosen.ticks])
    if chosen.limits is not None:
        set_limits(*chosen.limits)
