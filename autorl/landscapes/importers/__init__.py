"""Importers: data sets of others as landscape folders. One module per source format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autorl.landscapes.manifest import Manifest


def import_any(
    source: str | Path, target: str | Path, *, tuning_seeds: int, namespace: str, replace: bool
) -> list[Manifest]:
    """Import a file or folder whose format is recognised: ARLBench's landscapes, or its optimizer runs by method.

    Raises:
        InputError: it is neither.
    """
    from autorl.landscapes.importers.arlbench import import_arlbench
    from autorl.landscapes.importers.arlbench_runs import METHODS, import_arlbench_runs

    if any((Path(source) / name).is_dir() for name in METHODS):
        return import_arlbench_runs(source, target, namespace, replace)
    return import_arlbench(source, target, tuning_seeds, namespace, replace)
