"""A Parzen estimator that is kept from ask to ask.

It is the density of Optuna's multivariate `TPESampler`: a mixture of one kernel for each member and
a prior. A kernel is a product, over

- floats, and integers of many values: of normal distributions cut off at the bounds;
- other integers and ordered choices: of their probabilities of the values;
- choices: of the member's own and, as likely as in one more member, any.

The bandwidth of a number is its distance to the farther of the two members next to it, at least a
hundredth of the range (a larger part while members are few).

    members at 0.2, 0.3, 0.6 of the unit interval
    bandwidths 0.1, 0.3, 0.3; at least 1/5, as three members and the prior are four kernels

Members are kept in order, for each number, so that one more or less changes two neighbours. All
that is kept is a function of the members alone: built at once it has the same bits.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autorl.core.types import Failed
from autorl.optimizers.base import Record
from autorl.space import Hyperparameter

Array = NDArray[np.float64]

TABLED = 100
"""Values of an integer whose probabilities are kept; one of more values is a float.

Kernels are at least a hundredth of the range wide, so they hold more than one value then.
"""
PRIOR = 0  # its row
RECENT = 25  # members that count in full
UNDERFLOW = -700.0  # instead of smaller logarithms
NEGLIGIBLE = 40.0  # a kernel whose logarithm is so much smaller than another's changes no digit


class ParzenEstimator:
    """A density over hyperparameters that are active together.

    A place is in [-0.5, 0.5], that of a category the position of the choice.

    Args:
        items: the hyperparameters, each of more than one value.
    """

    def __init__(self, items: Sequence[Hyperparameter]) -> None:
        self._items = items
        is_category = np.array([item.type == "categorical" for item in items])
        self._numbers = np.flatnonzero(~is_category)
        n = len(self._numbers)
        self._columns = np.arange(n)
        numbers = [item for item in items if item.type != "categorical"]
        bounds = {column: _bounds(item) for column, item in enumerate(numbers)}
        self._bounds = {column: ends for column, ends in bounds.items() if ends is not None}
        self._smooth = np.array([ends is None for ends in bounds.values()], dtype=np.float64)
        # Members by value, between two ends that are none.
        self._orders = [[(-math.inf, PRIOR), (math.inf, PRIOR)] for _ in self._numbers]
        self._least = 0.0
        self._touched = [np.full(n, PRIOR)]
        # By row: distances to the two neighbours; the probabilities of a normal distribution below
        # the range and in it, and its bandwidth; the constant of the logarithm of its kernel, and
        # the factors of x^2, x and, in a sum, the constants.
        self._length = 1
        self._member = np.array([True])
        self._kernels = np.array([PRIOR])
        self._points = np.where(is_category, -1.0, 0.0)[None]
        self._gaps = np.zeros((1, 2, n))
        self._normals = np.zeros((1, 3, n))
        self._constants = np.zeros((1, n))
        self._factors = np.zeros((1, 2 * n + 1))
        self._logs = {column: np.zeros((1, len(ends) - 1)) for column, ends in self._bounds.items()}

    @property
    def rows(self) -> NDArray[np.intp]:
        """Rows of the members, ascending."""
        return np.flatnonzero(self._member)[1:]

    def add(self, point: Array) -> int:
        """Add a row, from 1, that is no member yet."""
        if self._length == len(self._member):
            for name in ("_member", "_points", "_gaps", "_normals", "_constants", "_factors"):
                setattr(self, name, _doubled(getattr(self, name)))
            self._logs = {column: _doubled(logs) for column, logs in self._logs.items()}
        self._points[self._length] = point
        self._length += 1
        return self._length - 1

    def enrol(self, row: int, member: bool) -> None:
        """Make a row a member, or none, which it was not before."""
        self._member[row] = member
        neighbours: list[tuple[int, ...]] = []
        values = self._points[row, self._numbers].tolist()
        for order, value in zip(self._orders, values, strict=True):
            place = bisect_left(order, (value, row))
            if member:
                order.insert(place, (value, row))
                neighbours.append((order[place - 1][1], row, order[place + 1][1]))
            else:
                del order[place]
                neighbours.append((order[place - 1][1], order[place][1]))
        rows = np.array(neighbours, dtype=np.intp).reshape(len(values), 2 + member).T
        places = self._points[rows, self._numbers]
        gaps = np.where(rows[1:] * rows[:-1] == PRIOR, 0.0, places[1:] - places[:-1])
        self._gaps[rows[:-1], 1, self._columns] = gaps
        self._gaps[rows[1:], 0, self._columns] = gaps
        self._touched.append(rows.ravel())

    def _fit(self) -> None:
        """Compute the kernels whose bandwidth has changed."""
        from scipy.special import ndtr

        if not self._touched:
            return
        self._kernels = np.flatnonzero(self._member)
        least = 1 / min(100.0, 1.0 + len(self._kernels))
        if least != self._least:
            self._touched = [np.repeat(self._kernels, len(self._numbers))]
        rows = np.concatenate(self._touched)
        columns = np.arange(len(rows)) % len(self._numbers)
        centres = self._points[rows, self._numbers[columns]]
        # 1. bandwidths: one member alone reaches to the farther bound
        gaps = self._gaps[rows, :, columns].max(axis=1)
        gaps = 0.5 + np.abs(centres) if len(self._kernels) == 2 else gaps
        widths = np.where(rows == PRIOR, 1.0, np.minimum(np.maximum(gaps, least), 1.0))
        self._least = least
        self._touched = []
        # 2. logarithms: of normal densities, but for a constant, and of probabilities
        below, up_to = ndtr((np.array([[-0.5], [0.5]]) - centres) / widths)
        mass = up_to - below
        constants = -0.5 * (centres / widths) ** 2 - np.log(widths * mass)
        smooth = self._smooth[columns]
        self._normals[rows, :, columns] = np.array([below, mass, widths]).T
        self._constants[rows, columns] = constants * smooth
        self._factors[rows, columns] = -0.5 / widths**2 * smooth
        self._factors[rows, columns + len(self._numbers)] = centres / widths**2 * smooth
        self._factors[rows, -1] = self._constants[rows].sum(axis=1)
        for column, bounds in self._bounds.items():
            chosen = columns == column
            ends = (bounds - centres[chosen, None]) / widths[chosen, None]
            # On the left, where differences of small probabilities are exact.
            side = np.where(ends[:, :-1] > 0, -1.0, 1.0)
            shares = side * (ndtr(side * ends[:, 1:]) - ndtr(side * ends[:, :-1]))
            logs = np.log(np.maximum(shares / mass[chosen, None], math.exp(UNDERFLOW)))
            self._logs[column][rows[chosen]] = logs

    def draw(self, rng: np.random.Generator, count: int, weights: Array) -> Array:
        """Draw points, shape (count, d).

        Args:
            rng: of the draws.
            count: of the points.
            weights: of the members, in the order of `rows`; the prior has 1.
        """
        from scipy.special import ndtri

        self._fit()
        sums = np.cumsum(np.append(1.0, weights))
        picked = np.searchsorted(sums, rng.random(count) * sums[-1], side="right")
        kernels = self._kernels[np.minimum(picked, len(weights))]
        quantiles = rng.random((count, len(self._items)))
        drawn: Array = self._points[kernels]
        centres = drawn[:, self._numbers]
        below, mass, widths = self._normals[kernels].transpose(1, 0, 2)
        steps = widths * ndtri(below + quantiles[:, self._numbers] * mass)
        drawn[:, self._numbers] = np.clip(centres + steps, -0.5, 0.5)
        n = len(weights) + 1
        for at, item in enumerate(self._items):
            if item.type == "categorical":
                stays = np.where(kernels == PRIOR, 0.0, n / (n + item.n_choices))
                any_choice = np.floor((quantiles[:, at] - stays) / (1 - stays) * item.n_choices)
                drawn[:, at] = np.where(any_choice < 0, drawn[:, at], any_choice)
            elif item.type != "float":  # at a value
                places = drawn[:, at].tolist()
                drawn[:, at] = [item.to_unit(item.from_unit(0.5 + x)) - 0.5 for x in places]
        return drawn

    def log_density(self, points: Array, weights: Array) -> Array:
        """Return logarithms of the density at points of shape (n, d).

        They lack a constant, which is the same for all estimators of these hyperparameters.

        Args:
            points: shape (n, d).
            weights: of the members, in the order of `rows`; the prior has 1.
        """
        self._fit()
        rows = self._kernels
        n = len(rows)
        x = points[:, self._numbers]
        share = np.append(1.0, weights)
        factors = self._factors.take(rows, axis=0)
        factors[:, -1] += np.log(share / share.sum())
        logs = np.hstack([x**2, x, np.ones((len(x), 1))]) @ factors.T
        for column, bounds in self._bounds.items():
            values = np.searchsorted(bounds[1:-1], x[:, column], side="right")
            logs += self._logs[column][np.ix_(rows, values)].T
        for at, item in enumerate(self._items):
            if item.type == "categorical":
                equal = points[:, at, None] == self._points[rows, at]
                logs += np.log(1 + n) * equal - np.log(n + item.n_choices)
                logs[:, PRIOR] += np.log((n + item.n_choices) / item.n_choices)
        top = logs.max(axis=1)
        # Exponentials are most of the work, and most of them are too small to count.
        close = np.flatnonzero(logs > top[:, None] - NEGLIGIBLE)
        point = close // n
        kernels = np.exp(logs.ravel()[close] - top[point])
        return np.asarray(np.log(np.bincount(point, kernels)) + top)


def points_of(items: Sequence[Hyperparameter], units: Array) -> Array:
    """Return an estimator's points at places in the unit cube."""
    points = units - 0.5
    for at, item in enumerate(items):
        if item.type == "categorical":
            points[:, at] = np.floor(units[:, at] * item.n_choices)
    return points


