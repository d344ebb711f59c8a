"""Charts of configurations and their scores: slices, parallel coordinates, the front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from autorl.landscapes.analysis import Axis, Chart, Line, axis_of, positions
from autorl.landscapes.regression import Array
from autorl.plain_text import counted, shortened
from autorl.plain_values import plain
from autorl.report.page.draw import figure
from autorl.report.page.frame import short_number
from autorl.report.text import number, value_text
from autorl.space import Hyperparameter, Space
from autorl.study import Result
from autorl.study.record import StudyRecord

MOST_SHOWN = 300
"""Configurations in a chart: more are a smear, and a page of many megabytes."""
_MOST_SLICES = 16
_TOP = 34
_HEIGHT = 250


@dataclass(frozen=True)
class Trial:
    """A configuration with its score, as charts show it.

    Attributes:
        number: of the configuration.
        state: how far it came.
        score: None before one is known.
        best: whether it is the incumbent.
        values: hyperparameters by name; those that are not active are missing.
    """

    number: int
    state: str
    score: float | None
    best: bool
    values: Mapping[str, Any]


def chosen(trials: Sequence[Trial], *, maximize: bool) -> list[Trial]:
    """Choose what is drawn of many trials.

    The better half of `MOST_SHOWN` are the best, the others are spread over the rest.
    """
    scored = [trial for trial in trials if trial.score is not None and math.isfinite(trial.score)]
    if len(scored) <= MOST_SHOWN:
        return scored
    sign = 1.0 if maximize else -1.0
    ranked = sorted(scored, key=lambda trial: (not trial.best, -sign * (trial.score or 0.0)))
    half = MOST_SHOWN // 2
    places = np.linspace(half, len(ranked) - 1, half).astype(int)
    return [*ranked[:half], *(ranked[place] for place in places)]


def searched(space: Space) -> list[Hyperparameter]:
    """List the hyperparameters that have more than one value."""
    return [item for item in space.hyperparameters.values() if item.type != "constant"]


def slices(space: Space, trials: Sequence[Trial], label: str) -> str:
    """Draw the score over each hyperparameter, one small chart each."""
    items = searched(space)
    charts = [_slice(item, trials, label) for item in items[:_MOST_SLICES]]
    drawn = "".join(
        figure(chart, small=True, kind="slice") for chart in charts if chart is not None
    )
    more = len(items) - _MOST_SLICES
    note = (
        f"<p class=note>{counted(more, 'more hyperparameter', 'are')} not drawn.</p>"
        if more > 0
        else ""
    )
    return f'<div class="grid-of">{drawn}</div>{note}' if drawn else ""


def _slice(item: Hyperparameter, trials: Sequence[Trial], label: str) -> Chart | None:
    active = [trial for trial in trials if item.name in trial.values]
    if not active:
        return None
    names = tuple(value_text(choice) for choice in item.choices)
    groups = {
        "complete": [trial for trial in active if not trial.best and trial.state == "complete"],
        "not to the end": [
            trial for trial in active if not trial.best and trial.state != "complete"
        ],
        "incumbent": [trial for trial in active if trial.best],
    }
    marks = []
    for name, members in groups.items():
        if not members:
            continue
        values = [trial.values[item.name] for trial in members]
        x = positions(item, values) if item.numeric else _places(item, values)
        y = np.array([trial.score for trial in members], dtype=np.float64)
        texts = tuple(
            f"configuration {trial.number}: {value_text(trial.values[item.name])}"
            for trial in members
        )
        marks.append(
            Line(name, x, y, None, texts, "o", joined=False, muted=name == "not to the end")
        )
    return Chart(item.name, "", axis_of(item, names), Axis(label), tuple(marks))


def _places(item: Hyperparameter, values: Sequence[Any]) -> Array:
    return np.array([float(item.index(value)) for value in values], dtype=np.float64)


def parallel(space: Space, trials: Sequence[Trial], label: str) -> str:
    """Draw parallel coordinates whose axes can be brushed.

    A line is a configuration; the last axis is its score.
    """
    items = searched(space)
    if not trials or not items:
        return ""
    scores = [trial.score for trial in trials if trial.score is not None]
    low = min(scores)
    high = max(scores)
    width = max(720, 110 * (len(items) + 1))
    places = np.linspace(60, width - 60, len(items) + 1).tolist()
    lines = [
        _pass(trial, items, places, (trial.score or 0.0, low, high), label)
        # The incumbent last, so that it lies on top.
        for trial in sorted(trials, key=lambda trial: trial.best)
    ]
    axes = [
        _axis(place, item.name, *_ends(item)) for place, item in zip(places, items, strict=False)
    ]
    axes.append(_axis(places[-1], label, short_number(low), short_number(high)))
    count = f"{len(trials)} of {counted(len(trials), 'configuration')}"
    return (
        '<figure class="chart" data-chart="parallel"><figcaption><b>Parallel coordinates</b>'
        "<p class=note>Drag along an axis (or focus it and press the arrow keys) to keep the "
        "configurations that pass there; the thick line is the incumbent. "
        f"<output class=count>{count}</output></p></figcaption>"
        '<div class=tools><button type="button" class="clear">clear</button></div>'
        f'<div class=scroll><svg viewBox="0 0 {width} {_HEIGHT + 60}" class="plot" tabindex="0" '
        f'role="group" aria-label="parallel coordinates">{"".join(lines)}{"".join(axes)}'
        "</svg></div></figure>"
    )


def _pass(
    trial: Trial,
    items: Sequence[Hyperparameter],
    places: Sequence[float],
    score: tuple[float, float, float],
    label: str,
) -> str:
    value, low, high = score
    units: list[float | None] = [
        item.to_unit(trial.values[item.name]) if item.name in trial.values else None
        for item in items
    ]
    units.append((value - low) / ((high - low) or 1.0))
    points = [
        f"{place:.1f} {_TOP + _HEIGHT * (1 - unit):.1f}"
        for place, unit in zip(places, units, strict=True)
        if unit is not None
    ]
    shown = ", ".join(f"{name} {value_text(plain(held))}" for name, held in trial.values.items())
    tip = f"configuration {trial.number} ({trial.state})\n{label} {number(value)}\n{shown}"
    spread = ",".join("" if unit is None else f"{unit:.3f}" for unit in units)
    return (
        f'<path class="pass{" best" if trial.best else ""}" d="M{"L".join(points)}" '
        f'data-u="{spread}" data-tip="{escape(shortened(tip, 700))}"/>'
    )


def _axis(place: float, name: str, low: str, high: str) -> str:
    title = escape(shortened(name, 15))
    label = escape(name)
    return (
        f'<g><line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" '
        f'y2="{_TOP + _HEIGHT}"/>'
        f'<text x="{place:.1f}" y="14" text-anchor="middle">{title}</text>'
        f'<text x="{place:.1f}" y="{_TOP - 6}" text-anchor="middle">{escape(high)}</text>'
        f'<text x="{place:.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">'
        f"{escape(low)}</text>"
        f'<rect class="brush off" x="{place - 9:.1f}" y="{_TOP}" width="18" height="0"/>'
        f'<rect class="zone" x="{place - 14:.1f}" y="{_TOP}" width="28" height="{_HEIGHT}" '
        f'tabindex="0" role="slider" aria-orientation="vertical" aria-label="{label}" '
        'aria-valuenow="0" aria-valuetext="all"/></g>'
    )


def _ends(item: Hyperparameter) -> tuple[str, str]:
    if item.numeric:
        low, high = item.bounds
        return short_number(float(low)), short_number(float(high))
    return shortened(value_text(item.choices[0]), 14), shortened(value_text(item.choices[-1]), 14)


def front_chart(record: StudyRecord, result: Result) -> Chart | None:
    """Draw the first two objectives of all proposals and the front.

    None with one objective.
    """
    if not result.front:
        return None
    first, second = list(result.front[0].tuning)[:2]
    rows = [row for row in record.tables.proposals() if len(row.score) > 1][:1000]
    shown = [row for row in rows if np.isfinite(row.score[:2]).all()]
    names = tuple(f"proposal {row.proposal}" for row in shown)
    points = sorted(result.front, key=lambda point: point.tuning[first])
    marks = (
        Line(
            "all proposals",
            np.array([row.score[0] for row in shown]),
            np.array([row.score[1] for row in shown]),
            None,
            names,
            "o",
            joined=False,
            muted=True,
        ),
        Line(
            "front",
            np.array([point.tuning[first] for point in points]),
            np.array([point.tuning[second] for point in points]),
            None,
            tuple(f"proposal {point.proposal}" for point in points),
            "o",
        ),
    )
    about = "Along the front one objective is paid for with the other."
    return Chart("Front on tuning seeds", about, Axis(first), Axis(second), marks)
