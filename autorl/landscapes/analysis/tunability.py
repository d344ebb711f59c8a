"""How much choosing pays: the distance from typical configurations to the best one, after [1].

References:
    [1] Kleuker et al. (LUH-AI), analysis of ARLBench's landscapes: tunability curves and their area.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.landscapes.analysis.tables import Array, unit_scores
from autorl.types import InputError


@dataclass(frozen=True, eq=False)
class Tunability:
    """Tunability of min-max normalised configuration means.

    Attributes:
        value: best minus median: what tuning gains over a typical configuration, in units of the range.
        quantiles: q of each point of the curve, from 0 (worst configuration) to 1 (best).
        curve: best minus the q-quantile, from 1 down to 0.
        area: under the curve; 0 if all configurations but the worst are best, near 1 if one stands out.
        near_best: share of configurations above 90 % of the range.
    """

    value: float
    quantiles: Array
    curve: Array
    area: float
    near_best: float

    def at(self, quantile: float) -> float:
        """Best minus the quantile, linear between order statistics.

        Raises:
            InputError: it does not lie in [0, 1].
        """
        if not 0.0 <= quantile <= 1.0:
            raise InputError(f"a quantile lies in [0, 1], got {quantile}", key="quantile")
        return float(np.interp(quantile, self.quantiles, self.curve))


def tunability_of(means: npt.ArrayLike) -> Tunability:
    """Tunability of configuration means (n,), larger is better.

    Raises:
        InputError: all of them are equal.
    """
    ordered = np.sort(unit_scores(means))
    quantiles, curve = np.linspace(0.0, 1.0, len(ordered)), 1.0 - ordered
    return Tunability(
        value=float(1.0 - np.median(ordered)),
        quantiles=quantiles,
        curve=curve,
        area=float(np.trapezoid(curve, quantiles)),
        near_best=float((ordered > 0.9).mean()),
    )
