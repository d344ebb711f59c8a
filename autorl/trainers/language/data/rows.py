"""Reads the rows of a user's data set.

It is a file (JSON lines, JSON, CSV, Parquet), a `save_to_disk` folder, or a name on a hub.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from autorl.core.types import InputError
from autorl.trainers.language.models import missing, offline

Row: TypeAlias = dict[str, Any]
FORMATS = (".jsonl", ".json", ".csv", ".parquet")
_KIND = "data file or folder"
_SPLIT = "train"  # where the source names none


def local(source: str) -> Path | None:
    """Return the file or folder that `source` names, else None.

    A `:split` after a folder is left out.
    """
    path, _ = _path_and_split(source)
    return path


def _path_and_split(source: str) -> tuple[Path | None, str]:
    """Return the file or folder that `source` names, and its split."""
    before, _, after = source.rpartition(":")
    # the whole first: a folder's own name may have a colon
    for text, split in ((source, _SPLIT), (before, after or _SPLIT)):
        path = Path(text).expanduser()
        if text and path.exists():
            return path, split
    return None, source.partition(":")[2] or _SPLIT


def read_rows(source: str, key: str, subset: str | None = None) -> list[Row]:
    """Read every row of a data set, by column.

    Args:
        source: a file by its ending; a folder that `datasets` saved; or `organisation/name` on a
            hub. After the last two `:split` may follow, by default `train`.
        key: of the study file, for errors.
        subset: of a data set on a hub that has several.

    Raises:
        InputError: there is nothing there, it cannot be read, or it has no row.
    """
    path = Path(source).expanduser()
    rows = list(_from_file(path, key)) if path.is_file() else _from_datasets(source, key, subset)
    if not rows:
        raise InputError(f"{source} has no row", key=key)
    return rows


def _from_file(path: Path, key: str) -> Iterable[Row]:
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise InputError(f"{path}: expected a file that ends in {', '.join(FORMATS)}", key=key)
    if ending == ".parquet":
        return _parquet(path, key)
    try:
        # spreadsheets put a byte order mark before the first column's name
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}", key=key
        ) from error
    if ending == ".csv":
        # as a file, not `splitlines`: values may have line ends, and U+2028 ends no row
        return list(csv.DictReader(io.StringIO(text, newline="")))
    return _json_lines(text, path, key) if ending == ".jsonl" else _json(text, path, key)


def _json_lines(text: str, path: Path, key: str) -> Iterator[Row]:
    # not `splitlines`: JSON may hold other line ends (U+2028) within a text
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _mapping(_parsed(line, path, key, number), path, key, number)


def _json(text: str, path: Path, key: str) -> Iterator[Row]:
    rows = _parsed(text, path, key, 1)
    if not isinstance(rows, list):
        raise InputError(
            f"{path}: expected a list of mappings; one mapping a line is a .jsonl file", key=key
        )
    for number, row in enumerate(rows, start=1):
        yield _mapping(row, path, key, number)


def _parsed(text: str, path: Path, key: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # the number within the parsed text, which is one line of a .jsonl file
        place = line + error.lineno - 1
        raise InputError(
            f"not JSON: {error.msg} at column {error.colno}", file=str(path), key=key, line=place
        ) from None


def _mapping(row: object, path: Path, key: str, number: int) -> Row:
    if not isinstance(row, dict):
        raise InputError(f"row {number} is not a mapping of columns", file=str(path), key=key)
    return row


def _parquet(path: Path, key: str) -> list[Row]:
    import duckdb

    # its own: the module's default connection is shared by all threads
    with duckdb.connect() as connection:
        try:
            table = connection.read_parquet(str(path))
            rows = table.fetchall()
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path} is not a Parquet file: {reason}", key=key) from error
        return [dict(zip(table.columns, row, strict=True)) for row in rows]


def _from_datasets(source: str, key: str, subset: str | None) -> list[Row]:
    """Read a folder or a name that `datasets` reads."""
    import datasets
    import huggingface_hub

    if offline():  # of a process that imported these libraries before this package, too
        datasets.config.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_OFFLINE = True
    path, split = _path_and_split(source)
    try:
        if path is not None:
            data: Any = datasets.load_from_disk(str(path))
        else:
            data = datasets.load_dataset(source.partition(":")[0], subset, split=split)
    except FileNotFoundError as error:  # before OSError, which it is one of
        if path is not None:
            raise InputError(
                f"{path} is no folder that `save_to_disk` of datasets wrote", key=key
            ) from error
        raise missing(_KIND, source, key) from error
    except OSError as error:
        raise missing(_KIND, source, key) from error
    except (ValueError, RuntimeError) as error:
        raise InputError(f"cannot read {source}: {str(error).splitlines()[0]}", key=key) from error
    # several splits, as `DatasetDict` was saved
    if isinstance(data, dict):
        if split not in data:
            raise InputError(f"{source} has no split {split!r}; it has {', '.join(data)}", key=key)
        data = data[split]
    return [dict(row) for row in data]
