"""Measures importance and seed noise from the scores of a study.

A page fits a small forest of its own to at most `SAMPLE` configurations: scikit-learn and pandas
alone take 200 MB and 1 CPU-second to import. Trees are grown level by level, all at once, on
columns cut into at most `_PARTS` equal parts. `autorl landscape importance` takes all
configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted, number
from autorl.landscapes.analysis.scores import seed_noise
from autorl.landscapes.analysis.variance import Leaves, variance_shares
from autorl.landscapes.regression import encode
from autorl.report.configurations import COMPLETE, ConfigurationRow
from autorl.report.pages.chart import Array, Axis, Bars, Chart, HeatMap, Line, scale_label
from autorl.report.pages.document import Block, Figure, Row, Text, tried
from autorl.report.text import value_text
from autorl.space import Hyperparameter, Space
from autorl.statistics.comparison import spearman
from autorl.store.rows import SUCCEEDED
from autorl.study.results.record import StudyRecord

Integers = npt.NDArray[np.int64]
SAMPLE = 512
"""Configurations that are looked at: a fixed draw where there are more."""
_LEAST = 10
_TREES = 64
_PARTS = 32
_FEATURES = 5 / 6  # tried at each split, and rows of a leaf: as in `landscapes.regression`
_MIN_LEAF = 3
_SIDE = 16  # points along each side of the surface
_MOST_BARS = 20
_WEAK_FIT = 0.5  # rank correlation below which importances describe noise
_WEAK = ("the forest explains little here: what it says about hyperparameters is mostly noise",)


@dataclass(frozen=True, eq=False)
class SmallForest:
    """Regression trees as boxes.

    Attributes:
        tree: of each leaf.
        low, high: ends of the leaves (leaves, columns), in parts of each column.
        values: mean scores of the leaves.
        predicted: of each row by the trees that did not see it; NaN where all did.
    """

    tree: Integers
    low: Integers
    high: Integers
    values: Array
    predicted: Array


def grow(codes: Integers, parts: Integers, targets: Array) -> SmallForest:
    """Fit trees to bootstrap samples of rows (n, d) of part numbers.

    Args:
        codes: which part of each column a row lies in.
        parts: how many parts a column has.
        targets: the score of each row.
    """
    rng = np.random.default_rng(0)
    count, columns = codes.shape
    tried = max(1, int(_FEATURES * columns))
    # One entry for each row in each tree: row, weight, node; nodes are numbered level by level.
    rows = np.tile(np.arange(count), _TREES)
    draws = rng.integers(count, size=(_TREES, count)) + count * np.arange(_TREES)[:, None]
    weights = np.bincount(draws.ravel(), minlength=_TREES * count).astype(np.float64)
    node = np.repeat(np.arange(_TREES), count)
    tree = np.arange(_TREES)
    low = np.zeros((_TREES, columns), dtype=np.int64)
    high = np.tile(parts, (_TREES, 1))
    leaves: list[tuple[Integers, Integers, Integers, Array]] = []
    unseen = np.zeros((2, count))  # sums of predictions, and how many
    while len(tree):
        size = np.bincount(node, weights, len(tree))
        total = np.bincount(node, weights * targets[rows], len(tree))
        order = rng.random((len(tree), columns)).argsort(axis=1).argsort(axis=1)
        gain = total**2 / size * (1.0 + 1e-9)
        cut = np.zeros(len(tree), dtype=np.int64)
        column = np.full(len(tree), -1)
        for place in range(columns):
            key = node * _PARTS + codes[rows, place]
            left, left_sum = (
                np.bincount(key, values, len(tree) * _PARTS).reshape(-1, _PARTS).cumsum(axis=1)
                for values in (weights, weights * targets[rows])
            )
            right = size[:, None] - left
            gains = left_sum**2 / np.maximum(left, 1.0)
            gains += (total[:, None] - left_sum) ** 2 / np.maximum(right, 1.0)
            gains[(np.minimum(left, right) < _MIN_LEAF) | (order[:, place, None] >= tried)] = 0.0
            at = gains.argmax(axis=1)
            best = gains[np.arange(len(tree)), at]
            better = best > gain
            gain = np.where(better, best, gain)
            cut = np.where(better, at + 1, cut)
            column = np.where(better, place, column)
        split = column >= 0
        mean = total / size
        leaves.append((tree[~split], low[~split], high[~split], mean[~split]))
        ended = ~split[node]
        aside = ended & (weights == 0.0)
        unseen[0] += np.bincount(rows[aside], mean[node[aside]], count)
        unseen[1] += np.bincount(rows[aside], minlength=count)
        rows, weights, node = rows[~ended], weights[~ended], node[~ended]
        above = codes[rows, column[node]] >= cut[node]
        node = 2 * (split.cumsum() - 1)[node] + above
        column, cut = column[split], cut[split]
        tree, low, high = (np.repeat(part[split], 2, axis=0) for part in (tree, low, high))
        children = 2 * np.arange(len(cut))
        high[children, column] = cut
        low[children + 1, column] = cut
    with np.errstate(invalid="ignore"):
        predicted = unseen[0] / unseen[1]
    trees, lows, highs, values = map(np.concatenate, zip(*leaves, strict=True))
    return SmallForest(trees, lows, highs, values, predicted)


def shares_of(forest: SmallForest, parts: Integers) -> Array:
    """Compute each column's share of variance in every split tree."""
    terms: list[tuple[int, ...]] = [(column,) for column in range(len(parts))]
    shares = []
    for tree in range(_TREES):
        inside = forest.tree == tree
        if inside.sum() > 1:
            boxes = (forest.low[inside] / parts, forest.high[inside] / parts)
            shares.append(variance_shares(Leaves(*boxes, forest.values[inside]), terms))
    return np.array(shares)


