"""Reads the options of a trainer.

Names are checked, and the folders of a user's modules are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import one_of
from autorl.core.types import InputError, TrainerSpec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_names(given: Iterable[str], allowed: Collection[str], what: str, key: str) -> None:
    """Raise `InputError` for the first of `given` that is not in `allowed`."""
    for name in given:
        if name not in allowed:
            hint = one_of(name, sorted(allowed))
            raise InputError(f"unknown {what} {name!r}{hint}", key=key)


def check_fields(spec: TrainerSpec, trainer: type[DataclassInstance]) -> None:
    """Raise `InputError` for an option that is no field of `trainer`."""
    allowed = {item.name for item in fields(trainer)}
    check_names(spec.kwargs, allowed, f"option of {spec.name}", "trainer.kwargs")


def search_folders(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the option `path`: where a user's modules are looked for.

    It is a folder or several; empty = working folder.
    """
    path = kwargs.get("path", ())
    return (path,) if isinstance(path, str) else tuple(path)
