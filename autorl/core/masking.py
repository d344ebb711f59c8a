"""Makes what a study file says fit to be shared.

Imports nothing of `autorl`. Secrets are replaced by `***` and folders of the machine are cut. A
secret is the value of an environment variable of a trainer, of a key or flag whose name says so
(`api_key`, `hub_token`, `password`), and what stands before the `@` of an address. Only
`study.yaml` keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any

MASK = "***"
VARIABLES = "environment_variables"  # the option of `command` whose values are all masked

_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_-])(?:(?:api|access|auth|bearer|hf|hub|private|refresh|secret|session)"
    r"[_-]?(?:key|token)"
    r"|api[_-]?key|passw(?:or)?d|passphrase|secret|credentials?)(?:$|[_-])|^token$"
)
_VALUE = r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s'\"-][^\s'\"]*)"
_ARGUMENT = re.compile(rf"(?P<place>(?P<flag>--?[\w.-]+)(?:=|\s+)|(?P<name>[\w.-]+)=){_VALUE}")
_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s/@]+@")
_FOLDER = re.compile(
    r"(?<![\w.:/}~*-])(?:/|~/|[A-Za-z]:\\)(?:[^\s/\\'\":,]+[/\\])+(?=[^\s/\\'\":,])"
)
_LEAST_SECRET = 8
"""Characters of a value that is masked within a text: shorter ones are words and numbers."""


def masked(value: object) -> Any:
    """Replace secrets by `***`, in mappings and lists at any depth.

    Names and structure stay.
    """
    if isinstance(value, Mapping):
        return {name: _masked_entry(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [masked(item) for item in value]
        # An argument of a command and its value may be two entries: `--token`, `VALUE`.
        for position, (before, item) in enumerate(zip(value, items[1:], strict=False), 1):
            if (
                isinstance(before, str)
                and before.startswith("-")
                and _is_secret(before)
                and isinstance(item, str)
            ):
                items[position] = MASK
        return items if isinstance(value, list) else tuple(items)
    return _masked_text(value) if isinstance(value, str) else value


def shareable(document: Mapping[str, object]) -> dict[str, Any]:
    """Mask a study file and cut the folders of its machine."""
    elsewhere = {name: item for name, item in document.items() if name not in ("path", "storage")}
    shared: dict[str, Any] = masked(elsewhere)
    for name in ("trainer", "environment", "algorithms"):
        if name in shared:
            shared[name] = without_folders(shared[name])
    return shared


def variables_by_name(value: object) -> Any:
    """Keep only the name of every environment variable of a trainer.

    The person who runs the trainer has the values in the environment.
    """
    if isinstance(value, Mapping):
        return {
            name: dict.fromkeys(item)
            if name == VARIABLES and isinstance(item, Mapping)
            else variables_by_name(item)
            for name, item in value.items()
        }
    return [variables_by_name(item) for item in value] if isinstance(value, list) else value


def without_folders(value: object) -> Any:
    """Cut absolute paths to their last part, `.../train.py`.

    Search spaces stay as they are.
    """
    if isinstance(value, Mapping):
        return {
            name: item if name == "space" else without_folders(item) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(without_folders(item) for item in value)
    if not isinstance(value, str):
        return value
    # One path, blanks in it or not.
    if PurePath(value).is_absolute() and len(PurePath(value).parts) > 2:
        return f".../{PurePath(value).name}"
    return _FOLDER.sub(".../", value)


def without_values(text: str, secrets: Collection[str]) -> str:
    """Replace each of `secrets` in a text by `***`.

    Values under 8 characters stay: they may be words.
    """
    # The longest first: one may be a part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, MASK)
    return text


def _masked_entry(name: str, value: object) -> Any:
    if name == VARIABLES and isinstance(value, Mapping):
        return {name: None if content is None else MASK for name, content in value.items()}
    if name == VARIABLES or (
        _is_secret(name) and isinstance(value, str | int) and not isinstance(value, bool)
    ):
        return MASK
    return masked(value)


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name.lstrip("-")) is not None


def _masked_text(text: str) -> str:
    """Mask secrets in a text, such as a command line.

    Secrets are the values of secret flags, and the users in addresses.
    """

    def hidden(match: re.Match[str]) -> str:
        return match["place"] + MASK if _is_secret(match["flag"] or match["name"]) else match[0]

    return _ADDRESS.sub(lambda match: match["scheme"] + MASK + "@", _ARGUMENT.sub(hidden, text))
