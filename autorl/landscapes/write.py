"""Writes landscapes: a new folder, more rows, merged parts of `evals`.

Parts of `evals` count only once the manifest names them; the manifest is replaced last and
atomically. Small tables are written aside and renamed together just before it. A write that was cut
off in between leaves files whose hashes are not the manifest's, which `validate` reports.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autorl.core.types import FrozenMap, InputError
from autorl.landscapes._queries import ParquetFiles
from autorl.landscapes._views import read_own_space
from autorl.landscapes.croissant import write_croissant
from autorl.landscapes.manifest import MANIFEST, Manifest, file_sha256
from autorl.landscapes.schema import TableName, Tables, table_columns
from autorl.space import Space, to_yaml
from autorl.store.outputs import free_output

if TYPE_CHECKING:
    import pandas as pd

# Table: its key. Small enough to be written anew by each append.
_SMALL: dict[TableName, str] = {"configs": "config_id", "runs": "run_id", "segments": "segment"}


def write_landscape(
    folder: str | Path, tables: Tables, manifest: Manifest, space: Space, replace: bool = False
) -> Manifest:
    """Write a landscape to `folder`, whole or not at all.

    Args:
        folder: where; its parents are made.
        tables: the rows. Ids are the caller's.
        manifest: `space_hash`, `rows` and `files` are filled in.
        space: of the configurations, written to `space.yaml`.
        replace: whether an existing landscape may be replaced.

    Returns:
        The manifest as written.

    Raises:
        InputError: `folder` exists, is a link or lies in a study or a landscape, or a table has
            wrong columns or numbers too large for them.
    """
    with placed(folder, replace=replace) as building:
        return _written(building, tables, manifest, space)


def _written(building: Path, tables: Tables, manifest: Manifest, space: Space) -> Manifest:
    (building / "space.yaml").write_text(to_yaml(space), encoding="utf-8")
    files = ParquetFiles()
    for name in _SMALL:
        columns = table_columns(name, tables[name], space)
        files.write(tables[name], columns, name, building / f"{name}.parquet")
    part = _write_part(files, tables.evals, building, 0)
    described = dataclasses.replace(manifest, space_hash=space.hash)
    return _finish(files, building, described, [part])


@contextmanager
def placed(folder: str | Path, *, replace: bool) -> Iterator[Path]:
    """Give a hidden folder that is moved to a landscape's place.

    It is moved when the block ends without an error.

    Raises:
        InputError: `folder` exists, is a link or lies in a study or a landscape.
    """
    target = free_output(folder, replace=replace)
    if target.exists() and not (target / MANIFEST).is_file():
        raise InputError("is not a landscape: nothing of it is replaced", file=str(target))
    # Hidden, so that `list_landscapes` never shows a write that was cut off.
    building = target.with_name(f".{target.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    (building / "evals").mkdir(parents=True)
    yield building
    # A folder with files cannot be replaced: the old one stands aside for a moment.
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.replace(target, old)
    os.replace(building, target)
    shutil.rmtree(old, ignore_errors=True)


def append(folder: str | Path, tables: Tables) -> Manifest:
    """Add rows to a landscape.

    Evaluations are a new part, the small tables are rewritten.

    Raises:
        InputError: a config_id, run_id or segment exists already, or a table has wrong columns.
    """
    path = Path(folder)
    manifest = Manifest.read(path)
    space = read_own_space(path)
    files = ParquetFiles()
    for name, key in _SMALL.items():
        repeated = sorted(files.ids(path / f"{name}.parquet", key) & set(tables[name][key]))
        if repeated:
            raise InputError(
                f"{key} {repeated[:5]} of '{name}' exist already in {manifest.id}", file=str(path)
            )
    parts = _parts(manifest)
    part = _write_part(files, tables.evals, path, _next_number(parts))
    # Three files cannot be replaced at once: all are written first, then renamed together.
    for name in _SMALL:
        file = path / f"{name}.parquet"
        columns = table_columns(name, tables[name], space)
        files.write(tables[name], columns, name, _staged(file), and_rows_of=file)
    for name in _SMALL:
        os.replace(_staged(path / f"{name}.parquet"), path / f"{name}.parquet")
    return _finish(files, path, manifest, [*parts, part])


def compact(folder: str | Path) -> Manifest:
    """Merge the parts of `evals` into one, sorted by run and step.

    The rows stay the same.
    """
    path = Path(folder)
    manifest = Manifest.read(path)
    old = _parts(manifest)
    files = ParquetFiles()
    rows = files.rows([path / part for part in old]).df()
    # Never over a part that the manifest still names.
    number = 0 if "evals/part-00000.parquet" not in old else _next_number(old)
    part = _write_part(files, rows, path, number)
    finished = _finish(files, path, manifest, [part])
    # After the manifest is replaced: a reader has the parts that it names.
    for part in old:
        (path / part).unlink()
    return finished


def _parts(manifest: Manifest) -> list[str]:
    return sorted(name for name in manifest.files if name.startswith("evals/"))


def _staged(file: Path) -> Path:
    return file.with_suffix(".new")


def _next_number(parts: list[str]) -> int:
    return 1 + max(int(Path(part).stem.split("-")[1]) for part in parts)


def _write_part(files: ParquetFiles, evals: pd.DataFrame, folder: Path, number: int) -> str:
    """Write a part of `evals`.

    Returns its path in the folder.
    """
    part = f"evals/part-{number:05d}.parquet"
    columns = table_columns("evals", evals, None)
    files.write(evals, columns, "evals", folder / part)
    return part


def _finish(files: ParquetFiles, folder: Path, manifest: Manifest, evals: list[str]) -> Manifest:
    """Finish a landscape that is written.

    Count rows, hash files, write `croissant.json` and, last, the manifest naming these parts of
    `evals`.
    """
    data = ["configs.parquet", "runs.parquet", "segments.parquet", *evals]
    counts = {str(name): files.count([folder / f"{name}.parquet"]) for name in _SMALL}
    counts["evals"] = files.count([folder / part for part in evals])
    hashes = {name: file_sha256(folder / name) for name in ("space.yaml", *data)}
    finished = dataclasses.replace(manifest, rows=FrozenMap(counts), files=FrozenMap(hashes))
    write_croissant(folder, finished)
    # Last: a folder without a manifest, or with the former one, is what a cut-off write leaves.
    finished.write(folder)
    return finished
