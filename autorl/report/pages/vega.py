"""Writes charts as Vega-Lite, and Vega-Lite as pictures.

Every mark has its place by numbers; names stand on the axes. Colors are variables of the style
(`var(--c0)`): a page sets them for light and dark, and a picture has the light ones. Names of users
are strings in expressions, never code.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np

from autorl.core.plain_text import number, shortened
from autorl.core.shipped import cache_folder
from autorl.report.pages.chart import Axis, Bars, Chart, HeatMap, Line, Spans
from autorl.store.outputs import MARK, write_whole

Json: TypeAlias = dict[str, Any]
# Okabe and Ito's colors, which the color-blind tell apart, and one more; in dark paler ones.
PALETTES: Mapping[str, Mapping[str, str]] = {
    "light": {
        "card": "#ffffff", "ink": "#1b1f24", "text": "#59626e", "grid": "#e4e8ee",
        "grey": "#858d98", "c0": "#0072b2", "c1": "#d55e00", "c2": "#00875f", "c3": "#b8568e",
        "c4": "#b07600", "c5": "#2b8fc7", "c6": "#6a3d9a",
    },
    "dark": {
        "card": "#181b20", "ink": "#e6e9ee", "text": "#a5adb9", "grid": "#2c323b",
        "grey": "#8d96a3", "c0": "#5cb8f0", "c1": "#ff9a4d", "c2": "#3ecf9f", "c3": "#eb94c6",
        "c4": "#f0bb45", "c5": "#8fd2f5", "c6": "#b795e0",
    },
}  # fmt: skip
_COLORS = 7
_SHAPES = {"o": "circle", "s": "square", "^": "triangle-up", "": "circle"}
_DASHES = ([1, 0], [6, 3], [2, 2])
_MOST_NAMES = 17  # of a thinned axis
_FEW_ROWS = 12
_LETTER = 6.2  # pixels of a letter on an axis
# The area around a point that is nearest to the pointer has the point's row in its own.
_TIP: Json = {"value": {"expr": "(datum.datum || datum).tip"}}
_FAINT = 0.06  # what the legend has put aside
_SEEN = "(length(data('seen_store')) == 0 || vlSelectionTest('seen_store', datum))"
_DARK_CELLS = 0.43
"""Share of viridis below which white stands out more than black, at a contrast of 4.5 at least."""
_NUMBER = (
    "abs(datum.value) >= 1e4 ? format(datum.value, '~s') : "
    "abs(datum.value) < 1e-4 && datum.value != 0 ? format(datum.value, '.3~e') : "
    "format(datum.value, '.4~f')"
)
_CONFIG: Json = {
    "background": None,
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--text)", "titleColor": "var(--text)", "gridColor": "var(--grid)",
        "domainColor": "var(--grid)", "tickColor": "var(--grid)", "labelFontSize": 11,
        "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8, "labelPadding": 6,
        "ticks": False, "labelLimit": 130, "labelOverlap": "greedy",
    },
    "legend": {
        "labelColor": "var(--ink)", "titleColor": "var(--text)", "labelFontSize": 12,
        "titleFontSize": 11, "titleFontWeight": "normal", "orient": "top", "symbolStrokeWidth": 3,
        "columnPadding": 16, "titleLimit": 420, "gradientThickness": 8, "gradientLength": 160,
        "layout": {"top": {"direction": "vertical", "anchor": "start", "margin": 4}},
    },
    "title": {
        "color": "var(--ink)", "subtitleColor": "var(--text)", "anchor": "start", "fontSize": 15,
        "subtitleFontSize": 11, "subtitlePadding": 6, "offset": 14, "frame": "group",
    },
}  # fmt: skip


def spec(chart: Chart, *, small: bool = False) -> Json:
    """Write a chart as Vega-Lite, as wide as its place.

    Raises:
        ValueError: the chart has nothing to draw.
    """
    if not chart.marks:
        raise ValueError("a chart needs at least one mark")
    first = chart.marks[0]
    lines = [mark for mark in chart.marks if isinstance(mark, Line)]
    x = chart.x
    y = chart.y
    across: list[float] = [value for line in lines for value in finite(line.x)]
    layers: list[Json] = []
    height = 170 if small else 260
    if isinstance(first, Bars):
        layers = [_bars(chart, first)]
        y = replace(y, bare=True)
        across = [0.0, *finite(first.values), *finite(first.interval or ())]
        height = 38 * len(first.values)
    elif isinstance(first, HeatMap):
        rows = len(first.values)
        layers = [_cells(chart, first)]
        height = rows * (30 if rows <= _FEW_ROWS else 17)
    elif isinstance(first, Spans):
        layers = [_spans(chart, first)]
        across = finite([first.begin, first.end])
        height = 26 * len(y.categories)
    upwards = [value for line in lines for part in (line.y, *(line.band or ())) for value in part]
    if lines:
        layers.append(_lines(chart, lines))
    slanted = _slanted(x.categories) if x.categories else "false"
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": f"{chart.title}. {chart.about}",
        "params": [{"name": "room", "expr": "width ? containerSize()[0] : 0"}],
        # The library takes slanted names of two lines for lower than they are.
        "padding": {"expr": f"{{left: 5, right: 5, top: 5, bottom: {slanted} ? 34 : 5}}"},
        "width": "container",
        "height": height,
        "encoding": {
            "x": _axis("x", x, across, ruled=chart.y.bare),
            "y": _axis("y", y, finite(upwards), turned=not isinstance(first, Line)),
        },
        "layer": layers,
        "resolve": {"scale": {"color": "independent"}},
        "config": _CONFIG,
    }


def picture(chart: Chart, suffix: str) -> bytes:
    """Return the content of a .svg, .png or .pdf file."""
    import vl_convert

    drawn = spec(chart)
    first = chart.marks[0]
    names = len(chart.x.categories)
    drawn["width"] = max(560, names * (46 if isinstance(first, HeatMap) else 70))
    drawn["params"] = [{"name": "room", "value": drawn["width"]}]
    drawn["title"] = {"text": chart.title}
    if chart.about:
        drawn["title"]["subtitle"] = textwrap.wrap(chart.about, 100)
    drawn |= {"background": "white", "padding": 16}
    plain = re.sub(r"var\(--(\w+)\)", lambda match: PALETTES["light"][match[1]], json.dumps(drawn))
    if suffix == ".svg":
        # The library numbers its gradients on and on.
        svg = re.sub(r"gradient_\d+", "gradient", vl_convert.vegalite_to_svg(plain))
        return svg.replace(">", f"><!-- {MARK} -->", 1).encode()
    if suffix == ".pdf":
        return bytes(vl_convert.vegalite_to_pdf(plain)) + f"%{MARK}\n".encode()
    png = bytes(vl_convert.vegalite_to_png(plain, scale=2))
    text = b"tEXtSoftware\0" + MARK.encode()
    chunk = (len(text) - 4).to_bytes(4) + text + zlib.crc32(text).to_bytes(4)
    # After the signature and the header, which have 33 bytes.
    return png[:33] + chunk + png[33:]


@cache
def library() -> str:
    """Return the script that draws Vega-Lite in a browser.

    It is kept in the cache's folder: to make it takes 1.5 CPU-seconds and 100 MB.
    """
    file = cache_folder("pages") / f"vega-{version('vl-convert-python')}.js"
    # A cache that cannot be read or written costs time alone.
    with suppress(OSError):
        return file.read_text(encoding="utf-8")
    import vl_convert

    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, script)
    return script


def finite(values: object) -> list[float]:
    """List the finite numbers of an array."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    return [float(value) for value in numbers[np.isfinite(numbers)]]


