"""Reward signals of a user: Python functions, also as TRL calls them, and reward models in a folder."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autorl.rlhf.functions import import_function, numbers
from autorl.rlhf.task import Signal
from autorl.types import InputError

_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def is_function(source: str) -> bool:
    """Whether a signal is `module:function` rather than a reward model."""
    return ":" in source and not Path(source).expanduser().exists()


def function_signal(source: str, rows: Iterable[tuple[str, Mapping[str, Any]]], key: str) -> Signal:
    """The function `module:function` as a signal.

    It is called with `prompts` and `completions`, lists of texts, and returns a number for each. Any further parameter
    is a column of the data, looked up by prompt (`def exact(prompts, completions, answer)`); one with a default keeps
    that where the data has no such column. With `**rest` it gets every column that has one value for each prompt, like
    a reward function of TRL. It may be asynchronous, as there.

    Args:
        source: `module:function`.
        rows: prompt and columns of each row of the data; of every prompt it will be called with.
        key: of the study file, for errors.

    Raises:
        InputError: it cannot be imported, does not take completions, or takes a column that is not there, has two
            values for one prompt, or none for some.
    """
    function = import_function(source, key)
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind in _KINDS]
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    if "completions" not in names:
        if len(names) != 2:
            raise InputError(
                f"{source} must take prompts and completions, not ({', '.join(names)})", key=key
            )
        return numbers(function, source, key)
    further = {
        one.name: one.default is one.empty
        for one in parameters
        if one.kind in _KINDS and one.name not in ("prompts", "completions")
    }
    columns = _columns(rows, source, key, further, takes_all)
    for name, needed in further.items():
        if needed and name not in columns:
            raise InputError(f"{source} takes {name!r}, and the data has no such column", key=key)

    def score(prompts: Sequence[str], completions: Sequence[str]) -> Any:
        given: dict[str, Any] = {
            name: [table[prompt] for prompt in prompts] for name, table in columns.items()
        }
        if takes_all or "prompts" in names:
            given["prompts"] = list(prompts)
        return function(completions=list(completions), **given)

    return numbers(score, source, key)


class RewardModel:
    """A scalar reward model in a folder, such as `trl/reward` trains, as a signal.

    Raises:
        InputError: its head has more than one output.
    """

    def __init__(self, folder: Path, key: str) -> None:
        import torch

        from autorl.rlhf.models import load_reward_model, load_tokenizer

        with torch.random.fork_rng(devices=[]):
            self.model, self.tokenizer = load_reward_model(folder), load_tokenizer(folder)
        if self.model.config.num_labels != 1:
            raise InputError(
                f"{folder} is no reward model: expected one output, its head has {self.model.config.num_labels}",
                key=key,
            )
        if self.model.config.pad_token_id is None:
            self.model.config.pad_token_id = self.tokenizer.pad_token_id

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        from autorl.rlhf.measures import rewards

        return rewards(self.model, self.tokenizer, list(zip(prompts, completions, strict=True)))


def _columns(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    source: str,
    key: str,
    named: Collection[str],
    takes_all: bool,
) -> dict[str, dict[str, Any]]:
    """Columns as prompt -> value: those named, or all, that have one value for each prompt."""
    found: dict[str, dict[str, Any]] = {}
    prompts: set[str] = set()
    left_out = {"prompts", "completions"}  # are given anyway
    for prompt, row in rows if named or takes_all else ():
        prompts.add(prompt)
        for name in row if takes_all else named:
            if name not in row or name in left_out:
                continue
            table = found.setdefault(name, {})
            if table.setdefault(prompt, row[name]) != row[name]:
                left_out.add(name)
                if name in named:
                    raise InputError(
                        f"{source} takes {name!r}, which has two values for the prompt {prompt!r}",
                        key=key,
                    )
    for name, table in found.items():
        if prompts - set(table):
            left_out.add(name)
            if name in named:
                raise InputError(
                    f"{source} takes {name!r}, which has no value for the prompt {min(prompts - set(table))!r}",
                    key=key,
                )
    return {name: table for name, table in found.items() if name not in left_out}
