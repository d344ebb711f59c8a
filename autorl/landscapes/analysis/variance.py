"""Importance of hyperparameters over the whole space.

fANOVA [1] splits the variance of a random forest's prediction over the uniform unit cube into
shares of single hyperparameters and of pairs. A tree is constant on boxes, so every integral is a
sum over leaves, and exact. With leaf values v, sizes s, and q = s (v - mean), the variance of the
marginal over the hyperparameters U is

    V_U = sum over leaves i, j of  q_i q_j  prod over d in U of
          overlap_d(i, j) / (width_d(i) width_d(j)),

and the share of a pair alone is V_ab - V_a - V_b, all divided by the variance of the tree.

References:
    [1] Hutter, Hoos and Leyton-Brown, "An efficient approach for assessing hyperparameter
        importance", ICML 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.core.types import InputError
from autorl.landscapes.analysis.forest import Forest, largest_first
from autorl.landscapes.regression import Array
from autorl.space import Hyperparameter

if TYPE_CHECKING:
    import pandas as pd

_FEW = 1000  # values of an integer that are counted one by one; more are as good as a continuum


@dataclass(frozen=True, eq=False)
class Leaves:
    """A tree as boxes.

    Attributes:
        low, high: (leaves, d), in the measure of each hyperparameter.
        values: (leaves,).
    """

    low: Array
    high: Array
    values: Array


def fanova(forest: Forest, pairs: bool = False) -> pd.DataFrame:
    """Compute variance shares over the whole space.

    Columns: hyperparameter, with, importance (mean over trees), spread (standard deviation over
    trees). Main effects, whose `with` is None, come first; with `pairs` the effects of all pairs
    follow. Both are sorted, the largest first.

    Raises:
        InputError: no tree has a split.
    """
    import pandas as pd

    columns = range(len(forest.names))
    terms: list[tuple[int, ...]] = [(column,) for column in columns]
    if pairs:
        terms += combinations(columns, 2)
    # Shares of every tree, and then their mean, as in Hutter et al. 2014.
    shares = [variance_shares(leaves, terms) for leaves in forest_leaves(forest)]
    if not shares:
        raise InputError(
            "no tree of the forest has a split: the scores do not depend on the hyperparameters"
        )
    table = np.array(shares)  # (trees, terms)
    partners = [forest.names[term[1]] if len(term) == 2 else None for term in terms]
    rows = {
        "hyperparameter": [forest.names[term[0]] for term in terms],
        # As objects: pandas makes NaN of a None beside strings.
        "with": pd.Series(partners, dtype=object),
        "importance": table.mean(axis=0),
        "spread": table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(len(terms)),
    }
    return largest_first(pd.DataFrame(rows), "importance").sort_values(
        "with", key=lambda names: names.notna(), kind="stable", ignore_index=True
    )


def variance_shares(leaves: Leaves, terms: list[tuple[int, ...]]) -> list[float]:
    """Compute each term's share of a tree's variance.

    A term is one column (its main effect) or two (the pair beyond both).
    """
    widths = leaves.high - leaves.low
    sizes = widths.prod(axis=1)
    # The boxes fill the unit cube, so this is the tree minus its mean over the cube.
    centred = leaves.values - sizes @ leaves.values
    weighted = sizes * centred
    total = float(weighted @ centred)
    needed = sorted({column for term in terms for column in term})
    kernels = {column: _kernel(leaves, column) for column in needed}
    single = {column: float(weighted @ kernels[column] @ weighted) for column in needed}
    shares = []
    for term in terms:
        if len(term) == 1:
            shares.append(single[term[0]] / total)
        else:
            joint = float(weighted @ (kernels[term[0]] * kernels[term[1]]) @ weighted)
            # Round-off alone makes it negative: a pair explains at least what its parts do.
            shares.append(max(0.0, joint - single[term[0]] - single[term[1]]) / total)
    return shares


def forest_leaves(forest: Forest) -> list[Leaves]:
    """Return the leaves of each tree that has a split."""
    items = [forest.space.hyperparameters[name] for name in forest.names]
    trees = (_leaves(estimator.tree_, items) for estimator in forest.model.estimators_)
    return [leaves for leaves in trees if np.ptp(leaves.values) > 0.0]


def _leaves(tree: Any, items: list[Hyperparameter]) -> Leaves:
    """Cut a scikit-learn tree into boxes.

    Leaves that no value can reach have no size and are left out.
    """
    boxes: list[tuple[Array, Array, float]] = []
    stack = [(0, np.zeros(len(items)), np.ones(len(items)))]
    while stack:
        node, low, high = stack.pop()
        left = tree.children_left[node]
        right = tree.children_right[node]
        # scikit-learn marks a leaf by -1 for both children.
        if left == right:
            if np.all(high > low):
                boxes.append((low, high, float(tree.value[node].item())))
            continue
        column = int(tree.feature[node])
        cut = _measure(items[column], float(tree.threshold[node]))
        below = high.copy()
        above = low.copy()
        below[column] = above[column] = cut
        stack += [(left, low, below), (right, above, high)]
    lows, highs, values = zip(*boxes, strict=True)
    return Leaves(np.array(lows), np.array(highs), np.array(values))


def _measure(item: Hyperparameter, threshold: float) -> float:
    """Return the share of a hyperparameter's values up to a threshold.

    The threshold lies in the unit interval, and a value at it counts.
    """
    count = item.n_choices
    if item.type == "int" and item.scale == "linear":
        lower, upper = item.bounds
        count = int(upper - lower) + 1 if upper - lower < _FEW else 0
    if not count:
        return threshold
    # Choices and integers lie at the centres of equal parts, so a cut counts whole parts.
    # The forest compares in single precision.
    centres = ((np.arange(count) + 0.5) / count).astype(np.float32)
    return float(np.count_nonzero(centres <= threshold)) / count


def _kernel(leaves: Leaves, column: int) -> Array:
    """Relate the leaves' overlaps along one column to their widths.

    Every two leaves have the value overlap / (width of one x width of the other).
    """
    low = leaves.low[:, column]
    high = leaves.high[:, column]
    # (leaves, leaves); negative where two boxes do not meet.
    overlap = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    width = high - low
    return np.asarray(np.maximum(overlap, 0.0) / (width[:, None] * width))
