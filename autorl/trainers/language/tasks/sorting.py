"""`sort-verifiable`: sort six digits, a reward that can be checked.

The reference policy has half learnt it. A study must find out here how to train at all, not how far
to trust a proxy: the learning rate has a cliff, and three metrics rank configurations differently
(the likeliest answer right, one sampled answer right, one of eight sampled answers right). The
reward in training is measured at the sampling temperature: it ranks temperatures wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autorl.core.numbers import check_number
from autorl.core.seeds import digest
from autorl.trainers.language.contract import Built, Task
from autorl.trainers.language.policy_metrics import checked_measures
from autorl.trainers.language.tasks.tiny_models import EOS, SPECIAL, stored, write_reference

WORDS = (*"0123456789", ">")
_PROMPTS = 2048
_HELD_OUT = 1024


def answer(prompt: str) -> list[str]:
    """Return the digits of `3 1 2 >` in order."""
    # one digit a word, so words sort as numbers
    return sorted(word for word in prompt.split() if word != ">")


def exact(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Verify completions: 1.0 for the sorted digits and nothing else, 0.0 elsewhere."""
    return [
        float(text.split() == answer(prompt))
        for prompt, text in zip(prompts, completions, strict=True)
    ]


def position(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Return the share of places with the right digit.

    It is a process reward.
    """
    shares = []
    for prompt, text in zip(prompts, completions, strict=True):
        digits = answer(prompt)
        # not strict: a short answer is wrong at the places it lacks, a long one at none
        right = sum(digit == word for digit, word in zip(digits, text.split(), strict=False))
        shares.append(right / len(digits))
    return shares


def steps(prompts: Sequence[str], completions: Sequence[str]) -> list[list[float]]:
    """Return process rewards: a value for each word.

    It is 1.0 if the place of the word holds the right digit, else 0.0.
    """
    rewards = []
    for prompt, text in zip(prompts, completions, strict=True):
        digits = answer(prompt)
        rewards.append(
            [
                float(place < len(digits) and word == digits[place])
                for place, word in enumerate(text.split())
            ]
        )
    return rewards


def reward(process: float, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Return the training signal: exact + process * position."""
    shares = position(prompts, completions)
    return [
        verified + process * share
        for verified, share in zip(exact(prompts, completions), shares, strict=True)
    ]


class SortVerifiable(Task):
    """The task `sort-verifiable`, described in the module.

    Options:
        digits: how many there are to sort.
        process: weight of the share of right places in the training signal.
        sft_steps: supervised steps of the reference policy; more of them leave less to learn.
    """

    name = "sort-verifiable"
    options: Mapping[str, Any] = MappingProxyType({"digits": 6, "process": 0.0, "sft_steps": 55})
    training = "reward"
    selection = "exact"
    report = "exact"
    verifiable = True
    signals = ("reward", "exact", "position")
    probed = ("greedy", "pass_at_8")

    def check_values(self, chosen: Mapping[str, object]) -> None:
        check_number(chosen["digits"], "environment.kwargs.digits", 2, 20, whole=True)
        check_number(chosen["process"], "environment.kwargs.process", 0)
        check_number(chosen["sft_steps"], "environment.kwargs.sft_steps", 1, whole=True)

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        chosen = self.resolved(options)
        digits = chosen["digits"]
        made, saved = stored(
            *(folder, self.name, instance),
            {name: chosen[name] for name in ("digits", "sft_steps")},
            lambda target: _write(target, instance, digits, chosen["sft_steps"]),
        )
        longest = digits + 3  # an end, and room for being wrong
        return self.built(
            reference=made,
            prompts=tuple(saved["prompts"]),
            held_out=tuple(saved["held_out"]),
            max_completion=longest,
            signals={
                "reward": partial(reward, chosen["process"]),
                "exact": exact,
                "position": position,
            },
            probe=partial(checked_measures, right=exact, tries=8, longest=longest),
        )


SORT = SortVerifiable()


def problems(instance: int, digits: int, n: int) -> list[str]:
    """Draw n different prompts, a function of the instance.

    There are fewer if there are not that many.
    """
    rng = np.random.Generator(np.random.PCG64(digest(instance, f"sorting {digits}")))
    count = min(n, 10**digits)
    prompts: dict[str, None] = {}
    while len(prompts) < count:
        rows = rng.integers(10, size=(n, digits))
        # a dict, not a set: the order of the draw whatever the hash seed
        prompts.update(dict.fromkeys(" ".join([*map(str, row), ">"]) for row in rows))
    return list(prompts)[:count]


def _write(target: Path, instance: int, digits: int, steps: int) -> dict[str, object]:
    """Write reference policy and tokenizer, and return the problems."""
    drawn = problems(instance, digits, _PROMPTS + _HELD_OUT)
    # two digits have 100 problems only: the same share of them is held out
    held = len(drawn) * _HELD_OUT // (_PROMPTS + _HELD_OUT)
    held_out = drawn[:held]
    prompts = drawn[held:]
    number = {word: index for index, word in enumerate(WORDS, start=len(SPECIAL))}
    rows = [
        [*(number[word] for word in (*prompt.split(), *answer(prompt))), EOS] for prompt in prompts
    ]
    fitting: dict[str, Any] = {"lr": 2e-3, "given": digits + 1, "cycle": False}
    # a constant rate, so that fewer steps are the beginning of more
    write_reference(target, WORDS, rows, steps, instance, prefix="sorting ", **fitting)
    return {"prompts": prompts, "held_out": held_out}
