"""A search space that extends another: a few hyperparameters fixed, narrowed, left out or added, the rest as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorl.plain_text import did_you_mean, shown
from autorl.types import InputError

EXTENDS = "extends"
_LISTS = ("forbidden", "constraints")


def extended(definition: Mapping[str, Any], read_base: Callable[[Any], Any]) -> dict[str, Any]:
    """The definition without `extends`, on top of what it extends.

    Of a hyperparameter that the base has, the keys given replace the base's; one with `value` is fixed, one with `type`
    replaces it, `null` leaves it out with its condition. A default of the base that narrower bounds or other choices
    exclude is dropped, and so is a forbidden combination that cannot come about. Conditions and constants are added by
    name, forbidden combinations and constraints to the list. A hyperparameter takes the place of a base's constant.

    Args:
        definition: the content of a space file, with the key `extends`.
        read_base: the content of the file that key names.

    Raises:
        InputError: `key` is the path inside the definition.
    """
    base = read_base(definition[EXTENDS])
    for part in (definition, base):
        for key in ("hyperparameters", "conditions", "constants"):
            if not isinstance(part.get(key) or {}, Mapping):
                raise InputError(f"expected a mapping, got {shown(part[key])}", key=key)
        for key in _LISTS:
            if not isinstance(part.get(key) or [], list | tuple):
                raise InputError(f"expected a list, got {shown(part[key])}", key=key)
    entries, conditions = (
        dict(base.get("hyperparameters") or {}),
        dict(base.get("conditions") or {}),
    )
    for name, entry in (definition.get("hyperparameters") or {}).items():
        if name not in entries and (entry is None or not _is_new(entry)):
            hint = did_you_mean(name, entries) or "; a new one needs a type"
            raise InputError(
                f"{definition[EXTENDS]} has none of this name{hint}", key=f"hyperparameters.{name}"
            )
        if entry is None:
            del entries[name]
            conditions.pop(name, None)
        else:
            entries[name] = _merged(entries.get(name), entry)
    rest = {key: value for key, value in definition.items() if key != EXTENDS}
    kept = (_possible(clause, entries) for clause in base.get("forbidden") or [])
    base = {**base, "forbidden": [clause for clause in kept if clause is not None]}
    return {
        **rest,
        "hyperparameters": entries,
        "conditions": {**conditions, **(definition.get("conditions") or {})},
        "constants": {
            **{
                name: number
                for name, number in (base.get("constants") or {}).items()
                if name not in entries
            },
            **(definition.get("constants") or {}),
        },
        **{key: [*(base.get(key) or []), *(definition.get(key) or [])] for key in _LISTS},
    }


def _possible(clause: Any, entries: Mapping[str, Any]) -> Any:
    """A forbidden combination of the base with the values that are still possible; None if it cannot come about."""
    if not isinstance(clause, Mapping):
        return clause
    found = {}
    for name, values in clause.items():
        several = isinstance(values, list | tuple)
        left = [
            value
            for value in (values if several else [values])
            if _within(value, entries.get(name, {"choices": []}))
        ]
        if not left:
            return None
        found[name] = left if several else values
    return found


def _is_new(entry: Any) -> bool:
    """Whether an entry says all that a hyperparameter needs, or is wrong in a way that is told when it is read."""
    return not isinstance(entry, Mapping) or any(
        key in entry for key in ("type", "choices", "value")
    )


def _merged(base: Any, entry: Any) -> Any:
    if (
        not isinstance(base, Mapping)
        or not isinstance(entry, Mapping)
        or "type" in entry
        or "value" in entry
    ):
        return entry
    merged = {**base, **entry}
    if "default" in base and "default" not in entry and not _within(base["default"], merged):
        del merged["default"]
    return merged


def _within(value: Any, entry: Mapping[str, Any]) -> bool:
    if "choices" in entry or "value" in entry:
        return value in entry.get("choices", (entry.get("value"),))
    try:
        return bool(entry["lower"] <= value <= entry["upper"])
    except (
        KeyError,
        TypeError,
    ):  # whatever is wrong with the bounds is said when the hyperparameter is read
        return True
