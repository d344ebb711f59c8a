"""Data in study files: its hash, and numbers as text.

Numbers lie between 0 and 1 and take 16 bits each.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.space.canonical import sha256

Array: TypeAlias = NDArray[np.float64]

VERSION = 1  # of data in study files
LEVELS = 65_535
"""Equal parts of [0, 1] that packed numbers are rounded to."""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return data for a study file, with version and hash."""
    body = {"version": VERSION, **content}
    return {"sha256": sha256(body), **body}


@contextmanager
def opened(content: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Give what `sealed` was given, to be read inside.

    Raises:
        InputError: it is of another version, was changed, or is read as what it is not.
    """
    body = plain(content)
    if body.get("version") != VERSION:
        message = f"version {shown(body.get('version'))}; this package reads {VERSION}"
        raise InputError(message, key=f"{key}.version")
    if body.pop("sha256", None) != sha256(body):
        raise InputError("does not have its hash: it was changed", key=f"{key}.sha256")
    try:
        yield body
    except (KeyError, TypeError, ValueError, IndexError, zlib.error) as error:
        message = f"cannot be read: {type(error).__name__}: {shown(str(error))}"
        raise InputError(message, key=key) from None


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
