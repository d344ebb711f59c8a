"""Functions of a user, whose errors say where they come from."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from autorl.core.plain_text import counted
from autorl.core.types import InputError

# failures of a run with a kind of their own
_OF_THE_MACHINE = (MemoryError, OSError, FloatingPointError)


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
        function: of prompts and completions, n texts each.
        source: what the user calls it.
        key: of the study file, for errors.
    """

    def __init__(self, function: Callable[..., Any], source: str, key: str) -> None:
        self.function = function
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
            # of a function for TRL's chat data: "string indices must be integers"
            if isinstance(error, TypeError):
                message += " (prompts and completions are texts, not messages)"
            raise InputError(message, key=self.key) from error


class UserSignal(UserFunction):
    """A function of the user's that returns a number for each completion."""

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
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            shown = repr(value)[:80]
            message = f"{self.source} returned {shown}, expected a number for each completion"
            if value is None:
                message += (
                    "; None (a reward that does not apply) is for several rewards of TRL "
                    "beside each other"
                )
            raise InputError(message, key=self.key) from error


# `asyncio.run` takes a coroutine, not whatever can be awaited
async def _awaited(answer: Awaitable[object]) -> object:
    return await answer
