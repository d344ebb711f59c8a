"""The command `autorl schema`: the files of this package, for editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from autorl.cli.options import print_json
from autorl.core import json_schema
from autorl.core.json_schema import Json
from autorl.core.plain_text import one_of
from autorl.core.types import InputError
from autorl.landscapes.manifest import Manifest
from autorl.optimizers.registry import named_of_kind
from autorl.space.json_schema import definitions as of_spaces
from autorl.study.building import BUILT_BY
from autorl.study.spec.json_schema import study_schema


def schema(what: Annotated[str, typer.Argument()] = "study") -> None:
    """The JSON Schema of a file, for editors.

    It knows the trainers and optimizers that are installed, plug-ins too.

    Options:
        what: study, space, manifest (of a landscape) or build (a study file for a landscape).
    """
    if what not in _KINDS:
        raise InputError(f"no file {what!r}{one_of(what, _KINDS)}", key="WHAT")
    print_json(json_schema.whole(what, *_KINDS[what]()))


def _one(name: str, definitions: Json) -> tuple[Json, Json]:
    return definitions.pop(name), definitions


def _build() -> tuple[Json, Json]:
    study, definitions = study_schema(named_of_kind(*BUILT_BY))
    study["required"] += ["landscape", "optimizer"]
    return study, definitions


_KINDS: Mapping[str, Callable[[], tuple[Json, Json]]] = {
    "study": study_schema,
    "space": lambda: _one("space", of_spaces()),
    "manifest": lambda: _one("Manifest", json_schema.definitions(Manifest)),
    "build": _build,
}
