"""The options of a study's optimizer, and their defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from autorl import optimizers
from autorl.core.types import InputError
from autorl.optimizers.registry import find_stopping, resolved_names
from autorl.study.spec.sections import OptimizerSection

_HASH_SHOWN = len("sha256 ") + 12  # characters


def given_options(section: OptimizerSection) -> dict[str, Any]:
    """Return the options that a study file gives its optimizer.

    Options of `stop` are among them.
    """
    of_stop = {"stop": section.stop, "rungs": section.rungs}
    return section.options | {key: value for key, value in of_stop.items() if value is not None}


def cuts_of(section: OptimizerSection, steps: int, path: str | None) -> tuple[int, ...]:
    """Return the steps at which an optimizer ends segments of runs.

    Args:
        section: of the study file.
        steps: of a full run.
        path: folder that a class of the user's lies in.
    """
    try:
        return optimizers.cuts(section.name, steps, path, **given_options(section))
    except InputError:  # wrong options: `optimizer_of` raises the error
        return (steps,)


def stored_options(section: OptimizerSection, path: str | None, seed: int) -> dict[str, Any]:
    """Give the options of a study's optimizer with every default written out.

    If the class of another package cannot be imported, the result has only the options that the
    study file gives.

    Args:
        section: of the study file.
        path: folder that a class of the user's lies in.
        seed: of the study.
    """
    written = given_options(section)
    written.pop("stop", None)
    try:
        classes = [optimizers.find(section.name, path)]
    except InputError:
        return written
    if section.stop is not None:
        classes.append(find_stopping(section.stop))
    fields = [field for cls in classes for field in dataclasses.fields(cls.Options)]
    defaults = {field.name: field.default for field in fields}
    if "seed" in defaults:
        defaults["seed"] = seed  # as `optimizer_of` gives it
    return defaults | written


def resolved_of(section: OptimizerSection, path: str | None) -> Collection[str]:
    """Name the options that a study resolves when it begins.

    There are none of a class that cannot be imported: the error comes when it is made.
    """
    try:
        return resolved_names(section.name, section.stop, path)
    except InputError:
        return ()


def with_resolved_of(
    section: OptimizerSection, stored: OptimizerSection, path: str | None
) -> OptimizerSection:
    """Copy an optimizer's section, with values that a stored study resolved.

    Files that its options name may have moved, changed or gone since: the study goes on with the
    data it has.

    Args:
        section: of a study file that is read now.
        stored: of the stored study.
        path: folder that a class of the user's lies in.
    """
    if section.name != stored.name:
        return section
    resolved = resolved_of(section, path)
    begun_with = {name: stored.options[name] for name in resolved if name in stored.options}
    if not begun_with:
        return section
    return OptimizerSection(**section.model_dump(exclude_none=True) | begun_with)


def options_to_show(section: OptimizerSection, path: str | None) -> dict[str, Any]:
    """Give the options of an optimizer for a reader.

    Options that a study resolved when it began are data: a hash stands for each.

    Args:
        section: of the study file.
        path: folder that a class of the user's lies in.
    """
    resolved = resolved_of(section, path)
    shown = {name: value for name, value in section.options.items() if name not in resolved}
    in_short = resolved_in_short(section, path).items()
    return shown | {name: text[:_HASH_SHOWN] for name, text in in_short}


def resolved_in_short(section: OptimizerSection, path: str | None) -> dict[str, str]:
    """Give the hash of each option that a study has resolved.

    Args:
        section: of the study file.
        path: folder that a class of the user's lies in.
    """
    values = {name: section.options.get(name) for name in resolved_of(section, path)}
    return {
        name: f"sha256 {value['sha256']}"
        for name, value in values.items()
        if isinstance(value, Mapping) and "sha256" in value
    }
