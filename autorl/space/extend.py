"""A search space that extends another.

Some hyperparameters are fixed, narrowed, left out or added; everything else is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorl.core.plain_text import did_you_mean, shown
from autorl.core.types import InputError
from autorl.space.short_form import is_short, long_form

EXTENDS = "extends"
MAPPINGS = ("hyperparameters", "conditions", "constants")
LISTS = ("forbidden", "constraints")


def extended(
    definition: Mapping[str, object], read_base: Callable[[object], Mapping[str, object]]
) -> dict[str, Any]:
    """Write out a definition that extends another.

    The keys given for a hyperparameter of the base replace the base's keys; `value` fixes it,
    `type` replaces it, `null` leaves it out with its condition. Bounds without a type lie inside
    the base's. A short interval replaces bounds and scale of a base of its type, short choices
    those of a base with choices; a base of another kind they replace. A default of the base that
    narrower bounds exclude is the nearest bound. One that other choices exclude is dropped, and so
    is a forbidden combination that cannot come about. Conditions and constants are added by name,
    forbidden combinations and constraints to the list. A hyperparameter takes the place of a base's
    constant.

    Args:
        definition: the content of a space file, with the key `extends`.
        read_base: the content of the file that key names.

    Raises:
        InputError: `key` is the path inside the definition.
    """
    base = read_base(definition[EXTENDS])
    own_parts = parts_of(definition)
    base_parts = parts_of(base)
    entries: dict[str, Any] = {
        name: long_form(name, entry) for name, entry in base_parts["hyperparameters"].items()
    }
    conditions = dict(base_parts["conditions"])
    for name, entry in own_parts["hyperparameters"].items():
        # An entry that has no type should change a hyperparameter of the base: a misspelt name.
        if name not in entries and (entry is None or not _is_new(entry)):
            hint = did_you_mean(name, entries) or "; a new one needs a type"
            raise InputError(
                f"{definition[EXTENDS]} has none of this name{hint}", key=f"hyperparameters.{name}"
            )
        if entry is None:
            del entries[name]
            conditions.pop(name, None)
        elif is_short(entry):
            entries[name] = _with_short_form(entries.get(name), long_form(name, entry))
        else:
            _refuse_wider(name, entries.get(name), entry)
            entries[name] = _merged(entries.get(name), entry)
    clauses = [_possible(clause, entries) for clause in base_parts["forbidden"]]
    possible = [clause for clause in clauses if clause is not None]
    # A rule of the base that names the constant is about the hyperparameter from here on.
    constants = {
        name: number for name, number in base_parts["constants"].items() if name not in entries
    }
    result = {key: value for key, value in definition.items() if key != EXTENDS}
    return result | {
        "hyperparameters": entries,
        "conditions": {**conditions, **own_parts["conditions"]},
        "constants": {**constants, **own_parts["constants"]},
        "forbidden": [*possible, *own_parts["forbidden"]],
        "constraints": [*base_parts["constraints"], *own_parts["constraints"]],
    }


def parts_of(definition: Mapping[str, object]) -> dict[str, Any]:
    """Give the parts of a definition, empty where it has none.

    Raises:
        InputError: one is no mapping, or no list, as it should be.
    """
    parts: dict[str, Any] = {}
    for key in MAPPINGS:
        parts[key] = {} if definition.get(key) is None else definition[key]
        if not isinstance(parts[key], Mapping):
            raise InputError(f"expected a mapping, got {shown(parts[key])}", key=key)
    for key in LISTS:
        parts[key] = [] if definition.get(key) is None else definition[key]
        if not isinstance(parts[key], list | tuple):
            raise InputError(f"expected a list, got {shown(parts[key])}", key=key)
    return parts


def _possible(clause: object, entries: Mapping[str, Mapping[str, Any]]) -> Any:
    """Keep what is possible of a forbidden combination, None if nothing is."""
    if not isinstance(clause, Mapping):
        return clause
    possible = {}
    for name, values in clause.items():
        is_list = isinstance(values, list | tuple)
        candidates = values if is_list else [values]
        entry = entries.get(name, {"choices": []})  # left out: no value is possible
        remaining = [value for value in candidates if _within(value, entry)]
        if not remaining:
            return None
        possible[name] = remaining if is_list else values
    return possible


def _is_new(entry: object) -> bool:
    """Tell whether an entry stands for itself, without a base.

    An entry that is no mapping does so too: reading it reports the fault.
    """
    return not isinstance(entry, Mapping) or any(
        key in entry for key in ("type", "choices", "value")
    )


def _with_short_form(base: object, entry: object) -> Any:
    """Put a short form, written out, over the entry of the base."""
    if not isinstance(base, Mapping) or not isinstance(entry, Mapping) or "value" in entry:
        return entry
    if "choices" in entry:
        return _merged(base, entry) if "choices" in base else entry
    if base.get("type") != entry["type"]:
        return entry
    # For the same type the base's other fields stay (changeable, schedule).
    bounds = {field: value for field, value in entry.items() if field != "type"}
    return _merged(base, bounds)


def _refuse_wider(name: str, base: object, entry: object) -> None:
    """Refuse bounds outside the base's, which a misplaced digit would be.

    Raises:
        InputError: naming the bound. With a type the entry replaces the base's.
    """
    if not isinstance(base, Mapping) or not isinstance(entry, Mapping) or "type" in entry:
        return
    for bound in ("lower", "upper"):
        if bound in entry and not _within(entry[bound], base):
            raise InputError(
                f"{shown(entry[bound])} is outside {base['lower']} to {base['upper']} of the space "
                "that is extended: narrow it, or give the type as well, to replace it",
                key=f"hyperparameters.{name}.{bound}",
            )


def _merged(base: object, entry: object) -> Any:
    if (
        not isinstance(base, Mapping)
        or not isinstance(entry, Mapping)
        or "type" in entry
        or "value" in entry
    ):
        return entry
    merged = {**base, **entry}
    if "default" in base and "default" not in entry and not _within(base["default"], merged):
        if "choices" in merged:
            del merged["default"]
        else:
            merged["default"] = min(max(base["default"], merged["lower"]), merged["upper"])
    return merged


def _within(value: object, entry: Mapping[str, Any]) -> bool:
    if "choices" in entry or "value" in entry:
        return value in entry.get("choices", (entry.get("value"),))
    try:
        return bool(entry["lower"] <= value <= entry["upper"])
    except (KeyError, TypeError):
        return True  # what is wrong with the bounds is said when the hyperparameter is read
