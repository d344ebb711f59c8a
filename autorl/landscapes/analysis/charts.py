"""The `Chart` of each kind of `Answer`: the content of its figure.

It is independent of how it is drawn.

`kinds` says which function here belongs to which kind; `autorl.report.pages` draws the charts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted, number
from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.regression import Array
from autorl.report.pages import Axis, Bars, Chart, HeatMap, Line, axis_of, positions, scale_label
from autorl.space import Hyperparameter
from autorl.statistics.coverage import level_text

MOST_BARS = 20
_MOST_LINES = 6  # no more than there are colors, so that no two lines share one
_MOST_CURVES = 3  # more intervals on top of each other cannot be read


def importance(answer: Answer) -> Chart:
    table = answer.table.head(MOST_BARS)
    method = answer.about["method"]
    labels = [
        f"{name} × {partner}" if isinstance(partner, str) else name
        for name, partner in zip(
            table["hyperparameter"], table.get("with", [None] * len(table)), strict=True
        )
    ]
    if method == "tunability":
        changes = table[["gain", "reference", "best"]].itertuples(index=False, name=None)
        texts = [f"{_short(old)} → {_short(new)}" if gain > 0 else "" for gain, old, new in changes]
        against = answer.about["configuration"]
        over = f"configuration {against}" if isinstance(against, int) else against
        return _bars(
            answer,
            "What tuning one alone gains",
            labels,
            table["gain"],
            f"gain over {over}",
            texts=texts,
        )
    values = table["importance"].to_numpy()
    # Local importance has no spread over trees: it is computed on their mean prediction.
    spread = table["spread"].to_numpy() if "spread" in table else None
    # A share cannot lie below 0, though mean minus deviation can.
    interval = None if spread is None else (np.maximum(0.0, values - spread), values + spread)
    where = " around one configuration" if method == "local" else ""
    label = "share of variance" + (" (± deviation over trees)" if spread is not None else "")
    return _bars(answer, f"Importance of hyperparameters{where}", labels, values, label, interval)


def noise(answer: Answer) -> Chart:
    table = answer.table
    # Bars are 1 - ICC, so high and low change places; an ICC below 0 is noise alone.
    interval = (1.0 - table["high"].clip(0, 1).to_numpy(), 1.0 - table["low"].clip(0, 1).to_numpy())
    label = "1 − ICC (95 % interval over configurations)"
    title = "Share of variance that is seed noise"
    return _bars(
        answer,
        title,
        list(table["landscape"]),
        table["noise_share"],
        label,
        interval,
        limits=(0.0, 1.0),
    )


def redundancy(answer: Answer) -> Chart:
    table = answer.table
    texts = [
        f"{distinct} of {n}"
        for distinct, n in zip(table["distinct"], table["configurations"], strict=True)
    ]
    title = "Results that seed noise lets one tell apart"
    return _bars(
        answer, title, list(table["landscape"]), table["distinct"], "distinct results", texts=texts
    )


def subset(answer: Answer) -> Chart:
    table = answer.table
    label = "cross-validated rank correlation"
    if "k" not in table:
        shown = table.head(MOST_BARS)
        labels = [", ".join(environments) for environments in shown["environments"]]
        title = f"Subsets of {counted(answer.about['size'], 'environment')}, near-ties"
        # The error is 1 - Spearman, so this is the correlation of the label.
        scores = 1.0 - shown["error"].to_numpy()
        return _bars(
            answer, title, labels, scores, label, texts=[number(score) for score in scores]
        )
    lines = []
    for place, name in enumerate(("best", "second", "third"), 1):
        rows = table[table["place"] == place]
        names = tuple(", ".join(environments) for environments in rows["environments"])
        x = rows["k"].to_numpy(float)
        y = 1.0 - rows["error"].to_numpy()
        # The best are joined: their line is what a larger subset buys.
        lines.append(Line(name, x, y, names=names, marker="o", joined=place == 1))
    sizes = sorted(table["k"].unique())
    axis = Axis("environments in the subset", ticks=tuple((float(k), str(k)) for k in sizes))
    return Chart(
        "What a larger subset of environments buys", _about(answer), axis, Axis(label), tuple(lines)
    )


def dependence(answer: Answer) -> Chart:
    table = answer.table
    item = _item(answer, 0)
    band = (table["low"].to_numpy(), table["high"].to_numpy())
    names = tuple(_short(value) for value in table["value"])
    axis = axis_of(item, names)
    if axis.categories:
        x = np.arange(len(table), dtype=np.float64)
        marker = "o"
    else:
        x = positions(item, table["value"])
        marker = ""
    # Choices have no order, so no line joins them.
    mark = Line(
        "mean; 10 % to 90 % of configurations",
        x,
        table["mean"].to_numpy(),
        band,
        names,
        marker,
        not axis.categories,
    )
    title = f"Partial dependence on {item.name}"
    return Chart(title, _about(answer), axis, Axis(f"predicted {_metric(answer)}"), (mark,))


def surface(answer: Answer) -> Chart:
    first, second = answer.about["hyperparameters"]
    # Turned over: a heat map's first row is on top, and values rise upwards on an axis.
    wide = answer.table.pivot_table(
        index=first, columns=second, values="mean", sort=False, observed=True
    )[::-1]
    rows, columns = (tuple(_short(value) for value in axis) for axis in (wide.index, wide.columns))
    items = [_item(answer, 0), _item(answer, 1)]
    mark = HeatMap(wide.to_numpy(), f"predicted {_metric(answer)}")
    y, x = (
        Axis(scale_label(item), categories=names, thin=True)
        for item, names in zip(items, (rows, columns), strict=True)
    )
    about = f"{_about(answer)} · dots: the configurations that were trained"
    title = f"Partial dependence on {first} and {second}"
    return Chart(title, about, x, y, (mark, _trained(answer, len(rows))))


def _trained(answer: Answer, rows: int) -> Line:
    """Draw where the configurations lie on a surface of so many rows."""
    down, across = answer.detail["places"].T
    metric = _metric(answer)
    names = (f"{metric} {number(score)}" for score in answer.detail["scores"])
    return Line.dots("trained configuration", across, rows - 1.0 - down, names, muted=True)


def interaction(answer: Answer) -> Chart:
    table = answer.table
    paired = {*table["first"], *table["second"]}
    names = [name for name in answer.data[0].space.names if name in paired]
    matrix = np.full((len(names), len(names)), np.nan)
    for first, second, value in table[["first", "second", "interaction"]].itertuples(
        index=False, name=None
    ):
        row = names.index(first)
        column = names.index(second)
        matrix[row, column] = matrix[column, row] = value
    axis = Axis("", categories=tuple(names))
    # At least to 0.25, or the colors would blow up interactions of a hundredth.
    limits = (0.0, max(0.25, float(table["interaction"].max())))
    mark = HeatMap(matrix, "H² (share that is interaction)", limits, annotate=True)
    return Chart("How strongly hyperparameters interact", _about(answer), axis, axis, (mark,))


def values(answer: Answer) -> Chart:
    table = answer.table[answer.table["n"] > 0]
    name = answer.about["hyperparameters"][0]
    labels = tuple(
        f"{_short(value)}\nn = {n}" for value, n in zip(table["value"], table["n"], strict=True)
    )
    x = np.arange(len(table), dtype=np.float64)
    quartiles = (table["q25"].to_numpy(), table["q75"].to_numpy())
    marks = (
        Line.dots("median and quartiles", x, table["median"], labels, quartiles),
        Line.dots("best", x, table["best"], labels, marker="^", muted=True),
    )
    title = f"Scores by value of {name}"
    return Chart(title, _about(answer), Axis(name, categories=labels), Axis(_metric(answer)), marks)


def budget(answer: Answer) -> Chart:
    table = answer.table
    x = table["fraction"].to_numpy()
    band = (table["low"].to_numpy(), table["high"].to_numpy())
    names = tuple(f"step {step:,}" for step in table["step"])
    marks = (
        Line(
            "rank correlation with the end (95 % interval)",
            x,
            table["correlation"].to_numpy(),
            band,
            names,
            "o",
        ),
        Line(
            "regret of choosing here (share of range)",
            x,
            table["regret"].to_numpy(),
            None,
            names,
            "s",
        ),
    )
    # A rank correlation may be negative, and its interval lower still.
    low = min(-0.02, float(table["low"].min()) - 0.02)
    y = Axis("correlation, regret", limits=(low, 1.04))
    return Chart(
        "How early training tells the end", _about(answer), Axis("share of training"), y, marks
    )


def over_time(answer: Answer) -> Chart:
    table = answer.table
    largest = table.groupby("hyperparameter")["importance"].max().sort_values(ascending=False)
    marks = []
    for name in largest.index[:_MOST_LINES]:
        rows = table[table["hyperparameter"] == name]
        values = rows["importance"].to_numpy()
        spread = rows["spread"].to_numpy()
        band = (np.maximum(0.0, values - spread), values + spread)
        marks.append(Line(str(name), rows["step"].to_numpy(float), values, band, marker="o"))
    x = Axis(_steps(answer))
    y = Axis("share of variance (± sd over trees)", limits=(0.0, 1.02))
    return Chart("Importance while training goes on", _about(answer), x, y, tuple(marks))


def curves(answer: Answer) -> Chart:
    table = answer.table
    band = answer.detail["band"]
    everyone = (band["low"].to_numpy(), band["high"].to_numpy())
    steps = band["step"].to_numpy(float)
    marks = [
        Line(
            f"{counted(band.attrs['configurations'], 'configuration')}: median, 10 % to 90 %",
            steps,
            band["median"].to_numpy(),
            everyone,
            muted=True,
        )
    ]
    # In the order of the table, which is that of the places.
    for config_id in list(dict.fromkeys(table["config_id"]))[:_MOST_CURVES]:
        rows = table[table["config_id"] == config_id]
        interval = (rows["low"].to_numpy(), rows["high"].to_numpy())
        # With a single seed there is no interval.
        drawn_interval = None if np.isnan(interval[0]).any() else interval
        x = rows["step"].to_numpy(float)
        mean = rows["mean"].to_numpy()
        marks.append(Line(f"configuration {config_id}", x, mean, drawn_interval, marker="o"))
    about = answer.about
    span = f"mean, {level_text('mean', band.attrs['seeds'])}interval"
    choice = f"chosen by {about['chosen_by']}, shown on {about['seeds']} seeds: {span}"
    text = f"{answer.landscapes[0]} · {choice}"
    return Chart(
        "Best configurations", text, Axis(_steps(answer)), Axis(_metric(answer)), tuple(marks)
    )


def tunability(answer: Answer) -> Chart:
    marks = [
        Line(f"{name} ({measured.value:.2f})", measured.quantiles, measured.curve, muted=False)
        for name, measured in sorted(answer.detail.items(), key=lambda entry: -entry[1].value)
    ]
    x = Axis("quantile of configurations", limits=(0.0, 1.0))
    y = Axis("best − quantile, share of range", limits=(0.0, 1.02))
    return Chart("Tunability (best − median)", _about(answer), x, y, tuple(marks))


def transfer(answer: Answer) -> Chart:
    title = "Regret of another environment's best configuration"
    return _matrix(answer, title, str)


def phases(answer: Answer) -> Chart:
    title = "Regret of another phase's best configuration"
    return _matrix(answer, title, lambda number: f"phase {number}")


def _matrix(answer: Answer, title: str, label: Callable[[object], str]) -> Chart:
    wide = answer.table.pivot_table(
        index="best_in", columns="used_in", values="regret", sort=False, observed=True
    )
    rows, columns = (tuple(label(name) for name in axis) for axis in (wide.index, wide.columns))
    mark = HeatMap(
        wide.to_numpy(), "regret (0 = its own best, 1 = the worst)", (0.0, 1.0), annotate=True
    )
    x = Axis("used in", categories=columns)
    y = Axis("best in", categories=rows)
    return Chart(title, _about(answer), x, y, (mark,))


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
    return Chart(
        title,
        _about(answer),
        Axis(label, limits=limits),
        Axis("", categories=tuple(labels)),
        (mark,),
    )


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
