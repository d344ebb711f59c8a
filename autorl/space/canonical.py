"""Canonical JSON: one text for one value, whatever library it came from.

Hashes are taken over it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError, freeze


def frozen(value: object) -> Any:
    """Freeze a value and unwrap NumPy's scalars and arrays in it.

    Lists and arrays become tuples, mappings become `FrozenMap`.
    """
    # `json` writes np.float64, which is a float, and refuses np.int64 and np.bool_.
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return frozen(value.tolist())
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Mapping):
        return freeze({name: frozen(item) for name, item in value.items()})
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a number."""
    # To Python True is one.
    return isinstance(value, int | float) and not isinstance(value, bool)


def jsonable(value: object) -> Any:
    """Turn a value, NumPy's included, into the types of JSON.

    Names become text.
    """
    return plain(frozen(value))


def spelled(value: object) -> str:
    """Write a value as a search-space file and its expressions spell it."""
    value = frozen(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(spelled(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return canonical_json(value) if isinstance(value, Mapping) else repr(value)


# NaN and Infinity are no JSON, though Python would write them.
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: object) -> str:
    """Write JSON with sorted keys, no spaces and shortest floats.

    Raises:
        InputError: `value` holds NaN, an infinity, or something JSON cannot say.
    """
    try:
        return _JSON.encode(jsonable(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"not a JSON value: {shown(value)} ({error})") from None


def sha256(value: object) -> str:
    """Hash the canonical JSON of a value by SHA-256, in hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