def _axis(
    channel: str, axis: Axis, values: Sequence[float], *, turned: bool = False, ruled: bool = False
) -> Json:
    """Write an axis of numbers, or of categories at 0, 1, 2.

    Args:
        channel: x or y.
        axis: what it is.
        values: on it.
        turned: whether the first category is on top.
        ruled: whether categories have lines.
    """
    scale: Json = {"zero": False, "nice": False}
    drawn: Json = {"grid": channel == "y"}
    if axis.categories:
        count = len(axis.categories)
        scale |= {"domain": [-0.5, count - 0.5], "reverse": turned}
        every = max(1, math.ceil(count / _MOST_NAMES)) if axis.thin else 1
        names = axis.categories[::every]
        drawn |= {"grid": channel == "x" and ruled, **_named(list(range(0, count, every)), names)}
        if channel == "x":
            drawn["labelAngle"] = {"expr": f"{_slanted(names)} ? -35 : 0"}
            drawn["labelAlign"] = {"expr": f"{_slanted(names)} ? 'right' : 'center'"}
    else:
        scale["padding"] = 0 if turned else 8
        # A logarithm has no place for what is not positive: such an axis becomes linear.
        if axis.scale == "log" and values and min(values) > 0:
            scale = {"type": "log", "nice": False, "padding": scale["padding"]}
            drawn["values"] = _decades(min(values), max(values))
        for name, limit in zip(("domainMin", "domainMax"), axis.limits or (), strict=False):
            if limit is not None:
                scale[name] = limit
        drawn |= {"labelExpr": _NUMBER, "tickCount": 5}
        if axis.ticks:
            drawn |= _named([at for at, _ in axis.ticks], [name for _, name in axis.ticks])
    return {
        "field": channel,
        "type": "quantitative",
        "title": shortened(axis.label, 60) or None,
        "scale": scale,
        "axis": None if axis.bare else drawn,
    }


