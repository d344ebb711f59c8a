"""Describes a landscape in the Croissant 1.1 vocabulary.

The description, `croissant.json`, is made from the landscape's files.

References:
    [Croissant] MLCommons, "Croissant format specification", version 1.1,
        http://mlcommons.org/croissant/1.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autorl.core.plain_text import shortened, shown
from autorl.core.regular_files import read_regular
from autorl.core.types import InputError
from autorl.landscapes._queries import ParquetFiles
from autorl.landscapes.manifest import Manifest
from autorl.landscapes.schema import TABLES
from autorl.store.outputs import write_whole

CROISSANT = "croissant.json"
# The spelling readers accept; application/vnd.apache.parquet is not read by them.
PARQUET = "application/x-parquet"
_DATA_TYPES = {
    "INTEGER": "sc:Integer",
    "BIGINT": "sc:Integer",
    "DOUBLE": "sc:Float",
    "FLOAT": "sc:Float",
    "BOOLEAN": "sc:Boolean",
    "VARCHAR": "sc:Text",
}
_MEANINGS = {column.name: column.meaning for columns in TABLES.values() for column in columns}
# The context of the specification [Croissant].
_CONTEXT = json.loads(Path(__file__).with_name("croissant_context.json").read_text("utf-8"))


def describe(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Make the Croissant description of the files named in a manifest.

    Columns and types are read from the files.
    """
    parquet = ParquetFiles()
    names = record_set_names(manifest.files)
    distribution = []
    sets = []
    for name, table in names.items():
        distribution.append(
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "encodingFormat": PARQUET,
                "sha256": manifest.files[name],
            }
        )
        fields = [_field(table, name, *column) for column in parquet.types(folder / name)]
        sets.append({"@type": "cr:RecordSet", "@id": table, "name": table, "field": fields})
    description = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": manifest.id.replace("/", "--"),
        "description": manifest.description,
        "license": manifest.licence,
        "url": manifest.url,
        "creator": {"@type": "sc:Organization", "name": manifest.creator},
        "datePublished": manifest.created,
        "version": f"{manifest.version}.0.0",
        "citeAs": manifest.citation,
        "distribution": distribution,
        "recordSet": sets,
    }
    return {name: value for name, value in description.items() if value not in ("", None)}


def record_set_names(files: Iterable[str]) -> dict[str, str]:
    """Name the record set of each Parquet file: the table's name.

    Parts of `evals` after the first are `evals-1`, `evals-2` ...
    """
    parts = sorted(name for name in files if name.startswith("evals/"))
    numbered = {name: f"evals-{number}" if number else "evals" for number, name in enumerate(parts)}
    tables = (name for name in files if name.endswith(".parquet"))
    return {name: numbered.get(name, name.removesuffix(".parquet")) for name in tables}


def structure(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hash and (column, type) of each described file.

    Raises:
        InputError: it is not a Croissant description of Parquet files.
    """
    try:
        files: dict[str, Any] = {
            file["contentUrl"]: [file["sha256"], []] for file in description["distribution"]
        }
        for record_set in description["recordSet"]:
            for column in record_set["field"]:
                source = column["source"]
                files[source["fileObject"]["@id"]][1].append(
                    (source["extract"]["column"], column["dataType"])
                )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"not a description of Parquet files: {shown(error)}", key=CROISSANT
        ) from None
    return files


def read_croissant(folder: Path) -> Any:
    """Read the JSON of `croissant.json`.

    Raises:
        InputError: it is not JSON.
    """
    try:
        return json.loads(read_regular(folder / CROISSANT))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not JSON: {shortened(str(error))}", file=str(folder / CROISSANT)
        ) from None


def write_croissant(folder: Path, manifest: Manifest) -> None:
    """Write `croissant.json` atomically."""
    text = json.dumps(describe(folder, manifest), indent=1, ensure_ascii=False) + "\n"
    # A reader has the former file or this one, never half of it.
    write_whole(folder / CROISSANT, text)


def _field(table: str, file: str, name: str, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{name}",
        "name": name,
        "description": _MEANINGS.get(name, name),
        "dataType": _DATA_TYPES.get(kind, f"no type of a landscape: {shortened(kind)}"),
        "source": {"fileObject": {"@id": file}, "extract": {"column": name}},
    }
