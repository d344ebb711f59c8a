"""Charts of configurations and their scores: slices, parallel coordinates, the front."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autorl.core.plain_text import counted, number
from autorl.report.configurations import COMPLETE, ConfigurationRow
from autorl.report.pages.chart import GAP, Axis, Chart, Line, Point, axis_of, positions
from autorl.report.pages.document import Block, Figure, Text, small
from autorl.report.text import value_text
from autorl.space import Hyperparameter, Space
from autorl.study import Result
from autorl.study.results.record import StudyRecord

MOST_SHOWN = 300
"""Configurations in a chart: more are a smear, and a page of many megabytes."""
_MOST_SLICES = 16


def chosen(trials: Sequence[ConfigurationRow], *, maximize: bool) -> list[ConfigurationRow]:
    """Choose what is drawn of many trials.

    The better half of `MOST_SHOWN` are the best, the others are spread over the rest.
    """
    scored = [trial for trial in trials if trial.score is not None and math.isfinite(trial.score)]
    if len(scored) <= MOST_SHOWN:
        return scored
    sign = 1.0 if maximize else -1.0
    ranked = sorted(scored, key=lambda trial: (not trial.incumbent, -sign * (trial.score or 0.0)))
    half = MOST_SHOWN // 2
    places = np.linspace(half, len(ranked) - 1, half).astype(int)
    return [*ranked[:half], *(ranked[place] for place in places)]


def searched(space: Space) -> list[Hyperparameter]:
    """List the hyperparameters that have more than one value."""
    return [item for item in space.hyperparameters.values() if item.type != "constant"]


def slices(space: Space, trials: Sequence[ConfigurationRow], label: str) -> list[Block]:
    """Draw the score over each hyperparameter, one small chart each."""
    items = searched(space)
    charts = [_slice(item, trials, label) for item in items[:_MOST_SLICES]]
    drawn = small(Figure(chart, "slice") for chart in charts if chart is not None)
    more = len(items) - _MOST_SLICES
    if more > 0:
        drawn.append(Text(f"{counted(more, 'more hyperparameter', 'are')} not drawn.", "note"))
    return drawn


def _slice(item: Hyperparameter, trials: Sequence[ConfigurationRow], label: str) -> Chart | None:
    active = [trial for trial in trials if item.name in trial.values]
    if not active:
        return None
    names = tuple(value_text(choice) for choice in item.choices)
    groups: dict[str, list[ConfigurationRow]] = {"complete": [], "not to the end": []}
    for trial in sorted(active, key=lambda trial: trial.incumbent):
        kind = "complete" if trial.state == COMPLETE else "not to the end"
        groups.setdefault("incumbent" if trial.incumbent else kind, []).append(trial)
    marks = []
    for name, members in groups.items():
        if not members:
            continue
        values = [trial.values[item.name] for trial in members]
        x = positions(item, values if item.numeric else map(item.index, values))
        y = np.array([trial.score for trial in members], dtype=np.float64)
        texts = (
            f"configuration {trial.number}: {value_text(trial.values[item.name])}"
            for trial in members
        )
        marks.append(Line.dots(name, x, y, texts, muted=name == "not to the end"))
    return Chart(item.name, "", axis_of(item, names), Axis(label), tuple(marks))


def parallel(space: Space, trials: Sequence[ConfigurationRow], label: str) -> list[Figure]:
    """Draw parallel coordinates, a line for each configuration.

    The last axis is the score.
    """
    items = searched(space)
    if not trials or not items:
        return []
    scores = [trial.score for trial in trials if trial.score is not None]
    low = min(scores)
    high = max(scores)
    names = [f"{item.name}\n{_range(item)}" for item in items]
    names.append(f"{label}\n{number(low)} to {number(high)}")
    kinds = {"configurations": [trial for trial in trials if not trial.incumbent]}
    kinds["incumbent"] = [trial for trial in trials if trial.incumbent]
    marks = []
    for kind, members in kinds.items():
        points: list[Point] = []
        for trial in members:
            score = trial.score or 0.0
            units = [
                item.to_unit(trial.values[item.name]) if item.name in trial.values else None
                for item in items
            ]
            units.append((score - low) / ((high - low) or 1.0))
            values = [f"{item.name} {value_text(trial.values.get(item.name))}" for item in items]
            about = f"configuration {trial.number} ({trial.state}), {label} {number(score)}"
            # A hyperparameter that is not active has no point: the line passes over its axis.
            points += [
                (place, unit, "\n".join((about, *values[place : place + 1])))
                for place, unit in enumerate(units)
                if unit is not None
            ]
            points.append(GAP)
        marks.append(Line.through(kind, points, muted=kind == "configurations"))
    text = "A line is a configuration: point at one to see its way."
    axes = (Axis("", categories=tuple(names)), Axis("", limits=(-0.02, 1.02), bare=True))
    return [Figure(Chart("Parallel coordinates", text, *axes, tuple(marks)), "parallel")]


def _range(item: Hyperparameter) -> str:
    ends = item.bounds if item.numeric else (item.choices[0], item.choices[-1])
    return " to ".join(value_text(float(end) if item.numeric else end) for end in ends)


def front_chart(record: StudyRecord, result: Result) -> Chart | None:
    """Draw the first two objectives of all proposals and the front.

    None with one objective.
    """
    if not result.front:
        return None
    first, second = list(result.front[0].tuning)[:2]
    rows = [row for row in record.tables.proposals() if len(row.score) > 1][:1000]
    shown = [row for row in rows if np.isfinite(row.score[:2]).all()]
    names = (f"proposal {row.proposal}" for row in shown)
    points = sorted(result.front, key=lambda point: point.tuning[first])
    marks = (
        Line.dots(
            "all proposals",
            [row.score[0] for row in shown],
            [row.score[1] for row in shown],
            names,
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
