"""Aggregates: one number for an array of scores.

Scores are an (n runs, m tasks) array, or n values of one task; larger is better. An `Aggregate` is
called with such an array and returns a float. Its docstring is its definition. Study files write
it as `name` or `name(number)`.

References:
    [Agarwal2021] Agarwal et al., "Deep reinforcement learning at the edge of the statistical
        precipice", NeurIPS 2021.
    [Rockafellar2002] Rockafellar and Uryasev, "Conditional value-at-risk for general loss
        distributions", 2002.
    [Hyndman1996] Hyndman and Fan, "Sample quantiles in statistical packages", 1996.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import did_you_mean
from autorl.core.types import InputError
from autorl.statistics.arrays import Array, as_scores, as_table

_FORM = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*([^()]*?)\s*\))?\s*\Z")


@dataclass(frozen=True)
class Named:
    """A named function of an array, whose docstring is its definition.

    Attributes:
        name: as written in a study file, e.g. `cvar(0.2)`: parsing it gives the same function.
        stacked: the same function of a stack of arrays, along the last axes; inputs are not
            checked.
    """

    name: str
    stacked: Callable[[Array], Array]

    def __post_init__(self) -> None:
        definition = self.stacked.func if isinstance(self.stacked, partial) else self.stacked
        object.__setattr__(self, "__doc__", definition.__doc__)

    @classmethod
    def of(cls, stacked: Callable[[Array], Array], **more: Any) -> Self:
        """Make what a function defines, under the function's name."""
        # That name is the result's from here on: pickle finds the function by this path.
        stacked.__qualname__ = f"{stacked.__name__}.stacked"
        return cls(stacked.__name__, stacked, **more)


N = TypeVar("N", bound=Named)


def parsed(
    text: str | N, plain: Mapping[str, N], with_number: Mapping[str, Callable[[float], N]], key: str
) -> N:
    """Return the function that a text names, or a function itself.

    Args:
        text: as in a study file.
        plain: functions by name.
        with_number: what makes one of its number, by name.
        key: of the study file, for messages.

    Raises:
        InputError: unknown name (the message has the nearest one), or a number that is missing,
            unreadable, out of range or one too many.
    """
    if isinstance(text, Named):
        return text
    forms = [*plain, *(f"{name}(number)" for name in with_number)]
    # A study file may hold anything here, a bare number too.
    match = _FORM.match(text) if isinstance(text, str) else None
    name = match.group(1) if match else str(text)
    if match is None or name not in {*plain, *with_number}:
        allowed = f"allowed: {', '.join(forms)}"
        hint = did_you_mean(name.split("(")[0], [*plain, *with_number], allowed)
        raise InputError(f"unknown name {text!r}{hint}", key=key)
    argument = match.group(2)
    if name in plain:
        if argument is not None:
            raise InputError(f"'{name}' takes no number, got {text!r}", key=key)
        return plain[name]
    try:
        number = float(argument or "")
    except ValueError as error:
        raise InputError(
            f"'{name}' needs one number, e.g. '{name}(0.2)', got {text!r}", key=key
        ) from error
    try:
        return with_number[name](number)
    except ValueError as error:
        raise InputError(str(error), key=key) from error


class Aggregate(Named):
    """A named function of scores, shape (..., n, m), with shape (...)."""

    def __call__(self, scores: npt.ArrayLike) -> float:
        """Aggregate scores of shape (n,) or (n runs, m tasks).

        Raises:
            ValueError: the scores are empty or not finite.
        """
        return float(self.stacked(as_scores(scores)))


def _pooled_sorted(scores: Array) -> Array:
    """Sort all values of an array, ascending.

    Shapes: (..., n, m) -> (..., n * m).
    """
    return np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)


@Aggregate.of
def mean(scores: Array) -> Array:
    """Mean of all n * m values."""
    return np.asarray(scores.mean(axis=(-2, -1)))


@Aggregate.of
def median(scores: Array) -> Array:
    """Middle of all n * m values sorted.

    If their number is even, it is the mean of the two middle values.
    """
    return np.asarray(np.median(scores, axis=(-2, -1)))


@Aggregate.of
def iqm(scores: Array) -> Array:
    """Interquartile mean of all n * m values [Agarwal2021].

    The values are sorted, floor(n * m / 4) are dropped from each end, and the rest is averaged.
    With fewer than 4 values nothing is dropped: the mean.
    """
    ordered = _pooled_sorted(scores)
    count = ordered.shape[-1]
    # A whole number, as SciPy's `trim_mean` has it, which the paper's library rliable calls.
    drop = count // 4
    return np.asarray(ordered[..., drop : count - drop].mean(axis=-1))


