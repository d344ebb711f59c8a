"""A user's reward signals: Python functions, and reward models in folders."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.trainers.language.contract import Signal
from autorl.trainers.language.models import load_reward_model, load_tokenizer
from autorl.trainers.language.sampling import model_rewards

# failures of a run with a kind of their own
_OF_THE_MACHINE = (MemoryError, OSError, FloatingPointError)
_WITH_A_NAME = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
_GIVEN = ("prompts", "completions", "completion_ids")


def is_function(source: str) -> bool:
    """Whether a signal is `module:function` rather than a reward model."""
    # a folder may have a colon in its name
    return ":" in source and not Path(source).expanduser().exists()


def import_function(name: str, key: str) -> Callable[..., Any]:
    """Import the function `module:function`.

    Raises:
        InputError: it cannot be imported, or is not a function.
    """
    module, _, attribute = str(name).partition(":")
    try:
        imported = getattr(importlib.import_module(module), attribute)
    # ValueError: a name without a module
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"cannot import {name!r}: expected `module:function` ({error})", key=key
        ) from error
    if not callable(imported):
        raise InputError(f"{name!r} is not a function", key=key)
    function: Callable[..., Any] = imported
    return function


class UserFunction:
    """A function of the user's, whose errors say where they come from.

    It is awaited if it is asynchronous.

    Args:
        source: what the user calls it, `module:function`.
        key: of the study file, for errors.
        function: of prompts and completions, n texts each; by default the one `source` names.
    """

    def __init__(self, source: str, key: str, function: Callable[..., Any] | None = None) -> None:
        self.function = function or import_function(source, key)
        self.source = source
        self.key = key

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[Any]:
        """Return the function's answer as a list.

        Raises:
            InputError: the function failed, or its answer is no list.
        """
        try:
            answer = self.function(prompts, completions)
            # TRL awaits reward functions too
            if inspect.isawaitable(answer):
                import asyncio  # takes 50 ms, of every command

                answer = asyncio.run(_awaited(answer))
            return list(answer)
        except (InputError, *_OF_THE_MACHINE):
            raise
        except Exception as error:
            message = f"{self.source} failed: {type(error).__name__}: {error}"
            if isinstance(error, TypeError):
                message += " (what is a text in the data comes as a text, messages as messages)"
            raise InputError(message, key=self.key) from error


class UserSignal(UserFunction):
    """A function of the user's that returns a number for each completion.

    None, a reward that does not apply, is NaN from here on, as in TRL.
    """

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        values = super().__call__(prompts, completions)
        if len(values) != len(completions):
            raise InputError(
                f"{self.source} returned {counted(len(values), 'number')} for "
                f"{counted(len(completions), 'completion')}",
                key=self.key,
            )
        return [self._number(value) for value in values]

    def _number(self, value: Any) -> float:
        if value is None:
            return math.nan
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            message = (
                f"{self.source} returned {value!r:.80}, expected a number for each completion, or "
                "None where the reward does not apply"
            )
            raise InputError(message, key=self.key)
        return number


# `asyncio.run` takes a coroutine, not whatever can be awaited
async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


def _parameters(source: str, key: str) -> tuple[dict[str, Any], bool]:
    """Return a function's parameters by default, and whether it takes others."""
    parameters = inspect.signature(import_function(source, key)).parameters.values()
    named = {item.name: item.default for item in parameters if item.kind in _WITH_A_NAME}
    return named, any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters)


def columns_read(signals: Mapping[str, str], key: str) -> set[str] | None:
    """Return the columns that functions among signals read, None for all."""
    read: set[str] = set()
    for name, source in signals.items():
        named, takes_all = (
            _parameters(source, f"{key}.{name}") if is_function(source) else ({}, False)
        )
        if takes_all:
            return None
        read |= named.keys()
    return read


