"""Charts drawn by plotly: the same marks, with values under the pointer."""

from __future__ import annotations

import json
from html import escape
from itertools import cycle
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from autorl.landscapes.analysis._chart import Axis, Bars, Chart, HeatMap, Line
from autorl.landscapes.analysis._static import GREY, PALETTE
from autorl.landscapes.regression import Array

_SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up"}


_STYLE = (
    ":root { color-scheme: light dark; } "
    "body { font: 15px/1.5 system-ui, sans-serif; margin: 1rem; } "
    "body { color: #1c1f23; background: #fff; } "
    "h1 { font-size: 1.2rem; margin: 0; } p { margin: .2rem 0; overflow-wrap: anywhere; } "
    "@media (prefers-color-scheme: dark) { body { color: #e4e6ea; background: #16181c; } }"
)
_FOLLOW_SCHEME = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => Plotly.relayout("{plot_id}", dark.matches ? %s : %s);
dark.addEventListener("change", paint);
paint();
"""
"""Paints text and grid anew when the color scheme changes; plotly puts the id of the drawing in."""


class Figure(Protocol):
    """The part of plotly's Figure that is used.

    plotly has no types of its own.
    """

    def add_trace(self, trace: object) -> object: ...

    def update_layout(self, **layout: object) -> object: ...

    def to_html(self, **options: object) -> str: ...


def draw(chart: Chart, plotly: ModuleType) -> Any:
    """Draw the chart as a figure of the module plotly.graph_objects."""
    figure = plotly.Figure()
    colors = cycle(PALETTE)
    for mark in chart.marks:
        if isinstance(mark, HeatMap):
            _heat_map(figure, plotly, mark, chart)
        elif isinstance(mark, Bars):
            _bars(figure, plotly, mark, chart)
        else:
            color = GREY if mark.muted else next(colors)
            _line(figure, plotly, mark, color, on_map=isinstance(chart.marks[0], HeatMap))
    upside_down = not isinstance(chart.marks[0], Line)
    figure.update_layout(
        title={"text": f"{chart.title}<br><sub>{chart.about}</sub>", "x": 0.01},
        template="plotly_white",
        xaxis=_axis(chart.x, upside_down=False),
        yaxis=_axis(chart.y, upside_down=upside_down),
        showlegend=isinstance(chart.marks[0], Line),
        margin={"t": 90},
    )
    return figure


def page(figure: Figure, chart: Chart) -> str:
    """Write a figure as a page that needs no network.

    Title and text stand above it, where they wrap in a narrow window, and so does the legend.
    """
    legend = {"orientation": "h", "x": 0.0, "y": 1.02, "yanchor": "bottom"}
    colors = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}
    margin = {"t": 30, "l": 20, "r": 20}
    figure.update_layout(title=None, legend=legend, margin=margin, **colors)
    drawing = figure.to_html(
        include_plotlyjs=True,
        full_html=False,
        # Without an id of its own the drawing gets a random one.
        div_id="chart",
        config={"responsive": True},
        post_script=_FOLLOW_SCHEME % (json.dumps(_inks(dark=True)), json.dumps(_inks(dark=False))),
    )
    title = escape(chart.title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{escape(chart.about)}</p>"
        f"{drawing}</body></html>\n"
    )


def _inks(*, dark: bool) -> dict[str, str]:
    """Return the colors of text and grid as changes of the layout."""
    ink, grid = ("#e4e6ea", "#3a3f47") if dark else ("#1c1f23", "#e3e6ea")
    lines = ("gridcolor", "zerolinecolor", "linecolor")
    of_axes = {f"{axis}.{line}": grid for axis in ("xaxis", "yaxis") for line in lines}
    return {"font.color": ink, **of_axes}


def _line(
    figure: Figure, plotly: ModuleType, mark: Line, color: str, *, on_map: bool = False
) -> None:
    names = mark.names or tuple(f"{value:,.6g}" for value in mark.x)
    parts = {"lines": mark.joined, "markers": bool(mark.marker)}
    mode = "+".join(part for part, drawn in parts.items() if drawn)
    x = mark.x.tolist()
    y = mark.y.tolist()
    bars = None
    # Texts are HTML to plotly, where a line feed (10) is no new line.
    texts = [
        f"{name.replace(chr(10), ', ')}<br>{value:.6g}"
        for name, value in zip(names, y, strict=True)
    ]
    if mark.band is not None:
        low, high = (bound.tolist() for bound in mark.band)
        texts = [
            f"{text} ({a:.6g} to {b:.6g})" for text, a, b in zip(texts, low, high, strict=True)
        ]
        if mark.joined:
            # A band is a polygon: along its upper end, and back along the lower one. In the group
            # of its line, it vanishes with it when the legend is clicked.
            red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
            figure.add_trace(
                plotly.Scatter(
                    x=x + x[::-1],
                    y=high + low[::-1],
                    # Without a mode plotly draws the corners of a short band, in colors of its own.
                    mode="none",
                    fill="toself",
                    fillcolor=f"rgba({red},{green},{blue},0.15)",
                    hoverinfo="skip",
                    legendgroup=mark.label,
                    showlegend=False,
                )
            )
        else:
            bars = _error_bars(mark.y, mark.band)
    marker = {"color": color, "size": 7, "symbol": _SYMBOLS.get(mark.marker, "circle")}
    if on_map:
        # A map has every color: a light edge sets points off.
        marker["line"] = {"width": 1, "color": "white"}
    figure.add_trace(
        plotly.Scatter(
            x=x,
            y=y,
            mode=mode,
            name=mark.label,
            legendgroup=mark.label,
            line={"color": color, "shape": "hv" if mark.stepped else "linear"},
            marker=marker,
            error_y=bars,
            text=texts,
            hovertemplate="%{text}<extra>" + mark.label + "</extra>",
        )
    )


def _error_bars(values: Array, interval: tuple[Array, Array]) -> dict[str, object]:
    """Turn the ends of intervals into plotly's lengths of error bars."""
    low, high = interval
    # A bootstrap interval may leave its estimate out: no bar reaches backwards then.
    above = np.maximum(0.0, high - values)
    below = np.maximum(0.0, values - low)
    return {
        "type": "data",
        "array": above.tolist(),
        "arrayminus": below.tolist(),
        "symmetric": False,
    }


