"""Which prompts of a user's data are held out of training, and which seed role is evaluated on each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autorl.types import InputError


@dataclass(frozen=True)
class HeldOut:
    """What nothing is trained on.

    Attributes:
        halves: every held-out prompt (the text itself where it has none), as `comparable` writes it, in random order,
            and the half it belongs to: 0 for tuning seeds, 1 for test seeds.
        prompts: those that evaluations sample from, one of each half in turn, beginning with tuning seeds.
    """

    halves: Mapping[str, int]
    prompts: tuple[str, ...]


def comparable(text: str) -> str:
    """Write a text without what does not make it another one: blanks, letter case, Unicode form.

    A blank counts only between two words: `3 + 4 ?` is `3+4?`, and `1 23` is not `12 3`.
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    words = re.sub(r"\s+", " ", folded).strip()
    return re.sub(r"(?<!\w) | (?!\w)", "", words) or text


def draw(
    data: Sequence[str], asked: Sequence[str], share: float, rng: np.random.Generator
) -> HeldOut:
    """Hold out `share` of the prompts of both, the same ones wherever they occur.

    Prompts that only the data, both, or only the prompts to sample from have are drawn one after the other, so that of
    the data and of those to sample from just that share is held out, and each half has as many of either, give or take
    one.

    Args:
        data: a prompt for each row that is trained on.
        asked: prompts to sample from; the same as `data` where there is one data set.
        share: of the different ones, in 0..1.
        rng: decides which.

    Raises:
        InputError: of either there are not two, one for each half.
    """
    learnt, sampled = dict.fromkeys(data), dict.fromkeys(asked)
    parts = (
        [key for key in learnt if key not in sampled],
        [key for key in learnt if key in sampled],
        [key for key in sampled if key not in learnt],
    )
    shared = round(share * len(parts[1]))
    counts = (_count(len(learnt), share) - shared, shared, _count(len(sampled), share) - shared)
    held = [
        part[index]
        for part, count in zip(parts, counts, strict=True)
        for index in rng.permutation(len(part))[:count]
    ]
    return HeldOut(
        {key: (place - counts[0]) % 2 for place, key in enumerate(held)}, tuple(held[counts[0] :])
    )


def whole(given: Sequence[str], rng: np.random.Generator) -> HeldOut:
    """Hold out all of a data set, in the order and the halves that `rng` decides.

    Raises:
        InputError: there are not two different prompts, one for each half.
    """
    different = list(dict.fromkeys(given))
    _count(len(different), 1.0)
    held = [different[index] for index in rng.permutation(len(different))]
    return HeldOut({key: place % 2 for place, key in enumerate(held)}, tuple(held))


def _count(different: int, share: float) -> int:
    count = round(share * different)
    if count < 2:
        raise InputError(
            f"{different} different prompts give {count} held-out ones; at least two are needed",
            key="environment.kwargs.held_out",
        )
    return count