def function_signal(
    source: str,
    rows: Iterable[tuple[str, Mapping[str, object]]],
    key: str,
    chats: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    tokenizer: Callable[[], Any] | None = None,
) -> Signal:
    """Make the function `module:function` a signal.

    It is called with `prompts` and `completions`, lists of texts, and returns a number for each.
    Prompts that are messages in the data come as such, and their completions as one message, like
    in TRL. `completion_ids`, where it is named, are the tokens of each completion's text.
    Any further parameter is a column of the data, looked up by prompt (`def exact(prompts,
    completions, answer)`); one with a default keeps that where the data has no such column. With
    `**rest` it gets every column that has one value for each prompt, like a reward function of
    TRL. It may be asynchronous, as there.

    Args:
        source: `module:function`.
        rows: prompt and columns of each row of the data; of every prompt it will be called with.
        key: of the study file, for errors.
        chats: the messages of a prompt, by its text.
        tokenizer: loads the policy's.

    Raises:
        InputError: it cannot be imported, does not take completions, or takes a column that is not
            there, has two values for one prompt, or none for some.
    """
    function = import_function(source, key)
    named, takes_all = _parameters(source, key)
    if "completions" not in named:
        # called by position: any two names will do
        if len(named) != 2:
            raise InputError(
                f"{source} must take prompts and completions, not ({', '.join(named)})", key=key
            )
        return UserSignal(
            source, key, lambda asked, texts: function(*_as_chat(asked, texts, chats))
        )
    rows = list(rows) if takes_all or len(named) > 1 else []
    every = {name for _, row in rows for name in row} if takes_all else set()
    columns: dict[str, Mapping[str, Any]] = {}
    for name in sorted({*named, *every} - {*_GIVEN}):
        values, problem = _column(name, rows)
        if not problem:
            columns[name] = values
        # a further column that is not whole is left out in silence, a named one is an error
        elif name in named and (values or named[name] is inspect.Parameter.empty):
            raise InputError(f"{source} takes {name!r}, {problem}", key=key)

    def score(prompts: Sequence[str], completions: Sequence[str]) -> Any:
        arguments: dict[str, Any] = {
            name: [values[prompt] for prompt in prompts] for name, values in columns.items()
        }
        asked, answers = _as_chat(prompts, completions, chats)
        if takes_all or "prompts" in named:
            arguments["prompts"] = asked
        if tokenizer and "completion_ids" in named:
            encoded = tokenizer()(list(completions), add_special_tokens=False)
            arguments["completion_ids"] = encoded["input_ids"]
        return function(completions=answers, **arguments)

    return UserSignal(source, key, score)


def _as_chat(
    prompts: Sequence[str], completions: Sequence[str], chats: Mapping[str, Sequence[Any]]
) -> tuple[list[Any], list[Any]]:
    """Return prompts and completions, as messages where the data has them so."""
    answers = [
        [{"role": "assistant", "content": text}] if prompt in chats else text
        for prompt, text in zip(prompts, completions, strict=True)
    ]
    return [chats.get(prompt, prompt) for prompt in prompts], answers


def _column(
    name: str, rows: Sequence[tuple[str, Mapping[str, object]]]
) -> tuple[dict[str, Any], str]:
    """Return a column's values by prompt, and what is wrong with it."""
    values: dict[str, Any] = {}
    for prompt, row in rows:
        # values are looked up by prompt: of two for one prompt none is right
        if name in row and values.setdefault(prompt, row[name]) != row[name]:
            return values, f"which has two values for the prompt {prompt!r}"
    if not values:
        return values, "and the data has no such column"
    missing = {prompt for prompt, _ in rows} - values.keys()
    return values, f"which has no value for the prompt {min(missing)!r}" if missing else ""


class RewardModel:
    """A scalar reward model in a folder, as a signal.

    `trl/reward` trains such models.

    Raises:
        InputError: its head has more than one output.
    """

    def __init__(self, folder: Path, key: str) -> None:
        import torch

        # a head that the folder lacks is drawn from the global stream
        with torch.random.fork_rng(devices=[]):
            self.model = load_reward_model(folder)
            self.tokenizer = load_tokenizer(folder)
        outputs = self.model.config.num_labels
        if outputs != 1:
            raise InputError(
                f"{folder} is no reward model: expected one output, its head has {outputs}", key=key
            )

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        import torch

        # Built before the policy is; a process trains one.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self.model.to("cuda")
        texts = list(zip(prompts, completions, strict=True))
        return model_rewards(self.model, self.tokenizer, texts)


def same_sources(signals: object, trained: Collection[str]) -> set[str]:
    """Return the signals that are trained on, by another name.

    They have the source of a signal that is trained on, or their source itself is trained on.

    Args:
        signals: the option `signals` of a task: a function or model by the name of each signal.
        trained: names of signals, and functions, that a run is trained on.
    """
    sources = dict(signals) if isinstance(signals, Mapping) else {}
    used = {*trained, *(sources[name] for name in trained if name in sources)}
    return {name for name, source in sources.items() if source in used}
