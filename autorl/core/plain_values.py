"""Values as plain Python, for JSON, YAML and libraries.

Imports nothing of `autorl`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any


def plain(value: object) -> Any:
    """Turn mappings into dicts and sequences into lists, at every depth.

    The way back is `autorl.core.types.freeze`. Names of entries and values of any other type
    stay as they are, so what JSON refuses is refused where it is written.
    """
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def python_scalar(value: object) -> Any:
    """Turn a scalar of NumPy or torch into the Python number.

    Any other value stays.
    """
    return value.item() if hasattr(value, "item") else value


def json_value(value: object) -> Any:
    """Turn a value into a value of strict JSON.

    A number that is not finite becomes None, a data class a mapping of its fields, and a value
    without a JSON type becomes text. Use it for output to other programs, never for data that is
    hashed or read back.
    """
    value = python_scalar(value)
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
