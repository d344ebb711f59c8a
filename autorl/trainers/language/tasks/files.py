"""The task `files`: a model, data and rewards of the user's own.

    environment:
      id: files
      kwargs:
        model: models/base                # a folder, or organisation/name[@revision]
        data: data/prompts.jsonl          # .jsonl .json .csv .parquet, save_to_disk, or
                                          # organisation/name:split
        columns: {prompt: question}       # where names differ
        held_out: 0.2                     # a share of the prompts, drawn by `instance`, or data
        max_completion: 64                # tokens
        signals: {proxy: "my_rewards:proxy", gold: "my_rewards:gold", judge: models/reward}
        training: proxy                   # `data` where a method learns from the data alone
        selection: gold                   # a signal, or another metric of an evaluation
        report: judge

The three names have no default: what a policy is trained on, what a study selects by and what it
reports are decisions. Nothing is downloaded unless HF_HUB_OFFLINE=0 is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from autorl.core.numbers import check_number
from autorl.core.plain_text import shown
from autorl.core.seeds import digest
from autorl.core.types import InputError, SeedRole
from autorl.trainers.language.contract import Built, Signal, Task
from autorl.trainers.language.data.rows import chat_renderer, local
from autorl.trainers.language.data.user_data import (
    SHARE,
    UserData,
    completions_of,
    labelled_of,
    pairs_of,
)
from autorl.trainers.language.models import load_tokenizer, model_folder
from autorl.trainers.language.policy_metrics import JUDGED, METRICS, checked_measures, half
from autorl.trainers.language.rewards.user_signals import (
    RewardModel,
    columns_read,
    function_signal,
    is_function,
)

DATA = "data"
"""The training signal of a method that has none."""
_KEY = "environment.kwargs"
_DATA_SETS = ("data", "prompts", "held_out")
_NAMED_TEXTS = "a mapping of names to texts"
_EXPECTED: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("model", "data"), (str, "a folder, a file or a name on a hub")),
    **dict.fromkeys(("prompts", "subset", "groups"), (str | None, "a text")),
    **dict.fromkeys(("columns", "signals"), (Mapping, _NAMED_TEXTS)),
}
_MOST = 512  # held-out pairs, or completions, an evaluation reads


class Files(Task):
    """The task `files`, described in the module.

    Held-out rows are held out of all training data: with a share, of the prompts of `data` and
    `prompts` together; with a data set of its own, rows of `data` and `prompts` whose prompt it has
    too are dropped, not refused. All of a prompt's rows are for training, for tuning seeds or for
    test seeds. Prompts that differ by blanks, letter case or Unicode form alone are one prompt,
    asked as it is first written.

    Selecting by the training signal is refused by the trainer, unless the study says
    `allow_proxy_selection: true`: a checked answer is honestly both.

    Further options:
        checked: a signal that is 1 for a right answer, for the metrics `greedy` and `pass_at_K`.
        pass_at: K, completions of a prompt of which one is to be right.
        near_duplicates: `note` or `drop` prompts that share most words with a held-out one.
        prompts: a data set of prompts to sample from instead of those of the data, or for data that
            has none (`text`).
        subset: of a data set on a hub that has several.
        groups: the column that says a prompt's group; signals are measured on each of them too.
    """

    name = "files"
    options: Mapping[str, Any] = MappingProxyType(
        {
            **dict.fromkeys(
                (
                    *("model", "data", "prompts", "subset", "groups"),
                    *("training", "selection", "report", "checked"),
                )
            ),
            "pass_at": 8,
            "near_duplicates": "note",
            "columns": MappingProxyType({}),
            "held_out": SHARE,
            "max_completion": 64,
            "signals": MappingProxyType({}),
        }
    )

    def __init__(
        self,
        signals: Sequence[str] = (),
        training: str = "",
        selection: str = "",
        report: str = "",
        probed: Sequence[str] = (),
    ) -> None:
        self.signals = tuple(signals)
        self.probed = probed
        self.training = training
        self.selection = selection
        self.report = report

    def with_options(self, options: Mapping[str, object]) -> Files:
        """Return the task with the three names the user has given.

        Raises:
            InputError: one of them is missing.
        """
        names = {name: options.get(name) for name in ("training", "selection", "report")}
        for name, value in names.items():
            if not isinstance(value, str):
                raise InputError(
                    "not given: the task files has none of its own, name a signal",
                    key=f"{_KEY}.{name}",
                )
        # `check` says what is wrong with another value
        signals = options.get("signals", {})
        listed = tuple(signals) if isinstance(signals, Mapping) else ()
        tries = options.get("pass_at", self.options["pass_at"])
        probed = ("greedy", f"pass_at_{tries}") if options.get("checked") else ()
        return Files(listed, **{name: str(value) for name, value in names.items()}, probed=probed)

    def check(self, options: Mapping[str, object]) -> Sequence[str]:
        """Do everything but train.

        Files are read, reward models loaded, and each signal is called once.
        """
        built = self.build(0, Path(), **options)
        _try_signals(built)
        rows_by_kind = {
            # every kind of data has prompts, or `UserData` refuses it
            "prompts": True,
            "pairs": built.pairs,
            "labelled": built.labelled,
            "completions": built.completions,
        }
        return [kind for kind, rows in rows_by_kind.items() if rows]

    def notes(self, options: Mapping[str, object]) -> Sequence[str]:
        """Return what is noteworthy of the data, whatever the instance."""
        chosen = self.resolved(options)
        data = _user_data(chosen, model_folder(chosen["model"], f"{_KEY}.model"), 0)
        return (*data.notes, *data.near())

    def build(self, instance: int, folder: Path, **options: Any) -> Built:
        """Build the task's instance.

        Nothing is cached: the data is read again in each process.
        """
        chosen = self.resolved(options)
        self._check_names(chosen["signals"])
        reference = model_folder(chosen["model"], f"{_KEY}.model")
        data = _user_data(chosen, reference, instance)
        tokenizer = lru_cache(partial(load_tokenizer, reference))
        signals = {
            name: _signal(name, source, data, tokenizer)
            for name, source in chosen["signals"].items()
        }
        probe = None
        if chosen["checked"]:
            probe = partial(
                checked_measures,
                right=signals[chosen["checked"]],
                tries=chosen["pass_at"],
                longest=chosen["max_completion"],
            )
        return self.built(
            reference=reference,
            prompts=data.prompts,
            held_out=data.held_out,
            max_completion=chosen["max_completion"],
            signals=signals,
            pairs=pairs_of(data.train),
            held_out_pairs=pairs_of(data.tuning)[:_MOST],
            test_pairs=pairs_of(data.test)[:_MOST],
            completions=completions_of(data.train),
            labelled=labelled_of(data.train),
            held_out_completions=completions_of(data.tuning)[:_MOST],
            test_completions=completions_of(data.test)[:_MOST],
            groups=_groups(chosen["groups"], data),
            notes=data.notes,
            probe=probe,
        )

    def check_values(self, chosen: Mapping[str, Any]) -> None:
        for name, (kind, expected) in _EXPECTED.items():
            if not isinstance(chosen[name], kind):
                raise InputError(f"expected {expected}, got {chosen[name]!r}", key=f"{_KEY}.{name}")
        for name in ("columns", "signals"):
            if not all(isinstance(value, str) for value in chosen[name].values()):
                raise InputError(
                    f"expected {_NAMED_TEXTS}, got {chosen[name]!r}", key=f"{_KEY}.{name}"
                )
        held = chosen["held_out"]
        if not isinstance(held, str) and not (isinstance(held, float) and 0 < held < 1):
            raise InputError(
                f"expected a share in 0..1 or a data set, got {held!r}", key=f"{_KEY}.held_out"
            )
        for name in ("max_completion", "pass_at"):
            check_number(chosen[name], f"{_KEY}.{name}", 1, whole=True)
        checked = (None, *chosen["signals"])
        for name, allowed in {"near_duplicates": ("note", "drop"), "checked": checked}.items():
            if chosen[name] not in allowed:
                names = ", ".join(filter(None, allowed))
                message = f"unknown {chosen[name]!r}; allowed: {names}"
                raise InputError(message, key=f"{_KEY}.{name}")

    def _check_names(self, signals: Mapping[str, object]) -> None:
        for name in signals:
            # of two values under one name an evaluation would keep one
            if name in (*METRICS, *self.probed, DATA):
                raise InputError(
                    f"{name!r} is a metric of every task: give the signal another name",
                    key=f"{_KEY}.signals",
                )
        names_of = {
            "training": (*signals, DATA),
            "selection": (*signals, *METRICS, *self.probed),
            "report": (*signals, *METRICS, *self.probed),
        }
        for name, allowed in names_of.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"unknown metric {getattr(self, name)!r}; allowed: {', '.join(allowed)}",
                    key=f"{_KEY}.{name}",
                )
        if not {self.selection, self.report} & set(signals):
            for name in ("selection", "report"):
                if getattr(self, name) in JUDGED:
                    raise InputError(
                        f"{getattr(self, name)} is by a signal that selects or reports: name one "
                        "of the two",
                        key=f"{_KEY}.{name}",
                    )


FILES = Files()


def pinned(kwargs: Mapping[str, object], folder: str) -> dict[str, Any]:
    """Return a study's arguments with paths below its folder made absolute.

    The study can then be resumed anywhere.
    """

    def absolute(value: object, exists: Callable[[str], bool]) -> Any:
        if not isinstance(value, str) or Path(value).expanduser().is_absolute():
            return value
        below = str(Path(folder).resolve() / value)
        return below if exists(below) else value

    changed = {
        name: absolute(kwargs[name], lambda below: local(below) is not None)
        for name in ("model", *_DATA_SETS)
        if name in kwargs
    }
    signals = kwargs.get("signals")
    if isinstance(signals, Mapping):
        # `rewards:gold` is a function, also where there is a folder `rewards`
        changed["signals"] = {
            name: absolute(source, os.path.exists) for name, source in signals.items()
        }
    return {**kwargs, **changed}


def _user_data(chosen: Mapping[str, Any], reference: Path, instance: int) -> UserData:
    """Read and split the data sets that the options name."""
    render = chat_renderer(partial(load_tokenizer, reference))
    # by the instance, not the seed: all runs of a study share what is held out
    rng = np.random.default_rng(digest(instance, "held-out prompts"))
    read = columns_read(chosen["signals"], f"{_KEY}.signals")
    if read is not None:
        read |= {chosen["groups"]} - {None}
    return UserData(chosen, render, rng, read)


def _groups(column: str | None, data: UserData) -> dict[str, str]:
    """Read the group of each held-out prompt.

    Raises:
        InputError: a prompt has none, or no prompt of a group is for seeds of a role.
    """
    if column is None:
        return {}
    key = f"{_KEY}.groups"
    rows = dict(data.rows)
    groups = {prompt: str(rows[prompt].get(column) or "") for prompt in data.held_out}
    for prompt, group in groups.items():
        if not group:
            raise InputError(f"no {column!r} in the row of the prompt {shown(prompt)}", key=key)
    roles: tuple[SeedRole, SeedRole] = ("tuning", "test")
    for group, role in product(sorted({*groups.values()}), roles):
        if group not in {groups[prompt] for prompt in half(data.held_out, role)}:
            message = f"no held-out prompt of {group!r} is for {role} seeds: hold out more"
            raise InputError(message, key=key)
    return groups


def _try_signals(built: Built) -> None:
    """Call every signal on two held-out prompts.

    The answers are those of the data where it has any.
    """
    answers = (
        [completion for _, completion in built.completions]
        or [better for _, better, _ in built.pairs]
        or built.prompts
    )
    prompts = list(built.held_out[:2])
    for signal in built.signals.values():
        signal(prompts, [answers[number % len(answers)] for number in range(len(prompts))])


def _signal(name: str, source: str, data: UserData, tokenizer: Callable[[], Any]) -> Signal:
    key = f"{_KEY}.signals.{name}"
    if is_function(source):
        return function_signal(source, data.rows, key, data.chats, tokenizer)
    return RewardModel(model_folder(source, key), key)