def surface_of(
    forest: SmallForest, codes: Integers, columns: Sequence[int], points: Sequence[Integers]
) -> Array:
    """Predict the mean score with two columns at each point.

    The other columns are as recorded.
    """
    share = np.ones((len(codes), len(forest.tree)), dtype=bool)
    for place in set(range(codes.shape[1])).difference(columns):
        held = codes[:, place, None]
        share &= (held >= forest.low[:, place]) & (held < forest.high[:, place])
    first, second = (
        ((at[:, None] >= forest.low[:, place]) & (at[:, None] < forest.high[:, place])).astype(
            float
        )
        for place, at in zip(columns, points, strict=True)
    )
    surface: Array = (first * (share.mean(axis=0) * forest.values)) @ second.T / _TREES
    return surface


def _parts(item: Hyperparameter) -> int:
    """Count the parts of a hyperparameter, its values where they are few."""
    values = item.n_choices
    if item.type == "int" and item.scale == "linear":
        values = int(item.bounds[1] - item.bounds[0]) + 1
    return values if 0 < values <= _PARTS else _PARTS


def complete_sample(rows: Sequence[ConfigurationRow]) -> tuple[list[ConfigurationRow], str]:
    """Choose scored configurations of full length, and say how many."""
    scored = [row for row in rows if row.state == COMPLETE and np.isfinite(row.score or np.nan)]
    text = counted(len(scored), "configuration", form=",")
    if len(scored) <= SAMPLE:
        return scored, text
    chosen = np.sort(np.random.default_rng(0).permutation(len(scored))[:SAMPLE])
    return [scored[place] for place in chosen], f"a sample of {SAMPLE} of {text}"


