"""Names and values of hyperparameters in ConfigSpace and back.

Two things ConfigSpace lacks are mapped. A `flipped_log` float x becomes the log-scaled float
`x.one_minus` = 1 - x. Choices that are not all strings, all integers, all floats or all booleans
(tuples, mixtures) become their JSON text. ConfigSpace 1.2 rounds floats to 13 decimals, so that six
digits of a value of 1e-8 are left when it comes back.
"""

from __future__ import annotations

import json
from typing import Any

from autorl.space.canonical import canonical_json
from autorl.space.hyperparameter import Hyperparameter

ONE_MINUS = ".one_minus"
_NATIVE = (str, bool, int, float)


def exported_name(item: Hyperparameter) -> str:
    """Name a hyperparameter in the ConfigSpace."""
    return item.name + ONE_MINUS if item.scale == "flipped_log" else item.name


def exported_value(item: Hyperparameter, value: Any) -> Any:
    """Convert a value of a hyperparameter to the ConfigSpace."""
    if item.scale == "flipped_log":
        return 1.0 - value
    return value if item.numeric or is_native(item) else canonical_json(value)


def imported_value(item: Hyperparameter, value: Any) -> Any:
    """Convert a plain value from the ConfigSpace to one of the hyperparameter."""
    if item.scale == "flipped_log":
        # Rounded as our own floats are: 1 - (1 - x) is x but for the last digits.
        return item.tidy(1.0 - value)
    if item.type == "float":
        return item.tidy(float(value))
    if item.numeric or is_native(item):
        return item.canonical(value)
    return item.canonical(json.loads(value))


def is_native(item: Hyperparameter) -> bool:
    """Tell whether ConfigSpace keeps the choices as they are.

    It does if they have one plain type, which NumPy does not change.
    """
    # If types are mixed, ConfigSpace takes 1 and True for one choice, given twice.
    return len({type(choice) for choice in item.choices}) == 1 and isinstance(
        item.choices[0], _NATIVE
    )
