"""Landscape data sets, to query and to publish.

They hold every run of many configurations and seeds.
"""

import importlib
from typing import Any

from autorl.landscapes.benchmark import Replay, ReplayObjective
from autorl.landscapes.grid import Grid
from autorl.landscapes.landscape import Landscape, load_landscape
from autorl.landscapes.library import find_landscape, list_landscapes, shipped_root
from autorl.landscapes.manage import delete_landscape, merge_landscapes
from autorl.landscapes.manifest import Manifest, Objective
from autorl.landscapes.ranking import Choice
from autorl.landscapes.schema import SCHEMA_VERSION, Column, Tables, config_rows
from autorl.landscapes.write import append, compact, write_landscape

__all__ = [
    "SCHEMA_VERSION",
    "Choice",
    "Column",
    "Grid",
    "Landscape",
    "Manifest",
    "Objective",
    "Replay",
    "ReplayObjective",
    "Tables",
    "append",
    "compact",
    "config_rows",
    "delete_landscape",
    "find_landscape",
    "from_study",
    "list_landscapes",
    "load_landscape",
    "merge_landscapes",
    "shipped_root",
    "write_landscape",
]

_OF_STUDIES = {"from_study": "autorl.study.landscape"}
"""What a study does with its landscape: documented here, and imported where it is used."""


def __getattr__(name: str) -> Any:
    if name not in _OF_STUDIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_OF_STUDIES[name]), name)
