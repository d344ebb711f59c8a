"""Seed noise in the scores: the intraclass correlation.

The layout is one-way: seeds within configurations.

ICC(1) of [1]: with n configurations and s seeds each, MSB and MSW the mean squares between and
within configurations, (MSB - MSW) / (MSB + (s - 1) MSW) estimates the share of variance that lies
between configurations. The rest is noise.

References:
    [1] Shrout and Fleiss, "Intraclass correlations: uses in assessing rater reliability", 1979.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError


@dataclass(frozen=True)
class SeedNoise:
    """Variance components of scores.

    Attributes:
        icc: estimated share of variance between configurations; can fall slightly below 0 when
            there is none.
        between: estimated variance of the configurations' true means; negative with `icc`.
        within: variance over seeds within a configuration, averaged over configurations.
    """

    icc: float
    between: float
    within: float
    n_configurations: int
    n_seeds: int

    @property
    def noise_share(self) -> float:
        """Share of the variance that is seed noise, in [0, 1]."""
        return 1.0 - max(0.0, self.icc)

    @property
    def standard_error(self) -> float:
        """Standard error of a configuration's mean over the seeds."""
        return math.sqrt(self.within / self.n_seeds)

    def reliability(self, seeds: int) -> float:
        """Return the share of variance between configurations' means.

        Each mean is over `seeds` (Spearman-Brown).
        """
        # The Spearman-Brown formula; an estimate below 0 stands for a share of 0.
        share = max(0.0, self.icc)
        return seeds * share / (1.0 + (seeds - 1) * share)

    def seeds_for(self, reliability: float = 0.9) -> int | None:
        """Return the fewest seeds whose mean is that reliable.

        The result is None if no number is, because only noise differs.
        """
        if not 0.0 < reliability < 1.0:
            raise InputError(
                f"reliability must lie between 0 and 1, got {reliability}", key="reliability"
            )
        if self.icc <= 0.0:
            return None
        needed = reliability * (1.0 - self.icc) / (self.icc * (1.0 - reliability))
        # Less a round-off: 0.9 at an ICC of 0.5 takes 9 seeds, and computes as 9.000000000000002.
        return max(1, math.ceil(needed - 1e-9))


def seed_noise(scores: npt.ArrayLike) -> SeedNoise:
    """Split the variance of scores (n configurations, s seeds).

    Raises:
        InputError: fewer than two configurations or seeds, or all scores are equal.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise InputError(
            f"seed noise needs at least two configurations and two seeds, got shape {table.shape}"
        )
    n, s = table.shape
    # The mean squares of a one-way analysis of variance, MSW and MSB of Shrout and Fleiss.
    within = float(table.var(axis=1, ddof=1).mean())
    mean_square_between = float(s * table.mean(axis=1).var(ddof=1))
    total = mean_square_between + (s - 1) * within
    if total == 0.0:
        raise InputError("all scores are equal, so there is no variance to split")
    return SeedNoise(
        (mean_square_between - within) / total, (mean_square_between - within) / s, within, n, s
    )


def icc_interval(
    scores: npt.ArrayLike, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap the ICC of scores (n, s) over configurations.

    Returned is the 95 % percentile interval.

    Raises:
        InputError: as `seed_noise`.
    """
    # For its errors: resamples of a table that cannot be split would give an interval too.
    seed_noise(scores)
    table = np.asarray(scores, dtype=np.float64)
    n, s = table.shape
    # Configurations are drawn with all their seeds, so noise within one keeps its size.
    rows = np.random.default_rng(seed).integers(n, size=(resamples, n))
    within = table.var(axis=1, ddof=1)[rows].mean(axis=1)
    mean_square_between = s * table.mean(axis=1)[rows].var(axis=1, ddof=1)
    total = mean_square_between + (s - 1) * within
    # A resample may be one configuration n times, whose seeds all score the same.
    drawn = np.divide(
        mean_square_between - within, total, out=np.zeros_like(total), where=total > 0
    )
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)
