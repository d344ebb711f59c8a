"""Data in study files: its hash, and numbers as text.

Numbers lie between 0 and 1 and take 16 bits each.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.space.canonical import sha256

Array: TypeAlias = NDArray[np.float64]

LEVELS = 65_535
"""Equal parts of [0, 1] that packed numbers are rounded to."""


def checked(content: Mapping[str, Any], version: int, key: str) -> dict[str, Any]:
    """Return data of a study file, without its hash.

    Raises:
        InputError: it is of another version, or was changed.
    """
    stated = plain(content)
    if stated.get("version") != version:
        message = f"version {shown(stated.get('version'))}; this package reads {version}"
        raise InputError(message, key=f"{key}.version")
    body = {name: item for name, item in stated.items() if name != "sha256"}
    if stated.get("sha256") != sha256(body):
        raise InputError("does not have its hash: it was changed", key=f"{key}.sha256")
    return body


def unreadable(error: Exception, key: str) -> InputError:
    """Make the error for a body of another format: its hash holds."""
    message = f"cannot be read: {type(error).__name__}: {shown(str(error))}"
    return InputError(message, key=key)


def pack(values: Array) -> str:
    """Write numbers of [0, 1] as text, to 1 / 65,535."""
    integers = np.clip(np.rint(values * LEVELS), 0, LEVELS).astype("<u2")
    return base64.b64encode(zlib.compress(integers.tobytes(), 9)).decode("ascii")


def unpack(text: str, shape: tuple[int, ...]) -> Array:
    """Read what `pack` wrote.

    Raises:
        ValueError: it is not so many numbers.
    """
    size = 2 * int(np.prod(shape))
    inflater = zlib.decompressobj()
    content = inflater.decompress(base64.b64decode(text, validate=True), size + 1)
    if len(content) != size:
        raise ValueError(f"{len(content)} bytes instead of {size}")
    return np.frombuffer(content, dtype="<u2").astype(np.float64).reshape(shape) / LEVELS