@Aggregate.of
def worst(scores: Array) -> Array:
    """Least of all n * m values."""
    return np.asarray(scores.min(axis=(-2, -1)))


def _mean_minus_std(scores: Array, k: float) -> Array:
    """Mean of all values minus k standard deviations.

    With ddof=1; the deviation of a single value is 0.
    """
    pooled = scores.reshape(*scores.shape[:-2], -1)
    deviation = pooled.std(axis=-1, ddof=1) if pooled.shape[-1] > 1 else 0.0
    return np.asarray(pooled.mean(axis=-1) - k * deviation)


def _quantile(scores: Array, q: float) -> Array:
    """The q-quantile of all n * m values.

    Linear between order statistics, which is type 7 of [Hyndman1996].
    """
    pooled = scores.reshape(*scores.shape[:-2], -1)
    return np.asarray(np.quantile(pooled, q, axis=-1))


def _cvar(scores: Array, alpha: float) -> Array:
    """Conditional value at risk: mean of the lowest alpha share [Rockafellar2002].

    With the N = n * m values sorted, x_1 <= ... <= x_N, it is sum_i w_i x_i / (alpha N), w_i =
    min(1, max(0, alpha N - (i - 1))). cvar(1) is the mean; alpha <= 1/N gives the minimum.
    """
    ordered = _pooled_sorted(scores)
    share = alpha * ordered.shape[-1]
    # The value at the edge of the share has the fraction of it that lies inside.
    weights = np.clip(share - np.arange(ordered.shape[-1]), 0.0, 1.0)
    return np.asarray(ordered @ (weights / weights.sum()))


def quantile(q: float) -> Aggregate:
    """Make the aggregate that takes the q-quantile, 0 <= q <= 1.

    Used as `quantile(0.25)(scores)`.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q of a quantile must lie in [0, 1], got {q!r}")
    return Aggregate(f"quantile({float(q)})", partial(_quantile, q=float(q)))


def cvar(alpha: float) -> Aggregate:
    """Make the aggregate that averages the worst alpha share of the values.

    Used as `cvar(0.2)(scores)`, 0 < alpha <= 1.
    """
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha of cvar must lie in (0, 1], got {alpha!r}")
    return Aggregate(f"cvar({float(alpha)})", partial(_cvar, alpha=float(alpha)))


def mean_minus_std(k: float) -> Aggregate:
    """Make the aggregate that subtracts k >= 0 standard deviations.

    They are taken off the mean: `mean_minus_std(1)(scores)`.
    """
    if not 0 <= k < np.inf:
        raise ValueError(f"k of mean_minus_std must be a finite number >= 0, got {k!r}")
    return Aggregate(f"mean_minus_std({float(k)})", partial(_mean_minus_std, k=float(k)))


# Larger must be better: no optimality gap among those a study may name.
_PLAIN = {aggregate.name: aggregate for aggregate in (mean, median, iqm, worst)}
_WITH_NUMBER = {"cvar": cvar, "quantile": quantile, "mean_minus_std": mean_minus_std}


def parse_aggregate(text: str | Aggregate, key: str = "aggregate") -> Aggregate:
    """Return `mean`, `worst`, `cvar(0.2)` and the like as a function.

    Args:
        text: the name; an `Aggregate` is returned as it is.
        key: of the study file, for the error message.

    Raises:
        InputError: unknown name or a number out of range.
    """
    return parsed(text, _PLAIN, _WITH_NUMBER, key)


def ranking(scores: npt.ArrayLike, aggregate: str | Aggregate = "mean") -> npt.NDArray[np.int64]:
    """Rank the rows of a (configurations, seeds) array, best first.

    By the aggregate over the seeds; ties: larger mean, then lower standard deviation, then the
    earlier row.
    """
    table = as_table(scores, "scores")
    values = parse_aggregate(aggregate).stacked(table[:, :, None])
    spread = table.std(axis=1, ddof=1) if table.shape[1] > 1 else np.zeros(len(table))
    # An IQM or a median saturates at a capped return: ties are common, and no matter of chance.
    # The last key sorts first; rows that are equal in all three stay in their order.
    return np.lexsort((spread, -table.mean(axis=1), -values))


def select(scores: npt.ArrayLike, aggregate: str | Aggregate = "mean") -> int:
    """Return the best row of a (configurations, seeds) array.

    It is the first of `ranking`.
    """
    return int(ranking(scores, aggregate)[0])
