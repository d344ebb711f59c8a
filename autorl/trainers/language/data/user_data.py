"""A user's data sets, split for training and for both seed roles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from autorl.core.plain_text import counted, shown
from autorl.core.types import InputError
from autorl.trainers.language.contract import DATA_NOTE, Pair
from autorl.trainers.language.data.rows import (
    Example,
    HeldOut,
    Reader,
    hold_out_all,
    hold_out_share,
    near_duplicates,
    read_rows,
)

SHARE = 0.2
"""How much is held out, unless said otherwise."""
_KEY = "environment.kwargs"


class UserData:
    """The training, tuning and test rows of a study's data sets.

    One set of prompts is held out of all of them: a share of the prompts of `data` and `prompts`
    together, or the data set `held_out`. Rows of such a prompt are left out of training wherever
    they stand, so a held-out set may overlap with the data it is to judge.

    Args:
        options: of the task. `data`: the data set to learn from; `prompts`: one to sample from,
            None for those of the data; `held_out`: a share of the prompts, or a data set of its
            own; `columns`: our name of a column -> the data's, where they differ; `subset`: of a
            data set on a hub that has several.
        render: as `chat_renderer` makes it.
        rng: draws what is held out.
        read: columns that rewards read, None for all.

    Attributes:
        train, tuning, test: examples to learn from, and those of each half of the held-out prompts.
        prompts, held_out: prompts to sample from, in training and in evaluations.
        rows: each prompt that completions are sampled for, with its columns.
        chats: the messages of a prompt, by its text, where it was given so.
        notes: how many rows are left out, how many pairs have equal answers, and which columns
            nothing reads.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        render: Callable[..., str],
        rng: np.random.Generator,
        read: Collection[str] | None = (),
    ) -> None:
        unread: dict[str, None] = {}

        def of(option: str, columns: Mapping[str, str]) -> list[Example]:
            source = options[option]
            if not isinstance(source, str):
                return []
            rows = read_rows(source, f"{_KEY}.{option}", options["subset"])
            reader = Reader(columns, render, source)
            if read is not None:
                meant = {*reader.names.values(), *read}
                unread.update(dict.fromkeys(name for name in rows[0] if name not in meant))
            return reader.examples(rows)

        examples = of("data", options["columns"])
        held_out = of("held_out", options["columns"])
        to_sample = of("prompts", {})
        held = _hold_out(options["held_out"], examples, held_out, to_sample, rng)
        self._drop = options["near_duplicates"] == "drop"
        self._by_key = {item.key: item for item in (*examples, *to_sample, *held_out)}
        self._held = list(held.halves)
        dropped = {*held.halves, *(self._near if self._drop else ())}
        self.train = [example for example in examples if example.key not in dropped]
        self.tuning, self.test = _halves(held, held_out or examples)
        sampled = to_sample or [*self.train, *self.tuning, *self.test]
        if not all(example.prompt for example in sampled):
            raise InputError(
                "a text has no prompt to sample from: name a data set of prompts",
                key=f"{_KEY}.prompts",
            )
        as_written: dict[str, str] = {}
        # the first spelling of a prompt is asked, that of the held-out set before all others
        for example in (*held_out, *examples, *to_sample):
            as_written.setdefault(example.key, example.identity)
        self.held_out = tuple(as_written[key] for key in held.prompts)
        # by key: a near duplicate of a held-out prompt is held out as well
        not_held = (example.prompt for example in sampled if example.key not in dropped)
        self.prompts = tuple(dict.fromkeys(not_held))
        if not self.prompts or not self.train:
            raise InputError(
                "nothing is left to train on: all of the data is held out too", key=f"{_KEY}.data"
            )
        # the columns of each prompt are those of the held-out data set where that has it
        held_out_keys = {example.key for example in held_out}
        shown = {*self.prompts, *self.held_out}
        trained = [item for item in (*examples, *to_sample) if item.key not in held_out_keys]
        self.rows = [
            (item.prompt, item.row) for item in (*trained, *held_out) if item.prompt in shown
        ]
        self.chats = {
            item.prompt: item.chat for item in (*examples, *to_sample, *held_out) if item.chat
        }
        left_out = _left_out([*examples, *to_sample], held_out)
        self.notes = (*left_out, *_equal_pairs(examples))
        if unread:
            self.notes += (f"{DATA_NOTE}nothing reads the columns {', '.join(unread)}",)

    @cached_property
    def _near(self) -> dict[str, tuple[str, str]]:
        """Texts of prompts near a held-out one, with its text, by key."""
        texts = {key: item.said for key, item in self._by_key.items()}
        near = near_duplicates([texts.pop(key) for key in self._held], texts.values())
        return {key: (text, near[text]) for key, text in texts.items() if text in near}

    def near(self) -> tuple[str, ...]:
        """Say how many prompts have most words of a held-out one.

        It compares every row, seconds for 100,000: once before a study, not in its runs.
        """
        if not self._near:
            return ()
        first, held = next(iter(self._near.values()))
        text = (
            f"{DATA_NOTE}more than half of a held-out prompt's words are in "
            f"{counted(len(self._near), 'prompt')} to train on, e.g. {shown(held)} in "
            f"{shown(first)}"
        )
        left_out = "left out" if self._drop else "not left out: `near_duplicates: drop`"
        return (f"{text}; {left_out}",)


