"""Configurations as rows of numbers, and the forest fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.types import Config
from autorl.landscapes.dataset import Dataset
from autorl.space import Space

Array: TypeAlias = npt.NDArray[np.float64]

# With fewer trees, some configurations were seen by every tree and have no out-of-bag prediction.
MIN_TREES = 32
_FEATURES = 5 / 6  # tried per split, as in SMAC's and DeepCAVE's forests
_MIN_LEAF = 3


def configurations(data: Dataset, config_ids: npt.ArrayLike) -> list[Config]:
    """List the configurations of ids, in their order.

    Raises:
        InputError: an id is not in the data set, or a configuration not in its space.
    """
    return [data.config(int(config_id)) for config_id in np.atleast_1d(np.asarray(config_ids))]


def encode(space: Space, names: Sequence[str], configs: Sequence[Mapping[str, object]]) -> Array:
    """Encode configurations as rows of the unit cube, columns `names`.

    Inactive hyperparameters have their default.
    """
    items = [space.hyperparameters[name] for name in names]
    return np.array(
        [
            [item.to_unit(config.get(item.name, item.default)) for item in items]
            for config in configs
        ]
    )


def regressor(**options: object) -> Any:
    """Make scikit-learn's random forest with bootstrap samples and these options, not fitted."""
    ensemble = import_module("sklearn.ensemble")  # by its name: it is heavy and has no types
    return ensemble.RandomForestRegressor(
        max_features=_FEATURES, min_samples_leaf=_MIN_LEAF, bootstrap=True, **options
    )
