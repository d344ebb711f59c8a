"""Folders of studies as data sets.

A `Landscape` shows them while they run and afterwards.

This room is below studies. It knows by which file such a folder is recognised and who reads it:
a study says what it has recorded as tables and a manifest (`autorl.study.results.landscape`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autorl.landscapes.manifest import Manifest
from autorl.landscapes.schema import Tables
from autorl.space import Space
from autorl.store.store import STUDY_FILE

READER = "autorl.study.results.landscape:read_study"
"""The function, `module:name`, that reads a study's folder; imported when one is first opened."""


@dataclass(frozen=True)
class Recording:
    """A data set that is not stored in the landscape format's files."""

    manifest: Manifest
    space: Space
    tables: Tables


def is_study(folder: Path) -> bool:
    """Say whether `folder` holds a study."""
    return (folder / STUDY_FILE).is_file()


def read_study(folder: Path) -> Recording:
    """Read what the study in `folder` has recorded until now.

    Raises:
        InputError: there is no study, or its files cannot be read.
    """
    module, _, name = READER.partition(":")
    reader: Callable[[Path], Recording] = getattr(importlib.import_module(module), name)
    return reader(folder)
