"""Tunability: how much choosing pays, after [1].

It is the distance from typical configurations to the best one.

The tunability of a whole landscape follows from the recorded scores. The tunability of a
hyperparameter [2] is the gain of its best value alone over a reference configuration, as a forest
predicts it.

References:
    [1] Kleuker et al. (LUH-AI), analysis of ARLBench's landscapes: tunability curves and their
        area.
    [2] Probst, Boulesteix and Bischl, "Tunability: importance of hyperparameters of machine
        learning algorithms", 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis.forest import Forest, moved
from autorl.landscapes.analysis.tables import unit_scores
from autorl.landscapes.regression import Array

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Tunability:
    """Tunability of min-max normalised configuration means.

    Attributes:
        value: best minus median: what tuning gains over a typical configuration, in units of the
            range.
        quantiles: q of each point of the curve, from 0 (worst configuration) to 1 (best).
        curve: best minus the q-quantile, from 1 down to 0.
        area: under the curve; 0 if all configurations but the worst are best, near 1 if one stands
            out.
        near_best: share of configurations above 90 % of the range.
    """

    value: float
    quantiles: Array
    curve: Array
    area: float
    near_best: float

    def at(self, quantile: float) -> float:
        """Return best minus the quantile, linear between order statistics.

        Raises:
            InputError: it does not lie in [0, 1].
        """
        if not 0.0 <= quantile <= 1.0:
            raise InputError(f"a quantile lies in [0, 1], got {quantile}", key="quantile")
        return float(np.interp(quantile, self.quantiles, self.curve))


def tunability_of(means: npt.ArrayLike) -> Tunability:
    """Measure the tunability of configuration means (n,), larger is better.

    Raises:
        InputError: all of them are equal.
    """
    ordered = np.sort(unit_scores(means))
    quantiles = np.linspace(0.0, 1.0, len(ordered))
    curve = 1.0 - ordered
    return Tunability(
        # The best is 1 once the scores are normalised.
        value=float(1.0 - np.median(ordered)),
        quantiles=quantiles,
        curve=curve,
        area=float(np.trapezoid(curve, quantiles)),
        near_best=float((ordered > 0.9).mean()),
    )


def tuning_gains(forest: Forest, config: Mapping[str, object], points: int = 64) -> pd.DataFrame:
    """Measure what tuning one hyperparameter gains over a configuration.

    Columns: hyperparameter, gain, reference, best. The largest gain comes first.

    `gain` is in units of the score, `reference` the value in the configuration and `best` the one
    with the largest prediction when the others stay and the space allows it. Inactive
    hyperparameters gain 0.

    Raises:
        InputError: the configuration is not valid in the space.
    """
    import pandas as pd

    forest.space.check(config)
    active = forest.space.active(config)
    # Gains are against the prediction, not the recorded score, which has noise in it.
    base = float(forest.predict(forest.encode([config]))[0])
    rows = []
    for name in forest.names:
        allowed = moved(forest, config, name, forest.grid(name, points)) if name in active else []
        # A forbidden value is no gain. A constraint without its constant cannot be asked.
        allowed = [
            candidate
            for candidate in allowed
            if forest.space.missing or not forest.space.violated(candidate)
        ]
        predicted = forest.predict(forest.encode(allowed)) if allowed else np.array([base])
        # Only if strictly better: the configuration itself need not lie on the grid.
        better = bool(predicted.max() > base)
        best = allowed[int(predicted.argmax())][name] if better else config.get(name)
        gain = float(predicted.max()) - base if better else 0.0
        rows.append((name, gain, config.get(name), best))
    # As objects: choices, numbers and None stand in one column.
    table = pd.DataFrame(rows, columns=["hyperparameter", "gain", "reference", "best"]).astype(
        {"reference": object, "best": object}
    )
    return table.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
