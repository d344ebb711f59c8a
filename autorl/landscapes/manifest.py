"""The manifest of a landscape.

It says what the landscape is, how it was made, and the hash of every file of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autorl.core.plain_text import did_you_mean, shortened, shown
from autorl.core.plain_values import plain
from autorl.core.regular_files import open_regular, read_regular
from autorl.core.types import FrozenMap, InputError, freeze
from autorl.landscapes.schema import SCHEMA_VERSION
from autorl.store.outputs import write_whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MANIFEST = "manifest.json"
_PART = r"(?!\.+(/|\Z))[A-Za-z0-9_.:-]+"  # a folder name, not . or ..
_ID = re.compile(rf"{_PART}(/{_PART}){{2,}}\Z")
_LONGEST_ID = 1000  # characters


@dataclass(frozen=True)
class Objective:
    """The quantity that configurations are compared by.

    Attributes:
        metric: a column of `evals`.
        floor: values below count as this one, before any aggregate (some simulators return -1e22).
        penalty: what a failed run scores; None = the worst recorded value of the data set, after
            the floor.
    """

    metric: str = "eval_return"
    direction: Literal["maximize", "minimize"] = "maximize"
    floor: float | None = None
    penalty: float | None = None

    @property
    def sign(self) -> float:
        """Factor that makes larger values better."""
        return -1.0 if self.direction == "minimize" else 1.0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`.

    The folder of a landscape is its id: `<namespace>/<algorithm>/<environment id verbatim>`.

    Attributes:
        version: of the data; raised by every change of a published set.
        steps: nominal steps of the evaluations, ascending; counted in `step_unit`.
        return_bounds: smallest and largest value the objective's metric can take (after the floor);
            None = unbounded.
        seeds: seed lists by role, disjoint.
        sampler: how the configurations were chosen, e.g. {"name": "sobol", "seed": 0}.
        evaluation: the protocol, e.g. {"episodes": 128}; "reduce", "aggregate": how the study that
            made the landscape reduced a curve to a number and seeds to one, as rankings do unless
            told; "at": "end" if a run is evaluated at its end only; "steps": those every run is
            evaluated at, if some are evaluated at more (rungs); "overshoot": how many steps a run
            may be trained past the nominal step of its last evaluation, and "undershoot": how many
            fewer (it ends with a whole rollout).
        packages: {name: {"version": ..., "sha256" or "commit": ...}}: a version alone does not
            identify code.
        sources: files the data came from: {"path": ..., "sha256": ...}.
        notes: what a user must know: repairs made on import, known faults.
        parents: ids of landscapes this one was derived from.
        rows: row count by table, filled in by the writer.
        files: SHA-256 by path in the folder, filled in by the writer.
    """

    id: str
    description: str
    algorithm: str
    environment: str
    steps: tuple[int, ...]
    seeds: FrozenMap
    licence: str
    version: int = 1
    schema_version: int = SCHEMA_VERSION
    objective: Objective = field(default_factory=Objective)
    step_unit: Literal["environment_steps", "optimizer_steps"] = "environment_steps"
    return_bounds: tuple[float | None, float | None] = (None, None)
    sampler: FrozenMap = field(default_factory=FrozenMap)
    evaluation: FrozenMap = field(default_factory=FrozenMap)
    trainer: FrozenMap = field(default_factory=FrozenMap)
    packages: FrozenMap = field(default_factory=FrozenMap)
    sources: tuple[FrozenMap, ...] = ()
    commit: str = ""
    hardware: str = ""
    citation: str = ""
    url: str = ""
    creator: str = ""
    created: str = ""
    notes: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    space_hash: str = ""
    rows: FrozenMap = field(default_factory=FrozenMap)
    files: FrozenMap = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        check_id(self.id)
        if self.objective.direction not in ("maximize", "minimize"):
            raise InputError(
                f"expected maximize or minimize, got {shown(self.objective.direction)}",
                key="direction",
            )
        if not self.steps or list(self.steps) != sorted(set(self.steps)):
            raise InputError(
                f"steps must be ascending and distinct, got {shown(list(self.steps))}", key="steps"
            )
        roles = set(self.seeds) - {"tuning", "test"}
        if roles:
            raise InputError(
                f"seed roles are tuning and test, got {shown(sorted(roles))}", key="seeds"
            )
        shared = sorted(set(self.seeds.get("tuning", ())) & set(self.seeds.get("test", ())))
        if shared:
            raise InputError(f"seeds {shared[:5]} are in both tuning and test", key="seeds")

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest in JSON types."""
        fields = vars(self) | {"objective": dataclasses.asdict(self.objective)}
        return {name: plain(value) for name, value in fields.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Manifest:
        """Make a manifest of what `to_dict` returned.

        Fields with a default may be absent.

        Raises:
            InputError: unknown or missing keys, a value of a wrong type, or another schema
                version.
        """
        # Pydantic, only where a manifest is read.
        from autorl.landscapes._manifest_types import check_types

        # Before the keys: those of another schema are not misspelt.
        version = values.get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise InputError(
                f"schema version {shown(version)} of another autorl, not {SCHEMA_VERSION}",
                key="schema_version",
            )
        _check_keys(cls, values)
        objective: Any = values.get("objective", {})
        if isinstance(objective, Mapping):
            _check_keys(Objective, objective, "objective.")
        check_types(cls, values)
        converted = {name: freeze(value) for name, value in values.items() if name != "objective"}
        return cls(**converted, objective=Objective(**objective))

    def write(self, folder: Path) -> None:
        """Write `manifest.json` atomically.

        Raises:
            InputError: a key has a value that `read` would refuse.
        """
        # A manifest that cannot be read back is not written.
        Manifest.from_dict(self.to_dict())
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
        write_whole(folder / MANIFEST, text)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read `manifest.json` of a landscape folder.

        Raises:
            InputError: there is none, or it is not a manifest.
        """
        path = folder / MANIFEST
        try:
            values = json.loads(read_regular(path))
            json.dumps(
                values, ensure_ascii=False
            ).encode()  # fails on halves of characters, which nobody can print
        except FileNotFoundError:
            raise InputError(f"not a landscape: no {MANIFEST} in it", file=str(folder)) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
        # Before ValueError, which it is as well.
        except UnicodeError:
            raise InputError("not text in UTF-8", file=str(path)) from None
        except ValueError as error:
            raise InputError(f"not JSON: {shortened(str(error), 100)}", file=str(path)) from None
        except RecursionError:
            raise InputError("nested too deeply", file=str(path)) from None
        if not isinstance(values, dict):
            raise InputError("expected a JSON object", file=str(path))
        try:
            return cls.from_dict(values)
        except InputError as error:
            raise error.in_file(str(path)) from None


def check_id(id: str) -> None:
    """Raise `InputError` if a landscape cannot have this id."""
    if len(id) > _LONGEST_ID or not _ID.match(id):
        raise InputError(
            f"a landscape id is namespace/algorithm/environment, got {shown(id)}", key="id"
        )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with os.fdopen(open_regular(path), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_keys(
    kind: type[DataclassInstance], values: Mapping[str, object], prefix: str = ""
) -> None:
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}
    for name in values:
        if name not in fields:
            raise InputError(
                f"unknown key{did_you_mean(name, fields)}", key=prefix + shortened(str(name))
            )
    for name, entry in fields.items():
        required = (
            entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        )
        if required and name not in values:
            raise InputError("missing", key=prefix + name)