def _bars(figure: Figure, plotly: ModuleType, mark: Bars, chart: Chart) -> None:
    around = None if mark.interval is None else _error_bars(mark.values, mark.interval)
    # By position: bars of equal names would share one place on an axis of names.
    figure.add_trace(
        plotly.Bar(
            x=mark.values.tolist(),
            y=list(range(len(mark.values))),
            orientation="h",
            error_x=around,
            marker={"color": PALETTE[0]},
            text=list(mark.texts) or None,
            customdata=list(chart.y.categories),
            hovertemplate="%{customdata}<br>%{x:.6g}<extra></extra>",
        )
    )
    figure.update_layout(height=max(360, 200 + 26 * len(mark.values)))


def _heat_map(figure: Figure, plotly: ModuleType, mark: HeatMap, chart: Chart) -> None:
    low, high = mark.limits
    template = "%{z:.2f}" if mark.annotate else None
    # JSON has no NaN.
    values = [[None if np.isnan(value) else float(value) for value in row] for row in mark.values]
    texts = [
        [
            f"{row.replace(chr(10), ' ')}, {column.replace(chr(10), ' ')}"
            for column in chart.x.categories
        ]
        for row in chart.y.categories
    ]
    figure.add_trace(
        plotly.Heatmap(
            z=values,
            zmin=low,
            zmax=high,
            colorscale="Viridis",
            colorbar={"title": {"text": mark.label, "side": "right"}},
            customdata=texts,
            texttemplate=template,
            hoverongaps=False,
            hovertemplate="%{customdata}<br>%{z:.6g}<extra></extra>",
        )
    )
    figure.update_layout(height=max(420, 200 + 34 * len(values)))


def _axis(axis: Axis, *, upside_down: bool) -> dict[str, Any]:
    layout: dict[str, Any] = {"title": {"text": axis.label}, "automargin": True}
    ticks = axis.ticks or tuple(
        (float(at), name.replace("\n", "<br>")) for at, name in enumerate(axis.categories)
    )
    if ticks:
        layout |= {"tickvals": [at for at, _ in ticks], "ticktext": [name for _, name in ticks]}
    # On plotly's log axis a tick distance of 1 is a decade.
    if axis.scale == "log":
        layout |= {"type": "log", "dtick": 1, "exponentformat": "power"}
    # plotly counts rows upwards, a chart's first one is on top.
    if axis.categories and upside_down:
        layout["autorange"] = "reversed"
    elif axis.limits is not None and None not in axis.limits:
        layout["range"] = list(axis.limits)
    return layout
