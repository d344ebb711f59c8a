"""The role of each column of a foreign table.

Roles are given as `column=role` pairs, or by a YAML file that lists the columns of each role.

```yaml
config_id: trial                 # optional: rows with equal hyperparameters are one configuration
hyperparameters: [lr, "hp.*"]    # names or patterns
seed: seed                       # optional
step: timesteps                  # optional: one evaluation at the end
metrics: [return, length]        # the first is the objective
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from autorl.core.types import InputError
from autorl.space import read_document, unknown_key

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


def read_mapping(
    entries: Sequence[str], columns: Sequence[str], file: Path
) -> dict[str, list[str]]:
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