class Feasibility:
    """The probability that a run does not fail.

    It is by Bayes' rule of a density of failed runs and a density of the others.

    Args:
        items: hyperparameters that are active together.

    Attributes:
        needed: whether a run has failed.
        points: of proposals that have the hyperparameters.
    """

    def __init__(self, items: Sequence[Hyperparameter]) -> None:
        self.needed = False
        self._densities = ParzenEstimator(items), ParzenEstimator(items)  # of others, of failed
        self.points: dict[int, Array] = {}
        self._queue: list[tuple[int, bool]] = []  # in no density yet
        self._rows: dict[int, tuple[bool, int]] = {}  # by number: whether failed, and where

    @classmethod
    def of(
        cls, items: Sequence[Hyperparameter], places: Array, records: Sequence[Record]
    ) -> Feasibility:
        """Learn it from ended records, at places in the unit cube."""
        learned = cls(items)
        if any(isinstance(record.result, Failed) for record in records):
            learned.points |= zip((it.id for it in records), points_of(items, places), strict=True)
            for record in records:
                learned.end(record.id, isinstance(record.result, Failed))
        return learned

    def end(self, number: int, failed: bool) -> None:
        """Take note of how a proposal ended, perhaps another way than before."""
        if number in self.points:
            self._queue.append((number, failed))
            self.needed |= failed

    def log_probability(self, points: Array) -> Array:
        """Return logarithms of the probability at points, by Bayes' rule."""
        for number, failed in self._queue:
            if number in self._rows:
                before, row = self._rows[number]
                self._densities[before].enrol(row, False)
            density = self._densities[failed]
            self._rows[number] = failed, density.add(self.points[number])
            density.enrol(self._rows[number][1], True)
        self._queue.clear()
        counts = [np.ones(len(density.rows)) for density in self._densities]
        of_others, of_failed = (
            density.log_density(points, ones) + math.log(len(ones) + 1)
            for density, ones in zip(self._densities, counts, strict=True)
        )
        return np.asarray(-np.logaddexp(0.0, of_failed - of_others))


def weights_of_age(n: int) -> Array:
    """Return weights of members by age, the oldest first."""
    weights = np.ones(n)
    if n > RECENT:
        weights[:-RECENT] = np.linspace(1 / n, 1.0, n - RECENT)
    return weights


def _doubled(array: Array) -> Array:
    return np.concatenate([array, np.zeros_like(array)])


def _bounds(item: Hyperparameter) -> Array | None:
    """Return the bounds of each value's part of the range, if few."""
    if item.type == "ordinal":
        return np.arange(item.n_choices + 1) / item.n_choices - 0.5
    lower, upper = item.bounds
    if item.type == "float" or upper - lower >= TABLED:
        return None
    ends = [item.to_unit(lower - 0.5 + place) for place in range(int(upper - lower) + 2)]
    return np.array(ends) - 0.5
