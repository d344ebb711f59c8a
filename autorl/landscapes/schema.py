"""The tables of a landscape data set, as column lists.

And how configurations become rows.

A landscape is one folder: `manifest.json`, `croissant.json`, `space.yaml`, `configs.parquet`,
`runs.parquet`, `segments.parquet` and `evals/*.parquet`, all Parquet with zstd. `segments` says
`from_step` and `to_step`, as the study store does, because `from` cannot be written in SQL without
quotes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from autorl.core.plain_text import shortened, shown
from autorl.core.types import Config, InputError, Status
from autorl.space import Hyperparameter, Space, canonical_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
TableName: TypeAlias = Literal["configs", "runs", "evals", "segments"]
SEED_ROLES = ("tuning", "test")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    It has a name, a DuckDB type, a meaning, and may be null or not.
    """

    name: str
    type: str
    meaning: str
    nullable: bool = False


TABLES: Mapping[TableName, tuple[Column, ...]] = {
    "configs": (
        Column("config_id", "INTEGER", "Number of the configuration in this data set."),
        Column(
            "config_hash", "VARCHAR", "SHA-256 of the canonical JSON of the active hyperparameters."
        ),
        Column("origin", "VARCHAR", "Who proposed it, and how: sobol, default, explore ..."),
    ),
    "runs": (
        Column("run_id", "INTEGER", "Number of the run: one configuration trained with one seed."),
        Column("config_id", "INTEGER", "Configuration."),
        Column("seed", "INTEGER", "Training seed."),
        Column("seed_role", "VARCHAR", "tuning: may be used to choose; test: only to report."),
        Column("algorithm", "VARCHAR", "Algorithm or trainer."),
        Column("environment", "VARCHAR", "Environment id."),
        Column("parent_run", "INTEGER", "Run whose agent this one continues.", nullable=True),
        Column("start_step", "BIGINT", "Step at which it continues; 0 from scratch."),
        Column("member", "VARCHAR", "Population member, bracket or optimizer seed.", nullable=True),
        Column("status", "VARCHAR", "done, stopped, or a kind of failure."),
        Column(
            "environment_steps",
            "DOUBLE",
            "Counted environment steps of this run, its parents left out.",
            nullable=True,
        ),
        Column("wall_seconds", "DOUBLE", "Training time.", nullable=True),
    ),
    "evals": (
        Column("run_id", "INTEGER", "Run."),
        Column("step", "BIGINT", "Nominal step of the evaluation."),
    ),
    "segments": (
        Column("segment", "VARCHAR", "Name of the segment."),
        Column("run_id", "INTEGER", "Run it belongs to."),
        Column("seed", "INTEGER", "Training seed."),
        Column("parent", "VARCHAR", "Segment it continued from.", nullable=True),
        Column("member", "VARCHAR", "Population member.", nullable=True),
        Column("from_step", "BIGINT", "Step it began at."),
        Column("to_step", "BIGINT", "Step it ended at."),
        Column("config_id", "INTEGER", "Configuration it was trained with."),
    ),
}
METRIC_TYPE = "FLOAT"
STATUSES = tuple(str(status) for status in Status)


@dataclass(frozen=True)
class Tables:
    """Rows of a landscape as pandas frames, one per table.

    `evals` has one more column per metric.
    """

    configs: pd.DataFrame
    runs: pd.DataFrame
    evals: pd.DataFrame
    segments: pd.DataFrame

    def __getitem__(self, name: TableName) -> pd.DataFrame:
        frame: pd.DataFrame = getattr(self, name)
        return frame


def declared_columns(
    name: TableName, names: Iterable[str], space: Space | None = None
) -> dict[str, Column]:
    """Return the columns of a table by name.

    The fixed ones come first, then the hyperparameters of a space (`configs`), or every other one
    of `names` as a metric (`evals`).
    """
    columns = {column.name: column for column in TABLES[name]}
    if name == "evals":
        columns |= {
            metric: Column(metric, METRIC_TYPE, f"Metric {metric}.", nullable=True)
            for metric in names
            if metric not in columns
        }
    if name == "configs" and space is not None:
        columns |= {key: hyperparameter_column(space.hyperparameters[key]) for key in space.names}
    return columns


def table_columns(name: TableName, frame: pd.DataFrame, space: Space | None) -> list[Column]:
    """Return the columns of a table that is written.

    Raises:
        InputError: a fixed column is missing, or a column is neither fixed nor allowed.
    """
    fixed = [column.name for column in TABLES[name]]
    names = [str(column) for column in frame]
    missing = [column for column in fixed if column not in names]
    if missing:
        raise InputError(f"table '{name}' lacks columns {missing}; it needs {fixed}")
    # A column would stand twice in the table.
    clash = sorted(set(space.names) & set(fixed)) if space is not None and name == "configs" else []
    if clash:
        raise InputError(
            f"hyperparameters {clash} have the name of a column of 'configs'; rename them"
        )
    columns = declared_columns(name, names, space)
    more = [column for column in names if column not in columns]
    if more and name != "configs":
        raise InputError(f"table '{name}' has unknown columns {more}; allowed: {fixed}")
    return list(columns.values())


