"""The study file as it was when the study began.

The log holds it, so that what was changed in it since can be named.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from autorl.core.masking import masked
from autorl.core.plain_text import counted, shown
from autorl.core.types import InputError
from autorl.space import parse_document
from autorl.space.document import Dumper
from autorl.store.events import StudyBegun

# Notes, the place and means of a run, and its room are no part of a table.
MAY_CHANGE = ("note", "path", "executor", "resources", "limits.disk_gb", "storage")
_OF_ALGORITHM = re.compile(r"algorithms\.[^.]+\.resources\.")
_MOST_KEYS = 3  # named in a message
_VALUE = 40  # characters of a value in a message
_MISSING = object()


def study_begun(text: str, space_hash: str) -> StudyBegun:
    """Make the event that fixes a study file.

    The hash of its search space is fixed as well.
    """
    masked_text = recordable(text)
    sha256 = hashlib.sha256(masked_text.encode("utf-8")).hexdigest()
    return StudyBegun(masked_text, sha256, space_hash)


def recordable(text: str) -> str:
    """Return the text of a study file as the log holds it.

    It is without its secrets, which `***` stands for.
    """
    data = parse_document(text).data
    without_secrets = masked(data)
    if without_secrets == data:
        return text
    return str(yaml.dump(without_secrets, Dumper=Dumper, sort_keys=False))


def check_unchanged(recorded: StudyBegun, text: str, file: Path) -> None:
    """Refuse a study file that was changed since the study began.

    The text alone may differ (comments, order of keys), and so may the keys of `MAY_CHANGE` and
    secrets.

    Args:
        recorded: its event.
        text: what the file says now.
        file: for messages.

    Raises:
        InputError: naming the file, the line, the keys that were changed, and what they were.
    """
    if recorded.text == text:  # the usual case, without reading YAML again
        return
    document = parse_document(text, str(file))
    changes = changed_keys(parse_document(recorded.text, str(file)).data, masked(document.data))
    if not changes:
        return
    named = ", ".join(_named(key, *values) for key, values in list(changes.items())[:_MOST_KEYS])
    more = (
        f" and {counted(len(changes) - _MOST_KEYS, 'more key')}"
        if len(changes) > _MOST_KEYS
        else ""
    )
    error = document.error("", next(iter(changes)))
    raise InputError(
        f"changed since the study began: {named}{more}; put it back, or begin a new study with the "
        "changed file",
        file=error.file,
        line=error.line,
    )


def changed_keys(before: object, now: object) -> dict[str, tuple[object, object]]:
    """List the dotted keys whose values differ, with both values.

    They are in the order of `before`. The keys of `MAY_CHANGE` are left out, and the resources of
    algorithms.
    """
    first = _flat(before)
    second = _flat(now)
    values = {
        key: (first.get(key, _MISSING), second.get(key, _MISSING)) for key in {**first, **second}
    }
    return {
        key: (old, new)
        for key, (old, new) in values.items()
        # By `repr`, so that `1` is not `true`, and a NaN is itself.
        if old is not new
        and repr(old) != repr(new)
        # A key may change alone or with those below it.
        and not f"{key}.".startswith(tuple(f"{name}." for name in MAY_CHANGE))
        and not _OF_ALGORITHM.match(f"{key}.")
    }


def _flat(value: object, above: str = "") -> dict[str, object]:
    """List every leaf of a document by its dotted key.

    A list of plain values is a leaf.
    """
    if isinstance(value, Mapping) and value:
        parts = [(f"{above}.{name}".lstrip("."), item) for name, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        parts = [(f"{above}[{number}]", item) for number, item in enumerate(value)]
    else:
        return {above: value}
    return {key: leaf for name, item in parts for key, leaf in _flat(item, name).items()}


def _named(key: str, before: object, now: object) -> str:
    texts = ["nothing" if value is _MISSING else shown(value, _VALUE) for value in (before, now)]
    return f"{key} (was {texts[0]}, is {texts[1]})"
