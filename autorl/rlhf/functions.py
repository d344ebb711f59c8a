"""Functions of a user by name, called so that what goes wrong in one says which one it is."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from autorl.rlhf.task import Signal
from autorl.types import InputError

_OF_THE_MACHINE = (
    MemoryError,
    OSError,
    FloatingPointError,
)  # failures of a run with a kind of their own


def import_function(name: str, key: str) -> Callable[..., Any]:
    """The function `module:function`.

    Raises:
        InputError: it cannot be imported, or is not a function.
    """
    module, _, attribute = str(name).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"cannot import {name!r}: expected `module:function` ({error})", key=key
        ) from error
    if not callable(found):
        raise InputError(f"{name!r} is not a function", key=key)
    function: Callable[..., Any] = found
    return function


def named(function: Callable[..., Any], source: str, key: str) -> Callable[..., list[Any]]:
    """`function`, awaited if it is asynchronous; what it raises says where it comes from.

    The function returned raises `InputError` with `key` for an error of `function`, or an answer that is no list.
    """

    def call(prompts: Sequence[str], completions: Sequence[str]) -> list[Any]:
        try:
            answer = function(prompts, completions)
            return list(asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer)
        except (InputError, *_OF_THE_MACHINE):
            raise
        except Exception as error:
            hint = (
                " (prompts and completions are texts, not messages)"
                if isinstance(error, TypeError)
                else ""
            )
            raise InputError(
                f"{source} failed: {type(error).__name__}: {error}{hint}", key=key
            ) from error

    return call


def numbers(function: Callable[..., Any], source: str, key: str) -> Signal:
    """`function` as a signal: a number for each completion, or an `InputError` that names it."""
    call = named(function, source, key)

    def signal(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        values = call(prompts, completions)
        if len(values) != len(completions):
            raise InputError(
                f"{source} returned {len(values)} numbers for {len(completions)} completions",
                key=key,
            )
        return [_number(value, source, key) for value in values]

    return signal


def _number(value: Any, source: str, key: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        text = repr(value)[:80]
        message = f"{source} returned {text}, expected a number for each completion"
        if value is None:
            message += "; None (a reward that does not apply) is for several rewards of TRL beside each other"
        raise InputError(message, key=key) from error


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
