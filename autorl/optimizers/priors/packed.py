"""Numbers between 0 and 1 as text: 16 bits each, compressed."""

from __future__ import annotations

import base64
import zlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

LEVELS = 65_535
"""Equal parts of [0, 1] that packed numbers are rounded to."""


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
