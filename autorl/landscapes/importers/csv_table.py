"""Any CSV file as a landscape, given what its columns are.

A row is one evaluation.

Pairs `column=role` give the roles of columns, or a YAML file that lists the columns of each role.

```yaml
config_id: trial                 # optional: rows with equal hyperparameters are one configuration
hyperparameters: [lr, "hp.*"]    # names or patterns
seed: seed                       # optional
step: timesteps                  # optional: one evaluation at the end
metrics: [return, length]        # the first is the objective
```
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import shortened, shown
from autorl.core.types import InputError
from autorl.landscapes.importers.common import (
    Evaluation,
    Options,
    Run,
    Source,
    gathered,
    metric_column,
    whole_step,
    write_source,
)
from autorl.landscapes.importers.inference import clean_name, numbered, table_rows
from autorl.landscapes.manifest import Manifest, Objective
from autorl.landscapes.schema import SEED_ROLES, STATUSES
from autorl.space import read_document, unknown_key

if TYPE_CHECKING:
    import pandas as pd

_HEADER = 2  # the first row of data is line 2 of the file
_WHOLE_LIMIT = 2**31  # an INTEGER of the tables


def recognises(path: Path) -> bool:
    """Tell whether a file is a table.

    Which columns it has, only a mapping says.
    """
    return path.is_file() and path.name.endswith((".csv", ".csv.gz"))


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import one file.

    Raises:
        InputError: no mapping or a wrong one, no hyperparameter or metric among the columns, or a
            row with a cell that is not what its role says.
    """
    frame = read_csv(path)
    if not options.map:
        message = (
            "not a format that is known; for any other table say what its columns are: "
            "--map column=role"
        )
        raise InputError(message, key="--map")
    columns = [str(name) for name in frame]
    roles = _mapped(options.map, columns, path)
    for role in MANY:
        if not roles[role]:
            message = f"a column has to be a {role}: --map column={role}"
            raise InputError(message, key="--map")
    metrics = {name: metric_column(name) for name in roles["metric"]}
    objective = options.metric or roles["metric"][0]
    if objective not in metrics:
        raise InputError(f"{objective!r} is not among {', '.join(metrics)}", key="metric")
    _check_cells(frame, roles)
    taken = {column for listed in roles.values() for column in listed}
    ignored = [name for name in columns if name not in taken]
    configs, runs = _read(frame, roles, metrics, options)
    seed_roles: dict[str, list[int]] = {}
    if roles["seed"] and roles["seed_role"]:
        by_role = frame.groupby(roles["seed_role"])[roles["seed"][0]]
        seed_roles = {
            str(role): sorted({int(seed) for seed in seeds}) for (role,), seeds in by_role
        }
    source = Source(
        path=path,
        files=[path],
        id=options.named(path),
        format=f"the table {path.name}",
        configs=configs,
        runs=runs,
        objective=Objective(metrics[objective], options.direction or "maximize"),
        roles=seed_roles,
        notes=(f"Columns left out: {', '.join(ignored)}.",) if ignored else (),
    )
    return [write_source(source, options)]