# Types that can be read as a declared type: tables of strangers have other widths.
_WHOLE_TYPES = frozenset(
    f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")
)
_WHOLE_TYPES |= {"INTEGER", "UINTEGER"}
_READABLE: Mapping[str, frozenset[str]] = {
    "INTEGER": _WHOLE_TYPES,
    "BIGINT": _WHOLE_TYPES,
    "FLOAT": _WHOLE_TYPES | {"FLOAT", "DOUBLE", "DECIMAL"},
    "DOUBLE": _WHOLE_TYPES | {"FLOAT", "DOUBLE", "DECIMAL"},
    "VARCHAR": frozenset({"VARCHAR"}),
    "BOOLEAN": frozenset({"BOOLEAN"}),
}


def check_columns(
    name: TableName, types: Mapping[str, str], file: str, space: Space | None = None
) -> None:
    """Check that a table has every column of `declared_columns`, with its type.

    Args:
        name: of the table.
        types: DuckDB type by column, as stored.
        file: for messages.
        space: whose hyperparameters `configs` needs; None = none.

    Raises:
        InputError: it lacks one, or has one that cannot be read as its type.
    """
    for column in declared_columns(name, types, space).values():
        stored = types.get(column.name)
        if stored is None:
            raise InputError(f"table '{name}' has no column {shown(column.name)}", file=file)
        # The types of a column without a value.
        all_null = column.nullable and stored in ("INTEGER", '"NULL"')
        # DECIMAL(18,3), say.
        if stored.partition("(")[0] not in _READABLE[column.type] and not all_null:
            message = (
                f"column {shown(column.name)} of table '{name}' is {shortened(stored)}, "
                f"expected {column.type}"
            )
            raise InputError(message, file=file)


def identifier(name: str) -> str:
    """Write a name as SQL takes it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Write a text as SQL takes it, where no parameter can stand."""
    return "'" + text.replace("'", "''") + "'"


def cast_list(columns: Sequence[Column]) -> str:
    """Write the columns as a SQL select list that casts each.

    Each gets its declared type.
    """
    cells = ((identifier(column.name), column.type) for column in columns)
    return ", ".join(f"CAST({name} AS {type}) AS {name}" for name, type in cells)


def hyperparameter_column(item: Hyperparameter) -> Column:
    """Make the column of a hyperparameter, null where it is inactive."""
    return Column(
        item.name, _column_type(item), f"Hyperparameter {item.name} ({item.type}).", nullable=True
    )


def _column_type(item: Hyperparameter) -> str:
    if item.type == "float":
        return "DOUBLE"
    if item.type == "int":
        return "BIGINT"
    # Exact types: True is an int to isinstance.
    kinds = {type(choice) for choice in item.choices}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return "BIGINT"
    return "DOUBLE" if kinds <= {int, float} else "VARCHAR"


def encode(item: Hyperparameter, value: object) -> object:
    """Write a hyperparameter's value as a cell.

    Choices of several types, or not scalars, are written as JSON text.
    """
    return canonical_json(value) if as_json(item) else value


def decode(item: Hyperparameter, cell: Any) -> Any:
    """Return the value in a cell, the inverse of `encode`."""
    # `canonical` gives back what the column's type has changed: 2.0 for the choice 2, say.
    value = json.loads(cell) if isinstance(cell, str) and as_json(item) else cell
    return item.canonical(value)


def as_json(item: Hyperparameter) -> bool:
    """Tell whether values are written as JSON text.

    Choices of several types, or not scalars, are.
    """
    return _column_type(item) == "VARCHAR" and any(
        not isinstance(choice, str) for choice in item.choices
    )


def config_rows(
    space: Space, configs: Mapping[int, Mapping[str, object]], origin: str
) -> pd.DataFrame:
    """Make the `configs` table of configurations by id.

    Raises:
        InputError: a configuration is not valid in `space`.
    """
    import pandas as pd

    rows: dict[str, list[Any]] = {
        name: [] for name in ("config_id", "config_hash", "origin", *space.names)
    }
    for config_id, values in configs.items():
        config = space.config(values)
        rows["config_id"].append(config_id)
        rows["config_hash"].append(space.config_hash(config))
        rows["origin"].append(origin)
        for name in space.names:
            item = space.hyperparameters[name]
            cell = encode(item, config[name]) if name in config else None
            rows[name].append(cell)
    # Pandas' nullable types: with NaN for inactive ones, whole numbers would be floats.
    nullable = {"DOUBLE": "Float64", "BIGINT": "Int64", "BOOLEAN": "boolean", "VARCHAR": "str"}
    types = {name: nullable[_column_type(space.hyperparameters[name])] for name in space.names}
    return pd.DataFrame(
        {name: pd.Series(cells, dtype=types.get(name)) for name, cells in rows.items()}
    )


def config_of_row(space: Space, row: Mapping[Any, Any]) -> Config:
    """Return the configuration in a row of `configs`.

    Null cells (None, NaN, NA) are inactive hyperparameters.
    """
    import pandas as pd

    return Config(
        {
            name: decode(space.hyperparameters[name], row[name])
            for name in space.names
            if not pd.isna(row[name])
        }
    )
