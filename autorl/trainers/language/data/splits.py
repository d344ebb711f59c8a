"""Holds prompts out of training, half for each seed role."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.types import InputError


@dataclass(frozen=True)
class HeldOut:
    """Rows that no run is trained on.

    Attributes:
        halves: every held-out prompt (the text itself where it has none), as `comparable` writes
            it, in random order, and the half it belongs to: 0 for tuning seeds, 1 for test seeds.
        prompts: those that evaluations sample from, one of each half in turn, beginning with tuning
            seeds.
    """

    halves: Mapping[str, int]
    prompts: tuple[str, ...]


def comparable(text: str) -> str:
    """Write a text so that equal prompts are equal texts.

    Blanks, letter case and Unicode form do not make it another prompt.

    A blank counts only between two words: `3 + 4 ?` is `3+4?`, and `1 23` is not `12 3`.
    """
    # twice: casefold takes some letters apart (U+01F0); not NFKC, to which x² is x2
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    words = re.sub(r"\s+", " ", folded).strip()
    # a text of blanks alone stays itself, not the empty text
    return re.sub(r"(?<!\w) | (?!\w)", "", words) or text


def hold_out_share(
    learnt: Sequence[str], sampled: Sequence[str], share: float, rng: np.random.Generator
) -> HeldOut:
    """Hold out a share of the prompts of the data sets.

    One is learnt from, the other is sampled from, and a prompt is held out of both. To hold out
    just that share of either, three groups are drawn from one after the other: prompts that are
    only learnt from, those that are in both, and those that are only sampled from. Each half has
    as many prompts of either, give or take one.

    Args:
        learnt: a prompt for each row that is trained on.
        sampled: prompts to sample from; the same as `learnt` where there is one data set.
        share: of the different ones, in 0..1.
        rng: decides which.

    Raises:
        InputError: the share of either is fewer than two prompts, one for each half.
    """
    # not sets, whose order changes with the hash seed
    learnt_once = dict.fromkeys(learnt)
    sampled_once = dict.fromkeys(sampled)
    groups = (
        [key for key in learnt_once if key not in sampled_once],
        [key for key in learnt_once if key in sampled_once],
        [key for key in sampled_once if key not in learnt_once],
    )
    # each data set gets its exact count: three shares, rounded one by one, could miss it
    of_both = round(share * len(groups[1]))
    only_learnt = _count(len(learnt_once), share) - of_both
    only_sampled = _count(len(sampled_once), share) - of_both
    held = [
        group[index]
        for group, count in zip(groups, (only_learnt, of_both, only_sampled), strict=True)
        for index in rng.permutation(len(group))[:count]
    ]
    # prompts sampled from begin at `only_learnt`: they alternate as `policy_metrics.half` reads
    halves = {key: (place - only_learnt) % 2 for place, key in enumerate(held)}
    return HeldOut(halves, tuple(held[only_learnt:]))


def hold_out_all(prompts: Sequence[str], rng: np.random.Generator) -> HeldOut:
    """Hold out all of a data set, in random order and halves.

    Raises:
        InputError: there are not two different prompts, one for each half.
    """
    different = list(dict.fromkeys(prompts))
    _count(len(different), 1.0)
    held = [different[index] for index in rng.permutation(len(different))]
    return HeldOut({key: place % 2 for place, key in enumerate(held)}, tuple(held))


def _count(different: int, share: float) -> int:
    """Return how many of so many different prompts are held out."""
    count = round(share * different)
    if count < 2:
        raise InputError(
            f"{different} different prompts give {count} held-out ones; at least two are needed",
            key="environment.kwargs.held_out",
        )
    return count
