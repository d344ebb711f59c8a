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
from autorl.landscapes.analysis.tables import Integers
from autorl.landscapes.regression import Array
from autorl.space import Hyperparameter, Space, unknown_key

if TYPE_CHECKING:
    import pandas as pd

INACTIVE = "inactive"
_BINS = 8


def performance_by_value(
    space: Space, configs: Sequence[Mapping[str, object]], means: npt.ArrayLike, name: str
) -> pd.DataFrame:
    """Group the scores of configurations by the value of one hyperparameter.

    A row per choice, or per bin: 8 of equal width on the hyperparameter's scale, none wider
    than it takes (an integer with fewer values has a bin per value); then a row `inactive` if some
    configurations lack it. Columns: value (the choice, or "low..high"), low, high (of the values
    seen; None for choices), n, mean, sd, q25, median, q75, best, top_share (share of the best tenth
    of all configurations that lies here). Statistics of an empty group are NaN.

    Raises:
        InputError: unknown hyperparameter.
    """
    import pandas as pd

    if name not in space.hyperparameters:
        raise InputError(unknown_key(name, space.names), key="hyperparameter")
    scores = np.asarray(means, dtype=np.float64)
    item = space.hyperparameters[name]
    places, n_bins = value_places(item, configs)
    # The best tenth and what ties with it; of few configurations the best one.
    top = scores >= np.sort(scores)[-max(1, len(scores) // 10)]
    rows = []
    for place in [*range(n_bins), *([-1] if (places < 0).any() else [])]:
        members = places == place
        values = [configs[at].get(name) for at in np.flatnonzero(members).tolist()]
        rows.append(
            _label(item, place, values)
            | _statistics(scores[members])
            | {"top_share": float((top & members).sum() / top.sum())}
        )
    return pd.DataFrame(rows)


def value_places(
    item: Hyperparameter, configs: Sequence[Mapping[str, object]]
) -> tuple[Integers, int]:
    """Return the choice or bin of each configuration, and their number.

    A configuration without this hyperparameter has the place -1.
    """
    n_bins = item.n_choices or _BINS
    # An integer with fewer values has a bin for each: others would be empty whatever was drawn.
    if item.type == "int":
        lower, upper = item.bounds
        n_bins = min(_BINS, int(upper - lower) + 1)
    units = [item.to_unit(config[item.name]) if item.name in config else -1 for config in configs]
    return np.clip(np.array(units) * n_bins, -1, n_bins - 1).astype(np.int64), n_bins


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