def _slanted(names: Sequence[str]) -> str:
    """Write the expression that says whether names below an axis lack room."""
    longest = max(len(part) for name in names for part in name.split("\n"))
    return f"(room - 60 < {len(names) * (_LETTER * min(longest, 20) + 8):.0f})"


def _decades(low: float, high: float) -> list[float]:
    """List powers of ten, and 2 and 5 between a few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 3 else (1,)
    return [float(f"{factor}e{power}") for power in powers for factor in factors]


def _named(places: Sequence[float], names: Sequence[str]) -> Json:
    """Write names in place of numbers."""
    texts = _text([shortened(name, 60) for name in names])
    return {
        "values": list(places),
        "labelExpr": f"split({texts}[indexof({_text(places)}, datum.value)], '\\n')",
    }


def _lines(chart: Chart, lines: Sequence[Line]) -> Json:
    """Write lines as one data set, drawn by several layers."""
    rows = [row for place, line in enumerate(lines) for row in _points(chart, place, line)]
    labels = [shortened(line.label, 70) for line in lines]
    on_top = not isinstance(chart.marks[0], Line)
    drawn = iter(f"var(--c{place % _COLORS})" for place in range(len(lines)))
    # Bars and cells have every color.
    colors = [
        "var(--grey)" if line.muted else "var(--ink)" if on_top else next(drawn) for line in lines
    ]
    columns = f"max(1, floor((room - 60) / {30 + 7 * max(map(len, labels))}))"
    legend = {
        "title": None, "columns": {"expr": columns}, "symbolLimit": 0,
        "labelLimit": {"expr": "room - 90"}, "symbolType": "circle", "symbolOpacity": 1,
        "symbolStrokeWidth": 0,
    }  # fmt: skip

    def by_label(values: Sequence[object], legend: Json | None = None) -> Json:
        scale = {"domain": labels, "range": values}
        return {"field": "label", "type": "nominal", "scale": scale, "legend": legend}

    def those(wanted: Callable[[Line], bool]) -> list[int]:
        return [place for place, line in enumerate(lines) if wanted(line)]

    def layer(kind: str, wanted: Callable[[Line], bool], encoding: Json, **style: object) -> None:
        if chosen := those(wanted):
            one_of = {"filter": {"field": "s", "oneOf": chosen}}
            layers.append({"transform": [one_of], **_layer(kind, encoding, **style)})

    layers: list[Json] = []
    muted = f"indexof({those(lambda line: line.muted)}, datum.s) >= 0"
    at = {"param": "at", "empty": False}
    interval = _fields(y="lo", y2="hi")
    faded = {"test": f"{muted} && {_SEEN}", "value": 0.45}
    path: Json = {
        **_fields(detail="g"),
        "strokeWidth": {"condition": [{**at, "value": 3}, {"test": muted, "value": 1}], "value": 2},
        "opacity": {
            "condition": [{**at, "value": 1}, faded, {"param": "seen", "value": 1}],
            "value": _FAINT,
        },
    }
    if len(those(lambda line: not line.muted)) > _COLORS:
        dashes = [_DASHES[place // _COLORS % 3] for place in range(len(lines))]
        path["strokeDash"] = by_label(dashes)
    banded = {**interval, **_fields(detail="g")}
    layer("area", lambda line: line.band is not None and line.joined, banded,
          opacity=0.15, tooltip=False)  # fmt: skip
    layer("rule", lambda line: line.band is not None and not line.joined, interval, strokeWidth=1.5)
    layer("line", lambda line: line.joined and not line.stepped, path)
    layer("line", lambda line: line.joined and line.stepped, path, interpolate="step-after")
    marked = those(lambda line: bool(line.marker) or not line.joined)
    pointed = {
        "type": "point", "on": "pointerover", "clear": "pointerout", "nearest": not on_top,
        "fields": ["s", "g"],
    }  # fmt: skip
    shown = [
        {**at, "value": 1},
        {"test": f"indexof({marked}, datum.s) < 0 || !{_SEEN}", "value": 0},
        {"test": muted, "value": 0.55},
    ]
    points: Json = {
        "shape": by_label([_SHAPES[line.marker] for line in lines]),
        "tooltip": _TIP,
        "opacity": {"condition": shown, "value": 0.9},
    }
    edge = {"stroke": "white", "strokeWidth": 1} if isinstance(chart.marks[0], HeatMap) else {}
    seen = {"name": "seen", "select": {"type": "point", "fields": ["label"]}, "bind": "legend"}
    return {
        "data": {"values": rows},
        "transform": _computed(label=f"{_text(labels)}[datum.s]", tip=_tip(chart)),
        "encoding": {"color": by_label(colors, legend if len(lines) > 1 else None)},
        "layer": [
            *layers,
            {
                "params": [seen, {"name": "at", "select": pointed}],
                **_layer("point", points, filled=True, size=36, tooltip=True, **edge),
            },
        ],
    }


def _layer(kind: str, encoding: Json, **style: object) -> Json:
    return {"mark": {"type": kind, **style}, "encoding": encoding}


def _fields(**names: str) -> Json:
    return {channel: {"field": name} for channel, name in names.items()}


def _computed(**expressions: str) -> list[Json]:
    return [{"calculate": text, "as": name} for name, text in expressions.items()]


def _points(chart: Chart, place: int, line: Line) -> Iterator[Json]:
    """Return the rows of a line, a new path after each gap."""
    path = 0
    for index, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
        if not (np.isfinite(x) and np.isfinite(y)):
            path += 1
            continue
        row: Json = {"s": place, "g": path, "x": float(x), "y": float(y)}
        name = line.names[index] if line.names else ""
        if not name and chart.x.categories:
            name = chart.x.categories[round(x)]
        if name:
            row["t"] = name
        if line.band is not None:
            low, high = (float(bound[index]) for bound in line.band)
            if np.isfinite(low) and np.isfinite(high):
                row |= {"lo": low, "hi": high}
        yield row


def _tip(chart: Chart) -> str:
    """Write the expression of the text at a point of a line."""
    text = f"datum.label + '\\n' + (datum.t || {_text(chart.x.label + ' ')} + {_number('datum.x')})"
    # Positions on an axis with texts of its own are no numbers for people.
    if not (chart.y.ticks or chart.y.bare or chart.y.categories):
        text += f" + '\\n' + {_text(chart.y.label + ' ')} + {_number('datum.y')}"
        text += f" + (isValid(datum.lo) ? {_interval()} : '')"
    return text


def _number(name: str) -> str:
    return f"format({name}, ',.4~r')"


def _interval() -> str:
    return f"' (' + {_number('datum.lo')} + ' to ' + {_number('datum.hi')} + ')'"


def _bars(chart: Chart, mark: Bars) -> Json:
    """Write horizontal bars, each below its name: names may be long."""
    low, high = mark.interval or (np.full(len(mark.values), np.nan),) * 2
    rows = []
    for place, value in enumerate(mark.values):
        if not np.isfinite(value):
            continue
        row = {"i": place, "x": float(value), "name": chart.y.categories[place]}
        row["text"] = mark.texts[place] if mark.texts else number(float(value))
        if np.isfinite(low[place]) and np.isfinite(high[place]):
            row |= {"lo": float(low[place]), "hi": float(high[place])}
        rows.append(row)
    tip = (
        f"datum.name + '\\n' + {_text(chart.x.label + ' ')} + {_number('datum.x')} + "
        f"(isValid(datum.lo) ? {_interval()} : '')"
    )
    places = {"above": "- 0.16", "y": "+ 0.16", "top": "+ 0.02", "base": "+ 0.3"}
    name = {"x": {"value": 8}, **_fields(y="above", text="name")}
    layers = [
        _layer("rect", {"x2": {"datum": 0}, **_fields(y="top", y2="base")}, color="var(--c0)",
               cornerRadius=2),
        {
            "transform": [{"filter": "isValid(datum.lo)"}],
            **_layer("rule", _fields(x="lo", x2="hi"), color="var(--ink)", opacity=0.7),
        },
        _layer("text", name, align="left", color="var(--ink)", fontSize=12, baseline="bottom",
               limit={"expr": "room"}),
        _layer("text", _fields(x="end", text="text"), align="left", color="var(--text)", dx=6),
    ]  # fmt: skip
    computed = _computed(
        tip=tip,
        **{name: f"datum.i {shift}" for name, shift in places.items()},
        end="max(datum.x, datum.hi || datum.x, 0)",
    )
    return {
        "data": {"values": rows},
        "transform": computed,
        "encoding": {"tooltip": _TIP},
        "layer": layers,
    }


def _viridis(values: object, limits: tuple[float | None, float | None], label: str) -> Json:
    """Write the color of values, which is bright for high ones."""
    numbers = finite(values) or [0.0, 1.0]
    ends = [
        end if limit is None else limit
        for end, limit in zip((min(numbers), max(numbers)), limits, strict=True)
    ]
    return {
        "field": "v",
        "type": "quantitative",
        "scale": {"scheme": "viridis", "domain": ends, "clamp": True},
        "legend": {"title": label, "format": ".4~r", "tickCount": 3},
    }


def _cells(chart: Chart, mark: HeatMap) -> Json:
    """Write a heat map, each cell a rectangle around its place."""
    names = [[name.replace("\n", ", ") for name in axis.categories] for axis in (chart.y, chart.x)]
    rows = [
        {"y": row, "x": column, "v": float(value)}
        for (row, column), value in np.ndenumerate(mark.values)
        if np.isfinite(value)
    ]
    color = _viridis(mark.values, mark.limits, mark.label)
    low, high = color["scale"]["domain"]
    tip = (
        f"{_text(names[0])}[datum.y] + ', ' + {_text(names[1])}[datum.x] + '\\n' + "
        f"{_text(mark.label + ' ')} + {_number('datum.v')}"
    )
    corners = _fields(x="x1", x2="x2", y="y1", y2="y2")
    colored = {**corners, "color": color, "stroke": {**color, "legend": None}}
    layers = [_layer("rect", colored, strokeWidth=1)]
    if mark.annotate:
        dark = f"datum.v < {low + _DARK_CELLS * (high - low)}"
        ink = {"condition": {"test": dark, "value": "#fff"}, "value": "#000"}
        cell = {"text": {"field": "v", "format": ".2f"}, "color": ink}
        layers.append(_layer("text", cell, fontSize=11))
    ends = {"1": "- 0.5", "2": "+ 0.5"}
    sides = {f"{side}{end}": f"datum.{side} {by}" for side in "xy" for end, by in ends.items()}
    return {
        "data": {"values": rows},
        "transform": _computed(tip=tip, **sides),
        "encoding": {"tooltip": _TIP},
        "layer": layers,
    }


def _spans(chart: Chart, mark: Spans) -> Json:
    rows = [
        {"x": float(begin), "x2": float(end), "i": float(row), "tip": name}
        | ({"v": float(value)} if np.isfinite(value) else {})
        for row, begin, end, value, name in zip(
            mark.rows, mark.begin, mark.end, mark.values, mark.names, strict=True
        )
    ]
    color = _viridis(mark.values, (None, None), mark.label)
    encoding = {
        **_fields(x2="x2", y2="y2"),
        "color": {"condition": {"test": "isValid(datum.v)", **color}, "value": "var(--grey)"},
        "tooltip": _TIP,
    }
    return {
        "data": {"values": rows},
        "transform": _computed(y="datum.i - 0.28", y2="datum.i + 0.28"),
        **_layer("rect", encoding, cornerRadius=2, stroke="var(--card)", strokeWidth=2),
    }


def _text(value: object) -> str:
    """Write a value as a literal of an expression."""
    return json.dumps(value, ensure_ascii=False)