def _hold_out(
    share: float | str,
    examples: Sequence[Example],
    held_out: Sequence[Example],
    to_sample: Sequence[Example],
    rng: np.random.Generator,
) -> HeldOut:
    """Hold out a share, or the data set given for it.

    Nothing can be sampled for a held-out text without a prompt. Then a share of `prompts` is held
    out too.
    """
    sampled = [example.key for example in to_sample]
    if not isinstance(share, str):
        learnt = [example.key for example in examples]
        return hold_out_share(learnt, sampled or learnt, share, rng)
    held = hold_out_all([example.key for example in held_out], rng)
    if not to_sample or all(example.prompt for example in held_out):
        return held
    # drawn from the rest: a prompt of the held-out set is out of training already
    free = [key for key in sampled if key not in held.halves]
    more = hold_out_share(free, free, SHARE, rng)
    return HeldOut({**held.halves, **more.halves}, more.prompts)


def pairs_of(examples: Sequence[Example]) -> tuple[Pair, ...]:
    """Return every pair of completions, with its prompt."""
    return tuple(
        (example.prompt, better, worse) for example in examples for better, worse in example.pairs
    )


def completions_of(examples: Sequence[Example]) -> tuple[tuple[str, str], ...]:
    """Return the completions that are not labelled as unwanted, to imitate."""
    return tuple(
        (example.prompt, example.completion)
        for example in examples
        # None is no label: such completions are to be imitated
        if example.completion is not None and example.label is not False
    )


def labelled_of(examples: Sequence[Example]) -> tuple[tuple[str, str, bool], ...]:
    """Return completions with whether they are wanted."""
    return tuple(
        (example.prompt, str(example.completion), example.label)
        for example in examples
        if example.label is not None
    )


def _halves(held: HeldOut, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Return the examples of tuning seeds and of test seeds.

    They come in the order of their prompts.
    """
    by_key: dict[str, list[Example]] = {key: [] for key in held.halves}
    for example in examples:
        if example.key in by_key:
            by_key[example.key].append(example)
    halves: tuple[list[Example], list[Example]] = ([], [])
    # in the random order of the draw: an evaluation that reads the first 512 reads a sample
    for key, half in held.halves.items():
        halves[half].extend(by_key[key])
    return halves


def _left_out(examples: Sequence[Example], held_out: Sequence[Example]) -> tuple[str, ...]:
    """Say how many rows have a prompt of the held-out data set.

    Nothing is said where none has.
    """
    held = {example.key for example in held_out}
    exact = {example.identity for example in held_out}
    left_out = [example for example in examples if example.key in held]
    if not left_out:
        return ()
    near = sum(example.identity not in exact for example in left_out)
    text = (
        f"{DATA_NOTE}{len(left_out)} of {len(examples)} rows have a held-out prompt and are left "
        "out of training"
    )
    if near:
        text += f"; {near} of them differ from it by blanks, letter case or Unicode form alone"
    return (text,)


def _equal_pairs(examples: Sequence[Example]) -> tuple[str, ...]:
    """Say how many pairs prefer an answer to itself, or nothing."""
    pairs = [pair for example in examples for pair in example.pairs]
    equal = sum(better.strip() == worse.strip() for better, worse in pairs)
    text = (
        f"{DATA_NOTE}{equal} of {len(pairs)} pairs have two equal answers, of which nothing can be "
        "learnt"
    )
    return (text,) if equal else ()
