"""Performance by hyperparameter value.

It says how configurations score that share a choice, or lie in one bin of a range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import number
from autorl.core.types import InputError
from autorl.landscapes.analysis.tables import final_scores
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import Array, configurations
from autorl.space import Hyperparameter, Space, unknown_key

if TYPE_CHECKING:
    import pandas as pd

INACTIVE = "inactive"


def performance_by_value(
    space: Space,
    configs: Sequence[Mapping[str, object]],
    means: npt.ArrayLike,
    name: str,
    bins: int = 8,
) -> pd.DataFrame:
    """Group the scores of configurations by the value of one hyperparameter.

    A row per choice, or per bin: `bins` of equal width on the hyperparameter's scale, none wider
    than it takes (an integer with fewer values has a bin per value); then a row `inactive` if some
    configurations lack it. Columns: value (the choice, or "low..high"), low, high (of the values
    seen; None for choices), n, mean, sd, q25, median, q75, best, top_share (share of the best tenth
    of all configurations that lies here). Statistics of an empty group are NaN.

    Raises:
        InputError: unknown hyperparameter, or fewer than 1 bins.
    """
    import pandas as pd

    if name not in space.hyperparameters:
        raise InputError(unknown_key(name, space.names), key="hyperparameter")
    if bins < 1:
        raise InputError(f"expected at least one bin, got {bins}", key="bins")
    scores = np.asarray(means, dtype=np.float64)
    item = space.hyperparameters[name]
    values = [config.get(name) for config in configs]
    active = np.array([name in config for config in configs], dtype=bool)
    units = np.full(len(values), np.nan)
    units[active] = [item.to_unit(config[name]) for config in configs if name in config]
    n_bins = item.n_choices or bins
    # An integer with fewer values has a bin for each: others would be empty whatever was drawn.
    if item.type == "int":
        lower, upper = item.bounds
        n_bins = min(bins, int(upper - lower) + 1)
    places = np.where(
        active, np.minimum(np.nan_to_num(units) * n_bins, n_bins - 1).astype(np.int64), -1
    )
    # The best tenth and what ties with it; of few configurations the best one.
    top = scores >= np.sort(scores)[-max(1, len(scores) // 10)]
    rows = []
    # Place -1 are the configurations without this hyperparameter.
    for place in [*range(n_bins), *([-1] if not active.all() else [])]:
        members = places == place
        label = _label(
            item, place, [value for value, inside in zip(values, members, strict=True) if inside]
        )
        rows.append(
            label
            | _statistics(scores[members])
            | {"top_share": float((top & members).sum() / top.sum())}
        )
    return pd.DataFrame(rows)


def values_table(
    data: Dataset, name: str, seeds: SeedSet = "all", step: int | None = None, bins: int = 8
) -> pd.DataFrame:
    """Group a landscape's mean scores at a step (None = the last).

    See `performance_by_value`.
    """
    curves = final_scores(data, seeds, step)
    return performance_by_value(
        data.space, configurations(data, curves.config_ids), curves.means, name, bins
    )


def _label(item: Hyperparameter, place: int, members: Sequence[Any]) -> dict[str, Any]:
    if place < 0:
        return {"value": INACTIVE, "low": None, "high": None}
    if not item.numeric:
        return {"value": item.choices[place], "low": None, "high": None}
    low, high = (min(members), max(members)) if members else (None, None)
    # The values seen, not the borders: an empty bin has none.
    write = number if item.type == "float" else str
    seen = f"{write(low)}..{write(high)}" if members else ""
    return {"value": seen, "low": low, "high": high}


def _statistics(scores: Array) -> dict[str, Any]:
    if not len(scores):
        return {"n": 0} | dict.fromkeys(("mean", "sd", "q25", "median", "q75", "best"), np.nan)
    q25, median, q75 = np.quantile(scores, (0.25, 0.5, 0.75))
    spread = float(scores.std(ddof=1)) if len(scores) > 1 else np.nan
    return {
        "n": len(scores),
        "mean": float(scores.mean()),
        "sd": spread,
        "q25": float(q25),
        "median": float(median),
        "q75": float(q75),
        "best": float(scores.max()),
    }