def importance_blocks(space: Space, rows: Sequence[ConfigurationRow], label: str) -> list[Block]:
    """Draw how much each hyperparameter matters, and the top two together."""
    sample, said = complete_sample(rows)
    items = [item for item in space.hyperparameters.values() if item.type != "constant"]
    scores = np.array([row.score for row in sample], dtype=np.float64)
    if len(sample) < _LEAST:
        text = f"importance: it needs {_LEAST} configurations of full length, and has {said}."
        return [Text(text, "note")]
    if not items or np.ptp(scores) == 0.0:
        return [Text("importance: all scores or all configurations are the same.", "note")]
    parts = np.array([_parts(item) for item in items])
    units = encode(space, [item.name for item in items], [row.values for row in sample])
    codes = np.minimum((units * parts).astype(np.int64), parts - 1)
    forest = grow(codes, parts, scores)
    shares = shares_of(forest, parts)
    if not len(shares):
        return [Text("importance: the scores do not depend on the hyperparameters.", "note")]
    unseen = np.isfinite(forest.predicted)
    fit = float(spearman(scores[unseen], forest.predicted[unseen]))
    about = f"{said} · fit: out-of-bag rank correlation {fit:.2f}"
    mean = shares.mean(axis=0)
    spread = shares.std(axis=0, ddof=1) if len(shares) > 1 else np.zeros(len(mean))
    order = np.argsort(-mean, kind="stable")[:_MOST_BARS]
    interval = (np.maximum(mean - spread, 0.0)[order], (mean + spread)[order])
    y = Axis("", categories=tuple(items[place].name for place in order))
    x = Axis("share of variance (± deviation over trees)")
    mark = Bars(mean[order], interval)
    chart = Chart("Importance of hyperparameters", about, x, y, (mark,))
    figures = [Figure(chart, "importance", _WEAK if fit < _WEAK_FIT else ())]
    if len(items) < 2:
        return [Row(figures)]
    columns = order[:2].tolist()
    first, second = (items[place] for place in columns)
    sides = [min(int(parts[place]), _SIDE) for place in columns]
    grids = [(np.arange(side) + 0.5) / side for side in sides]
    points = [
        (grid * parts[place]).astype(np.int64) for grid, place in zip(grids, columns, strict=True)
    ]
    heat = HeatMap(surface_of(forest, codes, columns, points)[::-1], f"predicted {label}")
    down, across = (
        side * units[:, place] - 0.5 for side, place in zip(sides, columns, strict=True)
    )
    names = (f"configuration {row.number}: {number(row.score)}" for row in sample)
    dots = Line.dots("trained configuration", across, sides[0] - 1.0 - down, names, muted=True)
    y, x = (
        Axis(scale_label(item), categories=_names(item, grid), thin=True)
        for item, grid in ((first, grids[0][::-1]), (second, grids[1]))
    )
    title = f"Partial dependence on {first.name} and {second.name}"
    text = f"{about} · dots: the configurations that were trained"
    return [Row([*figures, Figure(Chart(title, text, x, y, (heat, dots)), "surface")])]


def _names(item: Hyperparameter, units: Array) -> tuple[str, ...]:
    return tuple(value_text(item.from_unit(float(unit))) for unit in units)


def noise_blocks(record: StudyRecord, rows: Sequence[ConfigurationRow]) -> list[Block]:
    """Say how much of the variance on tuning seeds is noise."""
    sample, _ = complete_sample(rows)
    runs = {run.run_id: run for run in record.tables.runs()}
    scores: dict[int, dict[int, float]] = {}
    metric = record.spec.objectives()[0].metric
    # In order of steps: the last value of a run stays.
    for value in record.tables.values(metric, tuple(row.proposal for row in sample)):
        run = runs[value.run_id]
        if value.role == "tuning" and run.status in SUCCEEDED:
            scores.setdefault(run.config_id, {})[run.seed] = value.value
    most = max(map(len, scores.values()), default=0)
    table = [list(by_seed.values()) for by_seed in scores.values() if len(by_seed) == most]
    return tried(lambda: [noise_text(seed_noise(np.array(table, ndmin=2)))], "seed noise")


def noise_text(noise: Mapping[Any, Any]) -> Text:
    """Say what `seed_noise` has measured."""
    return Text(
        f"Seed noise is {noise['noise_share']:.0%} of the variance between runs "
        f"({counted(noise['configurations'], 'configuration')} on "
        f"{counted(noise['seeds'], 'seed')}; "
        f"intraclass correlation {noise['icc']:.2f}, 95 % interval {noise['low']:.2f} to "
        f"{noise['high']:.2f}); a seed's standard deviation is {number(noise['seed_sd'])}."
    )