def read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file, compressed or not.

    Raises:
        InputError: it cannot be read.
    """
    import pandas as pd

    try:
        return pd.read_csv(path)
    except (OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise InputError(
            f"cannot be read as CSV: {shortened(str(error), 150)}", file=str(path)
        ) from None


def _parsed(cell: object) -> object:
    """Parse a list or mapping that was written as JSON text.

    Every other cell stays as it is.
    """
    if not isinstance(cell, str) or not cell.startswith(("[", "{")):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _read(
    frame: pd.DataFrame,
    roles: Mapping[str, Sequence[str]],
    metrics: Mapping[str, str],
    options: Options,
) -> tuple[dict[int, Mapping[str, Any]], list[Run]]:
    """Return the configurations by number, and the runs.

    A configuration's number is that of the file, if it gives one.
    """

    def column(role: str, default: object) -> list[Any]:
        return frame[roles[role][0]].tolist() if roles[role] else [default] * len(frame)

    listed = table_rows(
        {
            clean_name(name): [_parsed(cell) for cell in frame[name].tolist()]
            for name in roles["hyperparameter"]
        }
    )
    configs, numbers = numbered(listed)
    if roles["config_id"]:
        configs = {}
        numbers = [int(cell) for cell in column("config_id", 0)]
        for line, (number, config) in enumerate(zip(numbers, listed, strict=True), _HEADER):
            if configs.setdefault(number, config) != config:
                message = f"configuration {number} has other hyperparameters than before"
                raise InputError(message, line=line)
    unit = options.unit if roles["step"] else 1.0
    values = frame[list(metrics)].astype(float).rename(columns=metrics).to_dict("records")
    cells = zip(
        numbers,
        column("seed", 0),
        column("step", 1),
        values,
        column("status", "done"),
        # Seconds of a run add up along its rows, as in Ray's and SB3's logs: the last is the run's.
        column("wall_seconds", None),
        strict=True,
    )
    rows = [
        Evaluation(
            number, int(seed), whole_step(step, unit, f"line {line}"), scores, line, status, wall
        )
        for line, (number, seed, step, scores, status, wall) in enumerate(cells, _HEADER)
    ]
    if roles["seed"] or roles["step"]:
        return configs, gathered(rows)
    # Rows that name neither seed nor step do not say which belong together: each is a run.
    return configs, [replace(run, seed=None) for row in rows for run in gathered([row])]


def _check_cells(frame: pd.DataFrame, roles: Mapping[str, Sequence[str]]) -> None:
    """Raise `InputError` with the line of the first wrong cell."""
    import pandas as pd

    def refuse(wrong: Any, expected: str, name: str, key: str | None) -> None:
        cells = frame[name][wrong]
        if len(cells):
            line = int(cells.index[0]) + _HEADER
            raise InputError(expected.format(shown(cells.tolist()[0])), key=key, line=line)

    integers = (*roles["seed"], *roles["config_id"])
    for name in (*roles["metric"], *roles["step"], *roles["wall_seconds"], *integers):
        # An unreadable cell becomes NaN here, though it is not empty in the file.
        cells = pd.to_numeric(frame[name], errors="coerce")
        refuse(cells.isna() & frame[name].notna(), "expected a number, got {}", name, name)
    for name in integers:
        cells = frame[name]
        refuse(cells.isna() | (cells % 1 != 0), "expected a whole number, got {}", name, name)
        large = cells.abs() >= _WHOLE_LIMIT
        refuse(large, "expected a whole number below 2^31, got {}", name, name)
    for role, allowed in (("status", STATUSES), ("seed_role", SEED_ROLES)):
        for name in roles[role]:
            text = f"{role.replace('_', ' ')} {{}}; allowed: {', '.join(allowed)}"
            refuse(~frame[name].isin(allowed), text, name, None)


ROLES = (
    "config_id",
    "hyperparameter",
    "seed",
    "seed_role",
    "step",
    "metric",
    "status",
    "wall_seconds",
)
MANY = ("hyperparameter", "metric")


def _mapped(entries: Sequence[str], columns: Sequence[str], file: Path) -> dict[str, list[str]]:
    """List the columns of each role, in the order of the mapping.

    Args:
        entries: `column=role`, where the column may be a pattern (`hp.*`), or the path of a YAML
            file.
        columns: those of the table.
        file: the table, for messages.

    Raises:
        InputError: no such role or column, a column with two roles, or two columns with a role of
            which there is one.
    """
    roles: dict[str, list[str]] = {role: [] for role in ROLES}
    taken: dict[str, str] = {}
    for pattern, role, where in [pair for entry in entries for pair in _pairs(entry)]:
        # A pattern takes what entries before it have left: `seed=seed`, then `*=metric`.
        matching = [name for name in columns if fnmatchcase(name, pattern) and name not in taken]
        # A column may be called `hp[0]`, which as a pattern would match another one.
        named = [pattern] if pattern in columns else matching
        if not named:
            message = f"no column {pattern!r} in {file.name}; it has {', '.join(columns)}"
            raise InputError(message, file=where, key=role)
        for name in named:
            if taken.setdefault(name, role) != role:
                raise InputError(
                    f"the column {name!r} is {taken[name]} already", file=where, key=role
                )
        roles[role] += [name for name in named if name not in roles[role]]
        if role not in MANY and len(roles[role]) > 1:
            raise InputError(
                f"one column can be {role}, got {', '.join(roles[role])}", file=where, key=role
            )
    return roles


def _pairs(entry: str) -> list[tuple[str, str, str]]:
    """Return (column, role, where it is written) of an entry."""
    if "=" in entry:
        # The last `=`: a column's name may have one, a role has none.
        column, _, role = entry.rpartition("=")
        return [(column, _role(role, "--map"), "--map")]
    if not entry.endswith((".yaml", ".yml")):
        raise InputError(f"expected column=role or a .yaml file, got {entry!r}", key="--map")
    values: Any = read_document(entry).data
    if not isinstance(values, Mapping):
        raise InputError(f"expected lines `role: column`; roles are {', '.join(ROLES)}", file=entry)
    return [
        (str(column), _role(str(role), entry), entry)
        for role, listed in values.items()
        for column in (listed if isinstance(listed, list | tuple) else [listed])
    ]


def _role(text: str, where: str) -> str:
    singular = {f"{role}s": role for role in MANY}
    role = singular.get(text, text)
    if role not in ROLES:
        raise InputError(unknown_key(text, ROLES).replace("key", "role"), file=where)
    return role
