"""Rules across data sets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset


def distinct_data(landscapes: Sequence[Dataset]) -> Iterator[tuple[str, str]]:
    """No two data sets hold the same scores.

    Two published comparison tables were one file.
    """
    seen: dict[str, str] = {}
    for landscape in landscapes:
        name = landscape.manifest.id
        key = _content(landscape)
        if seen.setdefault(key, name) != name:
            yield name, f"holds the same scores as {seen[key]}"


def one_name_per_task(landscapes: Sequence[Dataset]) -> Iterator[tuple[str, str]]:
    """An environment has one name.

    One was published as lunar_lander_continuous and as continuous_lunar_lander.
    """
    seen: dict[tuple[str, str, tuple[str, ...]], str] = {}
    for landscape in landscapes:
        manifest = landscape.manifest
        namespace = manifest.id.split("/")[0]
        words = tuple(sorted(re.findall(r"[A-Z]?[a-z]+|[0-9]+|[A-Z]+", manifest.environment)))
        key = namespace, manifest.algorithm, tuple(word.lower() for word in words)
        earlier = seen.setdefault((*key[:2], tuple(sorted(key[2]))), manifest.environment)
        if earlier != manifest.environment:
            yield (
                manifest.id,
                f"its environment {manifest.environment!r} looks like {earlier!r} "
                "under another name",
            )


def _content(landscape: Dataset) -> str:
    """Hash the multiset of stored values.

    Their ids and order do not matter.
    """
    values = landscape.own_query("SELECT value FROM measured").fetchnumpy()["value"]
    flat = np.sort(np.ma.filled(np.ma.asarray(values, dtype=np.float32), np.nan))
    return hashlib.sha256(flat.tobytes()).hexdigest()
