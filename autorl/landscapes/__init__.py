"""Landscape data sets, to query and to publish.

They hold every run of many configurations and seeds.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autorl.landscapes.benchmark import Replay
    from autorl.landscapes.landscape import Landscape, load_landscape
    from autorl.landscapes.library import find_landscape, list_landscapes, shipped_root
    from autorl.landscapes.manage import delete_landscape, merge_landscapes
    from autorl.landscapes.manifest import Manifest, Objective
    from autorl.landscapes.schema import Tables, config_rows
    from autorl.landscapes.write import append, compact, write_landscape

_HOME = {
    "Landscape": "autorl.landscapes.landscape",
    "Manifest": "autorl.landscapes.manifest",
    "Objective": "autorl.landscapes.manifest",
    "Replay": "autorl.landscapes.benchmark",
    "Tables": "autorl.landscapes.schema",
    "append": "autorl.landscapes.write",
    "compact": "autorl.landscapes.write",
    "config_rows": "autorl.landscapes.schema",
    "delete_landscape": "autorl.landscapes.manage",
    "find_landscape": "autorl.landscapes.library",
    "from_study": "autorl.study.results.landscape",
    "list_landscapes": "autorl.landscapes.library",
    "load_landscape": "autorl.landscapes.landscape",
    "merge_landscapes": "autorl.landscapes.manage",
    "shipped_root": "autorl.landscapes.library",
    "write_landscape": "autorl.landscapes.write",
}
__all__ = [
    "Landscape",
    "Manifest",
    "Objective",
    "Replay",
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


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    Commands that look at a study need no landscape.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
