"""The manifest of a landscape.

It says what the landscape is, how it was made, and the hash of every file of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, TypeAdapter, ValidationError
from pydantic_core.core_schema import no_info_wrap_validator_function

from autorl.core.plain_text import did_you_mean, shortened, shown
from autorl.core.plain_values import plain
from autorl.core.regular_files import open_regular, read_regular
from autorl.core.types import FrozenMap, InputError
from autorl.landscapes.schema import SCHEMA_VERSION, TableName
from autorl.store.outputs import write_whole

MANIFEST = "manifest.json"
_PART = r"(?!\.+(/|\Z))[A-Za-z0-9_.:-]+"  # a folder name, not . or ..
_ID = re.compile(rf"{_PART}(/{_PART}){{2,}}\Z")
_LONGEST_ID = 1000  # characters
_LARGEST = 2**63 - 1  # a BIGINT of the tables
_DEEPEST = 32  # levels of a JSON value

# Strict and bounded: a manifest is a stranger's file.
Text: TypeAlias = Annotated[str, Field(strict=True, max_length=100_000)]
Whole: TypeAlias = Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=_LARGEST)]
Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
# Files stay inside the folder: no path but these is ever opened.
FileName: TypeAlias = Annotated[
    str,
    Field(
        strict=True,
        pattern=(
            # To pydantic (Rust) these are the ends of the text, not of a line.
            r"^(space\.yaml|(configs|runs|segments)\.parquet|evals/part-[0-9]{5,9}\.parquet)$"
        ),
    ),
]


class _Evaluation(BaseModel):
    """The keys of `evaluation` that are used in queries.

    Others are kept as they are.
    """

    model_config = ConfigDict(extra="allow")
    at: Text | None = None
    """`end` if a run is evaluated at its end only."""
    reduce: Text | None = None
    """How a curve became a number."""
    aggregate: Text | None = None
    """How the numbers of seeds became one."""
    steps: list[Count] = []
    """At which every run is evaluated, if some are at more."""
    overshoot: Count = 0
    """Steps that a run may be trained past the nominal step of its last evaluation."""
    undershoot: Count = 0
    """Steps that it may be trained less."""


def _holding(kind: Any) -> GetPydanticSchema:
    """Say what a mapping of a manifest holds."""

    def checked(values: Any, check: Callable[[Any], object]) -> FrozenMap:
        check(values)
        return FrozenMap(values)

    return GetPydanticSchema(
        lambda _, handler: no_info_wrap_validator_function(checked, handler(kind))
    )


Named: TypeAlias = Annotated[FrozenMap, _holding(dict[Text, Any])]


@dataclass(frozen=True)
class Objective:
    """The quantity that configurations are compared by.

    Attributes:
        metric: a column of `evals`.
        direction: whether more or less of it is better.
        floor: values below count as this one, before any aggregate (some simulators return -1e22).
        penalty: what a failed run scores; None = the worst recorded value of the data set, after
            the floor.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    metric: Text = "eval_return"
    direction: Literal["maximize", "minimize"] = "maximize"
    floor: Number | None = None
    penalty: Number | None = None

    @property
    def sign(self) -> float:
        """Factor that makes larger values better."""
        return -1.0 if self.direction == "minimize" else 1.0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`.

    The folder of a landscape is its id: `<namespace>/<algorithm>/<environment id verbatim>`.

    Attributes:
        id: namespace/algorithm/environment, as its folder.
        description: in a sentence or two, for readers.
        algorithm: that trained.
        environment: that it trained in.
        licence: an SPDX identifier, or the words of a licence.
        step_unit: what a step counts.
        trainer: its name and options.
        commit: of the code that trained.
        hardware: it was trained on.
        citation: how to cite it.
        url: where it is published.
        creator: who made it.
        created: when it was written, UTC.
        space_hash: SHA-256 of the search space.
        schema_version: of the format.
        objective: what configurations are compared by.
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

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    id: Text
    description: Text
    algorithm: Text
    environment: Text
    steps: tuple[Count, ...]
    seeds: Annotated[FrozenMap, _holding(dict[Text, list[Whole]])]
    licence: Text
    version: Count = 1
    schema_version: Count = SCHEMA_VERSION
    objective: Objective = field(default_factory=Objective)
    step_unit: Literal["environment_steps", "optimizer_steps"] = "environment_steps"
    return_bounds: tuple[Number | None, Number | None] = (None, None)
    sampler: Named = field(default_factory=FrozenMap)
    evaluation: Annotated[FrozenMap, _holding(_Evaluation)] = field(default_factory=FrozenMap)
    trainer: Named = field(default_factory=FrozenMap)
    packages: Annotated[FrozenMap, _holding(dict[Text, dict[Text, Any]])] = field(
        default_factory=FrozenMap
    )
    sources: tuple[Named, ...] = ()
    commit: Text = ""
    hardware: Text = ""
    citation: Text = ""
    url: Text = ""
    creator: Text = ""
    created: Text = ""
    notes: tuple[Text, ...] = ()
    parents: tuple[Text, ...] = ()
    space_hash: Text = ""
    rows: Annotated[FrozenMap, _holding(dict[TableName, Count])] = field(default_factory=FrozenMap)
    files: Annotated[FrozenMap, _holding(dict[FileName, Text])] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        check_id(self.id)
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
        # Before the keys: those of another schema are not misspelt.
        version = values.get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise InputError(
                f"schema version {shown(version)} of another autorl, not {SCHEMA_VERSION}",
                key="schema_version",
            )
        # Bounded before anything recursive looks at them.
        if _is_deeper(values, _DEEPEST):
            raise InputError(f"nested in more than {_DEEPEST} levels")
        try:
            return _adapter().validate_python(dict(values))
        except ValidationError as error:
            raise _first_problem(error) from None

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


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, Mapping | list | tuple):
        return False
    items = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)


def _first_problem(error: ValidationError) -> InputError:
    first = min(error.errors(), key=lambda problem: _FIRST.get(problem["type"], 2))
    # pydantic adds the branch that it tried to a place.
    branches = ("[key]", "int", "str", "float", "none")
    parts = [part for part in first["loc"] if part not in branches]
    key = "".join(
        f"[{part}]" if isinstance(part, int) else f".{shortened(part)}" for part in parts
    ).lstrip(".")
    if first["type"] == "unexpected_keyword_argument":
        fields = [entry.name for entry in dataclasses.fields((Manifest, Objective)[len(parts) - 1])]
        return InputError(f"unknown key{did_you_mean(str(parts[-1]), fields)}", key=key)
    if first["type"] == "missing":
        return InputError("missing", key=key)
    message = re.sub(r"^Input ", "", first["msg"])
    message = re.sub(
        r"a (valid )?dictionary( or (an )?instance of \w+)?", "a mapping of keys", message
    )
    if first["type"] == "string_pattern_mismatch":
        message = (
            "not a file of a landscape: space.yaml, configs, runs or segments.parquet, "
            "evals/part-00000.parquet"
        )
    return InputError(f"{message}, got {shown(first['input'])}", key=key)


_FIRST = {"unexpected_keyword_argument": 0, "missing": 1}  # they tell of a misspelt key
