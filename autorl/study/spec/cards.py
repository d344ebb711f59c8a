"""Cards: signed files of a configuration with its test scores.

`docs/cards.md` says what a card holds, and what its signature proves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from autorl.core.types import InputError
from autorl.space import Dumper, read_document
from autorl.store.outputs import MARK
from autorl.store.signing import is_signed, key_file, sign
from autorl.study.spec.sections import Number, Section
from autorl.trainers.info import Preset

_PURPOSE = "card"
_OF_SIGNATURE = ("sha256", "signature")
_ENVIRONMENT = ("n_envs", "normalize", "wrappers", "kwargs")


class Score(Section):
    """The test scores of a card, in the metric's own direction."""

    objective: str
    """What the numbers are, in words."""
    iqm: Number
    interval: tuple[Number, Number] | None
    """95 % percentile bootstrap interval of `iqm`, as the result of the study printed it."""
    seeds: dict[int, Number]
    """The score of each test run, by its seed (with tasks, its pair)."""
    failed: int


class Tuning(Section):
    """The tuning score of a card: optimistic, it was chosen by it."""

    score: Number
    seeds: list[int]


class Card(Section):
    """The content of a card."""

    card: Literal[1]
    name: str
    score: Score
    tuning: Tuning
    step: int
    """The step that the score is read at."""
    schedule: dict[int, dict[str, Any]]
    """The configuration, or several by the step they begin at."""
    study: dict[str, Any]
    """The study file that trains it, but for `optimizer` and `budget`."""
    made_by: dict[str, Any]
    """Versions and hashes of the session that tested it, and of the user's files."""
    log: dict[str, Any]
    """Number of events, and the hash of the last one: the end of the study's chain."""
    cost: dict[str, Number]
    sha256: str = ""
    signature: str | None = None


def read_card(file: str | Path) -> Card:
    """Read a card, signed or not.

    Raises:
        InputError: it cannot be read, or is no card.
    """
    document = read_document(file)
    try:
        return Card.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise document.error(f"is no card of `autorl card` ({first['msg']})", place) from None


def signed_text(card: Mapping[str, object]) -> str:
    """Write a card as YAML, with hash and signature."""
    content = {name: value for name, value in card.items() if name not in _OF_SIGNATURE}
    data = _bytes(Card.model_validate(content))
    marks = {"sha256": hashlib.sha256(data).hexdigest(), "signature": sign(_PURPOSE, data)}
    text = yaml.dump({**content, **marks}, Dumper=Dumper, sort_keys=False, width=110)
    return f"# {MARK} card\n{text}"


def check_signature(card: Card, file: str | Path) -> None:
    """Refuse a card that this installation did not sign as it is.

    Raises:
        InputError: it was edited, or signed elsewhere.
    """
    data = _bytes(card)
    if hashlib.sha256(data).hexdigest() != card.sha256:
        problem = "was edited since it was signed"
    elif card.signature is None or not is_signed(_PURPOSE, data, card.signature):
        problem = f"is not signed by this installation ({key_file()})"
    else:
        return
    advice = "--unsigned trains it all the same: a card can name modules and commands to run"
    raise InputError(f"{problem}; {advice}", file=str(file))


def preset_of(card: Card, trainer: str, file: str | Path) -> Preset:
    """Return a card's configuration as defaults of a study with this trainer.

    Raises:
        InputError: the card is of another trainer, or holds a schedule.
    """
    of_card = card.study.get("trainer", {})
    if of_card.get("name") != trainer:
        message = f"is of {of_card.get('name', 'several trainers')}, the study trains {trainer}"
        raise InputError(message, file=str(file))
    if len(card.schedule) != 1:
        raise InputError("holds a schedule: a preset is one configuration", file=str(file))
    environment = card.study.get("environment", {})
    return Preset(
        card.name,
        card.study["fidelity"]["steps"],
        {**of_card.get("kwargs", {}), **card.schedule[0]},
        environment={name: environment[name] for name in _ENVIRONMENT if name in environment},
    )


def _bytes(card: Card) -> bytes:
    """Return what is signed: the content, whatever its layout."""
    content = card.model_dump(mode="json", exclude=set(_OF_SIGNATURE))
    return json.dumps(content, sort_keys=True).encode()
