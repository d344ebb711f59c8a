"""Changes while training goes on.

These are learning curves of the best configurations, and importance at every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autorl.landscapes.analysis.forest import landscape_forest
from autorl.landscapes.analysis.tables import final_scores, learning_curves
from autorl.landscapes.analysis.variance import fanova
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import Rule, SeedSet

if TYPE_CHECKING:
    import pandas as pd

BEST = 5
_RESAMPLES = 1000
_TAILS = (0.025, 0.975)
_QUANTILES = {"low": 0.1, "median": 0.5, "high": 0.9}


def importance_by_step(
    data: Dataset, seeds: SeedSet = "all"
) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Compute the main effects of fANOVA at every step.

    Columns: step, hyperparameter, importance, spread, out_of_bag.

    Also the steps without an answer, where all configurations score the same (nobody has learned
    anything yet).

    Raises:
        InputError: no complete configuration, or all scores are the same at every step.
    """
    import pandas as pd

    curves = learning_curves(data, seeds)
    parts = []
    skipped = []
    for step in curves.steps.tolist():
        # Equal scores at the last step are the forest's error: there is nothing to explain.
        if np.ptp(final_scores(data, seeds, step).means) == 0.0 and step != curves.steps[-1]:
            skipped.append(step)
            continue
        forest = landscape_forest(data, seeds, step)
        main = fanova(forest)[["first", "importance", "spread"]].rename(
            columns={"first": "hyperparameter"}
        )
        parts.append(main.assign(step=step, out_of_bag=forest.out_of_bag))
    table = pd.concat(parts, ignore_index=True)
    return table[["step", "hyperparameter", "importance", "spread", "out_of_bag"]], tuple(skipped)


def best_curves(
    data: Dataset, choose: SeedSet, show: SeedSet, count: int = BEST, rule: Rule | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the best configurations' curves, and quantiles of all curves.

    The best by `rule` (None: the recorded one, else the mean at the last step) over the `choose`
    seeds. First: place, config_id, step, mean over the `show` seeds, and low and high of its
    percentile interval (NaN with one seed). Second: step, and the 10 %, 50 % and 90 % quantiles
    (low, median, high) of the means of all configurations; `attrs`
    counts configurations and seeds.

    Raises:
        InputError: no configuration has a score for every seed and step.
    """
    import pandas as pd

    curves = learning_curves(data, show)
    ranked = data.grid.config_ids[
        data.ranked(choose, rule or data.rule(default="mean"), data.grid.step_position(None))
    ]
    # The ranking asks for the seeds to choose on alone: some of it may have no whole curve to show.
    shown = [config_id for config_id in ranked.tolist() if config_id in curves.config_ids][:count]
    seeds = curves.values.shape[1]
    # The share that each seed has of a resample. Student's t covers more of a mean, but reaches
    # beyond what a return can be (`benchmarks/results/error_rates.md`).
    rng = np.random.default_rng(0)
    shares = rng.multinomial(seeds, np.full(seeds, 1 / seeds), _RESAMPLES) / seeds
    rows = []
    for place, config_id in enumerate(shown, 1):
        values = curves.values[np.searchsorted(curves.config_ids, config_id)]
        span = np.quantile(shares @ values, _TAILS, axis=0)
        low, high = span if seeds > 1 else np.full_like(span, np.nan)
        for row in zip(curves.steps.tolist(), values.mean(axis=0), low, high, strict=True):
            rows.append((place, config_id, *row))
    means = curves.values.mean(axis=1)  # (configurations, steps)
    band = {name: np.quantile(means, share, axis=0) for name, share in _QUANTILES.items()}
    table = pd.DataFrame(rows, columns=["place", "config_id", "step", "mean", "low", "high"])
    quantiles = pd.DataFrame({"step": curves.steps, **band})
    quantiles.attrs |= {"configurations": len(means), "seeds": seeds}
    return table, quantiles
