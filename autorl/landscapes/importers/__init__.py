"""Importers: data sets of others as landscape folders.

Each source format has a module. `common` is what they share.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autorl.core.plain_text import shortened
from autorl.core.types import InputError
from autorl.landscapes.importers import (
    arlbench,
    arlbench_runs,
    csv_table,
    deepcave,
    hpo_rl_bench,
    optuna_storage,
    ray_tune,
)
from autorl.landscapes.importers.common import Options
from autorl.landscapes.manifest import Manifest

FORMATS: Mapping[str, Any] = MappingProxyType(
    {
        "arlbench": arlbench,
        "arlbench-runs": arlbench_runs,
        "deepcave": deepcave,
        "hpo-rl-bench": hpo_rl_bench,
        "optuna": optuna_storage,
        "ray": ray_tune,
        # Last, since it takes any table: of several formats of a path the first one counts.
        "csv": csv_table,
    }
)
"""Modules by format: `recognises` a path, `import_source` writes the landscapes in it."""


def import_any(
    source: str | Path, target: str | Path, *, format: str | None = None, **options: Any
) -> list[Manifest]:
    """Import a file or folder, in a given or a recognised format.

    A folder may hold several formats.

    Args:
        source: what to import.
        target: folder of landscapes.
        format: None = look.
        options: the other fields of `common.Options`.

    Raises:
        InputError: there is no such file, its format is unknown, or it breaks its format.
    """
    path = Path(source)
    settings = Options(out=Path(target), **options)
    if not path.exists():
        raise InputError("no such file or folder", file=str(source))
    if format is not None and format not in FORMATS:
        raise InputError(
            f"unknown format {format!r}; allowed: {', '.join(FORMATS)}", key="--format"
        )
    chosen = [format] if format is not None else _recognised(path, tabular=bool(settings.map))
    return [manifest for name in chosen for manifest in _imported(name, path, settings)]


def _imported(name: str, path: Path, options: Options) -> list[Manifest]:
    """Import in a format.

    The files are others': whatever they break says that they are not of the format.
    """
    try:
        manifests: list[Manifest] = FORMATS[name].import_source(path, options)
        return manifests
    except InputError as error:
        raise error.in_file(str(path)) from None
    except (
        # A torn .gz is an EOFError or a zlib.error, nesting without end a RecursionError,
        # and a seed of 1e30 an OverflowError, which is an ArithmeticError.
        EOFError,
        zlib.error,
        RecursionError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        problem = f"{type(error).__name__}: {shortened(str(error), 100)}"
        raise InputError(f"is not as the format {name} says ({problem})", file=str(path)) from error


def _recognised(path: Path, *, tabular: bool) -> list[str]:
    """Recognise the formats of a path.

    ARLBench's folder on Hugging Face is of two. With `tabular`, a CSV file is any table.

    Raises:
        InputError: it is in none.
    """
    # Whoever names columns has a table in mind, even one whose columns look like ARLBench's.
    if tabular and FORMATS["csv"].recognises(path):
        return ["csv"]
    recognised = [name for name, entry in FORMATS.items() if entry.recognises(path)]
    if not recognised:
        raise InputError(
            f"its format is not recognised; known are {', '.join(FORMATS)}", file=str(path)
        )
    together = [name for name in recognised if name.startswith("arlbench")]
    return together or recognised[:1]
