"""The `Chart` of each kind of `Answer`: the content of its figure.

It is independent of how it is drawn: `autorl.report.pages` draws the charts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted, number
from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis.forest import surface_places
from autorl.landscapes.regression import Array
from autorl.report.pages.chart import (
    Axis,
    Bars,
    Chart,
    HeatMap,
    Line,
    axis_of,
    positions,
    scale_label,
)
from autorl.space import Hyperparameter
from autorl.statistics.coverage import level_text

if TYPE_CHECKING:
    import pandas as pd

_MOST_BARS = 20
_MOST_LINES = 6  # no more than there are colors, so that no two lines share one
_MOST_CURVES = 3  # more intervals on top of each other cannot be read


def importance(answer: Answer) -> Chart:
    table = answer.table.head(_MOST_BARS)
    method = answer.about["method"]
    partners = table.get("with", [None] * len(table))
    labels = [
        f"{name} × {partner}" if isinstance(partner, str) else name
        for name, partner in zip(table["hyperparameter"], partners, strict=True)
    ]
    if method == "tunability":
        changes = table[["gain", "reference", "best"]].itertuples(index=False, name=None)
        texts = [f"{_short(old)} → {_short(new)}" if gain > 0 else "" for gain, old, new in changes]
        against = answer.about["configuration"]
        over = f"configuration {against}" if isinstance(against, int) else against
        title = "What tuning one alone gains"
        return _bars(answer, title, labels, table["gain"], f"gain over {over}", texts=texts)
    where = " around one configuration" if method == "local" else ""
    title = f"Importance of hyperparameters{where}"
    # Local importance has no spread over trees: it is computed on their mean prediction.
    if "spread" not in table:
        return _bars(answer, title, labels, table["importance"], "share of variance")
    label = "share of variance (± deviation over trees)"
    return _bars(answer, title, labels, table["importance"], label, _spread(table))


def noise(answer: Answer) -> Chart:
    table = answer.table
    # Bars are 1 - ICC, so high and low change places; an ICC below 0 is noise alone.
    interval = (1.0 - table["high"].clip(0, 1).to_numpy(), 1.0 - table["low"].clip(0, 1).to_numpy())
    label = "1 − ICC (95 % interval over configurations)"
    title = "Share of variance that is seed noise"
    names = list(table["landscape"])
    return _bars(answer, title, names, table["noise_share"], label, interval, limits=(0.0, 1.0))


def redundancy(answer: Answer) -> Chart:
    table = answer.table
    texts = [
        f"{distinct} of {n}"
        for distinct, n in zip(table["distinct"], table["configurations"], strict=True)
    ]
    title = "Results that seed noise lets one tell apart"
    names = list(table["landscape"])
    return _bars(answer, title, names, table["distinct"], "distinct results", texts=texts)


def subset(answer: Answer) -> Chart:
    table = answer.table
    label = "cross-validated rank correlation"
    # The error is 1 - Spearman, so this is the correlation of the label.
    table = table.assign(
        names=[", ".join(environments) for environments in table["environments"]],
        score=1.0 - table["error"],
    )
    if "k" not in table:
        shown = table.head(_MOST_BARS)
        title = f"Subsets of {counted(answer.about['size'], 'environment')}, near-ties"
        texts = [number(score) for score in shown["score"]]
        return _bars(answer, title, list(shown["names"]), shown["score"], label, texts=texts)
    # The best are joined: their line is what a larger subset buys.
    lines = [
        _line(name, rows, "k", "score", names=tuple(rows["names"]), marker="o", joined=place == 1)
        for place, name in enumerate(("best", "second", "third"), 1)
        for rows in [table[table["place"] == place]]
    ]
    sizes = sorted(table["k"].unique())
    axis = Axis("environments in the subset", ticks=tuple((float(k), str(k)) for k in sizes))
    return _chart(answer, "What a larger subset of environments buys", axis, label, *lines)


def dependence(answer: Answer) -> Chart:
    table = answer.table
    item = _item(answer, 0)
    names = tuple(_short(value) for value in table["value"])
    axis = axis_of(item, names)
    numeric = not axis.categories
    x = positions(item, table["value"]) if numeric else np.arange(len(table))
    # Choices have no order, so no line joins them.
    mark = _line(
        "mean; 10 % to 90 % of configurations",
        table.assign(x=x),
        "x",
        "mean",
        band=("low", "high"),
        names=names,
        marker="" if numeric else "o",
        joined=numeric,
    )
    title = f"Partial dependence on {item.name}"
    return _chart(answer, title, axis, f"predicted {_metric(answer)}", mark)


def surface(answer: Answer) -> Chart:
    first, second = answer.about["hyperparameters"]
    # Turned over: a heat map's first row is on top, and values rise upwards on an axis.
    wide = _wide(answer, first, second, "mean")[::-1]
    mark = HeatMap(wide.to_numpy(), f"predicted {_metric(answer)}")
    y, x = (
        Axis(scale_label(_item(answer, place)), categories=tuple(map(_short, values)), thin=True)
        for place, values in enumerate((wide.index, wide.columns))
    )
    forest = answer.detail["forest"]
    down, across = surface_places(forest, (first, second))
    names = (f"{_metric(answer)} {number(score)}" for score in forest.targets)
    dots = Line.dots("trained configuration", across, len(wide) - 1.0 - down, names, muted=True)
    about = f"{_about(answer)} · dots: the configurations that were trained"
    return Chart(f"Partial dependence on {first} and {second}", about, x, y, (mark, dots))


def interaction(answer: Answer) -> Chart:
    table = answer.table
    paired = {*table["first"], *table["second"]}
    names = [name for name in answer.data[0].space.names if name in paired]
    matrix = np.full((len(names), len(names)), np.nan)
    for first, second, value in table.itertuples(index=False, name=None):
        row = names.index(first)
        column = names.index(second)
        matrix[row, column] = matrix[column, row] = value
    axis = Axis("", categories=tuple(names))
    # At least to 0.25, or the colors would blow up interactions of a hundredth.
    limits = (0.0, max(0.25, float(table["interaction"].max())))
    mark = HeatMap(matrix, "H² (share that is interaction)", limits, annotate=True)
    return _chart(answer, "How strongly hyperparameters interact", axis, axis, mark)


def values(answer: Answer) -> Chart:
    table = answer.table[answer.table["n"] > 0]
    name = answer.about["hyperparameters"][0]
    labels = tuple(
        f"{_short(value)}\nn = {n}" for value, n in zip(table["value"], table["n"], strict=True)
    )
    x = np.arange(len(table))
    quartiles = (table["q25"].to_numpy(), table["q75"].to_numpy())
    medians = Line.dots("median and quartiles", x, table["median"], labels, quartiles)
    best = Line.dots("best", x, table["best"], labels, marker="^", muted=True)
    axis = Axis(name, categories=labels)
    return _chart(answer, f"Scores by value of {name}", axis, _metric(answer), medians, best)


def budget(answer: Answer) -> Chart:
    table = answer.table
    names = tuple(f"step {step:,}" for step in table["step"])
    marks = (
        _line(
            "rank correlation with the end (95 % interval)",
            table,
            "fraction",
            "correlation",
            band=("low", "high"),
            names=names,
            marker="o",
        ),
        _line(
            "regret of choosing here (share of range)",
            table,
            "fraction",
            "regret",
            names=names,
            marker="s",
        ),
    )
    # A rank correlation may be negative, and its interval lower still.
    low = min(-0.02, float(table["low"].min()) - 0.02)
    y = Axis("correlation, regret", limits=(low, 1.04))
    return _chart(answer, "How early training tells the end", "share of training", y, *marks)


def over_time(answer: Answer) -> Chart:
    table = answer.table
    largest = table.groupby("hyperparameter")["importance"].max().sort_values(ascending=False)
    marks = []
    for name in largest.index[:_MOST_LINES]:
        rows = table[table["hyperparameter"] == name]
        low, high = _spread(rows)
        rows = rows.assign(low=low, high=high)
        marks.append(_line(str(name), rows, "step", "importance", band=("low", "high"), marker="o"))
    y = Axis("share of variance (± sd over trees)", limits=(0.0, 1.02))
    return _chart(answer, "Importance while training goes on", _steps(answer), y, *marks)


def curves(answer: Answer) -> Chart:
    table = answer.table
    band = answer.detail["band"]
    text = f"{counted(band.attrs['configurations'], 'configuration')}: median, 10 % to 90 %"
    marks = [_line(text, band, "step", "median", band=("low", "high"), muted=True)]
    # In the order of the table, which is that of the places.
    for config_id in list(dict.fromkeys(table["config_id"]))[:_MOST_CURVES]:
        rows = table[table["config_id"] == config_id]
        # With a single seed there is no interval.
        interval = None if rows["low"].isna().any() else ("low", "high")
        name = f"configuration {config_id}"
        marks.append(_line(name, rows, "step", "mean", band=interval, marker="o"))
    about = answer.about
    span = f"mean, {level_text('mean', band.attrs['seeds'])}interval"
    choice = f"chosen by {about['chosen_by']}, shown on {about['seeds']} seeds: {span}"
    text = f"{answer.landscapes[0]} · {choice}"
    steps = Axis(_steps(answer))
    return Chart("Best configurations", text, steps, Axis(_metric(answer)), tuple(marks))


def tunability(answer: Answer) -> Chart:
    values = answer.table["tunability"]
    measured = zip(values, answer.landscapes, answer.detail["curves"], strict=True)
    marks = [
        Line(f"{name} ({value:.2f})", np.linspace(0.0, 1.0, len(curve)), curve)
        for value, name, curve in sorted(measured, key=lambda entry: -entry[0])
    ]
    x = Axis("quantile of configurations", limits=(0.0, 1.0))
    y = Axis("best − quantile, share of range", limits=(0.0, 1.02))
    return _chart(answer, "Tunability (best − median)", x, y, *marks)


def card(answer: Answer) -> Chart:
    curve = answer.detail["curve"]
    names = tuple(curve["names"])
    best = _line("best choice of them", curve, "tuned", "value", band=("low", "high"), names=names)
    goal = curve.assign(value=0.95 * curve["value"].iloc[-1])
    peak = _line("95 % of it with all tuned", goal, "tuned", "value", muted=True)
    x = Axis("hyperparameters tuned for each environment")
    return _chart(
        answer, "What tuning for each environment gains", x, "normalised score", best, peak
    )


def transfer(answer: Answer) -> Chart:
    return _matrix(answer, "Regret of another environment's best configuration", str)


def phases(answer: Answer) -> Chart:
    title = "Regret of another phase's best configuration"
    return _matrix(answer, title, lambda number: f"phase {number}")


def _matrix(answer: Answer, title: str, label: Callable[[object], str]) -> Chart:
    wide = _wide(answer, "best_in", "used_in", "regret")
    text = "regret (0 = its own best, 1 = the worst)"
    mark = HeatMap(wide.to_numpy(), text, (0.0, 1.0), annotate=True)
    x = Axis("used in", categories=tuple(map(label, wide.columns)))
    y = Axis("best in", categories=tuple(map(label, wide.index)))
    return _chart(answer, title, x, y, mark)


def _wide(answer: Answer, rows: str, columns: str, cells: str) -> pd.DataFrame:
    return answer.table.pivot_table(
        index=rows, columns=columns, values=cells, sort=False, observed=True
    )


def _line(
    label: str,
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    band: tuple[str, str] | None = None,
    **more: Any,
) -> Line:
    """Make a line of columns of a table."""

    def column(name: str) -> Array:
        return table[name].to_numpy(np.float64)

    interval = None if band is None else (column(band[0]), column(band[1]))
    return Line(label, column(x), column(y), interval, **more)


def _spread(table: pd.DataFrame) -> tuple[Array, Array]:
    """Return mean minus and plus deviation. A share cannot lie below 0."""
    values = table["importance"].to_numpy()
    spread = table["spread"].to_numpy()
    return np.maximum(0.0, values - spread), values + spread


def _bars(
    answer: Answer,
    title: str,
    labels: Sequence[str],
    values: npt.ArrayLike,
    label: str,
    interval: tuple[Array, Array] | None = None,
    texts: Sequence[str] = (),
    limits: tuple[float | None, float | None] | None = None,
) -> Chart:
    mark = Bars(np.asarray(values, dtype=np.float64), interval, tuple(texts))
    axis = Axis("", categories=tuple(labels))
    return _chart(answer, title, Axis(label, limits=limits), axis, mark)


def _chart(
    answer: Answer, title: str, x: Axis | str, y: Axis | str, *marks: Line | Bars | HeatMap
) -> Chart:
    horizontal, vertical = (Axis(axis) if isinstance(axis, str) else axis for axis in (x, y))
    return Chart(title, _about(answer), horizontal, vertical, marks)


def _about(answer: Answer) -> str:
    """Write a line on the data of an answer.

    It says which landscape, how many configurations, which seeds, where, and how well the forest
    fits.
    """
    about = answer.about
    count = len(answer.landscapes)
    parts = [answer.landscapes[0] if count == 1 else f"{count} landscapes"]
    if "configurations" in about:
        parts.append(counted(about["configurations"], "configuration"))
    # Scores on the seeds that chose are optimistic, so it is said where they differ.
    if about.get("chosen_on", about.get("seeds")) != about.get("seeds"):
        parts.append(f"chosen on {about['chosen_on']} seeds, scored on {about['seeds']} seeds")
    elif "seeds" in about:
        parts.append(f"{about['seeds']} seeds")
    if isinstance(about.get("step"), int) and answer.kind not in ("budget", "over-time"):
        parts.append(f"step {about['step']:,}")
    if "out_of_bag" in about:
        parts.append(f"fit: out-of-bag rank correlation {about['out_of_bag']:.2f}")
    return " · ".join(parts)


def _item(answer: Answer, number: int) -> Hyperparameter:
    return answer.data[0].space.hyperparameters[answer.about["hyperparameters"][number]]


def _metric(answer: Answer) -> str:
    # Analyses turn the sign of what is minimised: larger is better in all figures.
    sign = "−" if answer.about["direction"] == "minimize" else ""
    return f"{sign}{answer.about['metric']}"


def _steps(answer: Answer) -> str:
    return answer.data[0].manifest.step_unit.replace("_", " ")


def _short(value: object) -> str:
    # pandas makes NaN of a None that stands beside numbers.
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "inactive"
    return number(value) if isinstance(value, float) else str(value)
