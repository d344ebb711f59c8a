"""Over-optimisation of a proxy reward [Gao2023].

Curves of the gold reward over the distance from the reference policy.

With d = sqrt(KL(policy || reference)) and gold rewards counted from the reference policy's own:

    best-of-n:               gold(d) = d (alpha - beta d)
    reinforcement learning:  gold(d) = d (alpha - beta log d)

Both rise, reach a maximum and fall: past it, more of the proxy is less of what was wanted.

The forms are about policies that spend their distance on the proxy. A landscape also holds others:
those whose learning rate or temperature moved them far for little proxy, and those that have
reached the lowest gold a task can give, where a curve without a floor goes on falling. `frontier`
and `fit_landscape` keep the first kind.

References:
    [Gao2023] Gao, Schulman and Hilton, "Scaling Laws for Reward Model Overoptimization", 2022
        (ICML 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.statistics.arrays import Array, as_vector, same_shape

if TYPE_CHECKING:
    import pandas as pd

    from autorl.landscapes import Landscape

Form: TypeAlias = Literal["best_of_n", "rl"]
# trl/rloo/letters-goldproxy: R2 of the square is 0.78 with those policies, 0.99 without
SATURATED = 0.05
"""A mean gold this close to its lower bound, as a share of its range, is at the bound."""
_LARGEST_EXPONENT = 300.0  # e^300 is farther than any policy
_MEASURED = ("kl", "proxy", "gold", "reference_gold")


@dataclass(frozen=True)
class Fit:
    """A form of [Gao2023] fitted to measured points.

    Attributes:
        form: `best_of_n` or `rl`.
        alpha, beta: its coefficients, by least squares on the gold reward.
        origin: gold reward of the reference policy.
        r2: 1 - residual sum of squares / sum of squares about the mean; negative if a constant fits
            better.
        peak_kl, peak_gold: where the curve is highest, and how high, origin included; None if it
            never falls again (beta <= 0) or never rises.
        interior: the curve has a maximum, and it lies strictly between the smallest and the largest
            KL measured.
    """

    form: Form
    alpha: float
    beta: float
    origin: float
    r2: float
    peak_kl: float | None
    peak_gold: float | None
    interior: bool

    def gold(self, kl: npt.ArrayLike) -> Array:
        """Return the fitted gold reward at these KL divergences."""
        return self.origin + curve(self.form, kl, self.alpha, self.beta)


def curve(form: Form, kl: npt.ArrayLike, alpha: float, beta: float) -> Array:
    """Return the gain in gold over the reference at KL divergences (nats)."""
    rise, fall = _columns(form, as_vector(kl, "kl"))
    return np.asarray(alpha * rise - beta * fall)


def fit(kl: npt.ArrayLike, gold: npt.ArrayLike, form: Form = "rl", *, origin: float = 0.0) -> Fit:
    """Fit a form to measured points by linear least squares.

    Args:
        kl: (n,) sequence KL from the reference policy, in nats; an estimate a little below 0 counts
            as 0.
        gold: (n,) gold reward of the same policies.
        form: which of the two.
        origin: gold reward of the reference policy, where KL is 0.

    Raises:
        ValueError: fewer than 3 distinct divergences, values that are not finite, or an unknown
            form.
    """
    distances = as_vector(kl, "kl")
    rewards = as_vector(gold, "gold")
    same_shape(distances, rewards, "kl and gold")
    different = len(np.unique(distances))
    if different < 3:
        raise ValueError(
            f"two coefficients need at least 3 different KL divergences, got {different}"
        )
    rise, fall = _columns(form, distances)
    # both forms are linear in alpha and beta: no start values, one optimum
    coefficients, *_ = np.linalg.lstsq(
        np.stack([rise, -fall], axis=1), rewards - origin, rcond=None
    )
    alpha = float(coefficients[0])
    beta = float(coefficients[1])
    residual = rewards - origin - (alpha * rise - beta * fall)
    total = float(np.sum((rewards - rewards.mean()) ** 2))
    r2 = 1.0 - float(np.sum(residual**2)) / total if total > 0 else float("nan")
    peak_kl, height = _peak(form, alpha, beta)
    interior = peak_kl is not None and float(distances.min()) < peak_kl < float(distances.max())
    peak_gold = None if height is None else origin + height
    return Fit(form, alpha, beta, origin, r2, peak_kl, peak_gold, interior)


def policies(landscape: Landscape, seeds: str = "test") -> pd.DataFrame:
    """Return every policy of a landscape, with means over seeds.

    A policy is a configuration at an evaluation; it counts if it was measured with every seed of
    the role.

    Returns:
        Columns config_id, step, kl, proxy, gold and reference_gold.

    Raises:
        InputError: a metric was not recorded, or there are no seeds of that role.
    """
    missing = [name for name in _MEASURED if name not in landscape.metrics]
    if missing:
        raise InputError(
            f"has no metric {missing[0]!r}: no landscape of RLHF with a proxy",
            file=str(landscape.path),
        )
    n_seeds = len(landscape.manifest.seeds.get(seeds, ()))
    if not n_seeds:
        raise InputError(f"has no {seeds!r} seeds", file=str(landscape.path))
    return landscape.queries.means_over_seeds(_MEASURED, seeds, "gold", n_seeds)


def frontier(landscape: Landscape) -> pd.DataFrame:
    """Return the policies that spend their distance on the proxy, nearest first.

    No other one is as near to the reference with more of the proxy. They are chosen on tuning
    seeds, by kl and proxy alone, and described on test seeds.

    Raises:
        InputError: as `policies`.
    """
    tuning = policies(landscape, "tuning").sort_values(["kl", "proxy"], ascending=[True, False])
    # more of the proxy than all nearer ones; of equal KL the first has the most
    best = tuning["proxy"].cummax().shift(fill_value=-math.inf)
    chosen = tuning.loc[tuning["proxy"] > best, ["config_id", "step"]]
    return chosen.merge(policies(landscape, "test"), on=["config_id", "step"])


def fit_landscape(landscape: Landscape, form: Form = "rl", saturated: float = SATURATED) -> Fit:
    """Fit a form to the frontier of a landscape.

    Policies at the lower bound of gold are left out.

    Args:
        landscape: of a task with a proxy and a gold reward.
        form: which of the two.
        saturated: how close to the bound counts as at it, as a share of the range of gold.

    Raises:
        InputError: as `policies`.
        ValueError: as `fit`.
    """
    points = frontier(landscape)
    low, high = landscape.manifest.return_bounds
    # the bounds of a manifest are those of its objective
    of_gold = landscape.manifest.objective.metric == "gold"
    if of_gold and low is not None and high is not None:
        points = points[points["gold"] > low + saturated * (high - low)]
    return fit(points["kl"], points["gold"], form, origin=float(points["reference_gold"].mean()))


def _columns(form: Form, kl: Array) -> tuple[Array, Array]:
    """Return the terms that alpha and beta multiply.

    They are d, and d^2 or d log d (0 at d = 0, its limit).
    """
    if form not in get_args(Form):
        raise ValueError(f"unknown form {form!r}; allowed: {', '.join(get_args(Form))}")
    distance = np.sqrt(np.maximum(kl, 0.0))
    if form == "best_of_n":
        return distance, distance**2
    # log 1 = 0 stands for the limit at d = 0, without a warning of log 0
    return distance, distance * np.log(np.where(distance > 0, distance, 1.0))


def _peak(form: Form, alpha: float, beta: float) -> tuple[float | None, float | None]:
    """Return KL and height of the maximum.

    It is at d = alpha / (2 beta), or at d = exp(alpha / beta - 1) with height beta d.
    """
    # where the derivative is 0: alpha = 2 beta d, or alpha = beta (log d + 1)
    if beta <= 0 or (form == "best_of_n" and alpha <= 0):
        return None, None
    if form == "best_of_n":
        return (alpha / (2 * beta)) ** 2, alpha**2 / (4 * beta)
    exponent = alpha / beta - 1
    if exponent > _LARGEST_EXPONENT:
        return None, None
    return math.exp(2 * exponent), beta * math.exp(exponent)
