"""Ends a session at SIGTERM and SIGHUP as Ctrl-C does.

What is being written is written, children are ended, then there is a line. Schedulers send the
first, a terminal that closes the second. Only the command line asks for this: a program that uses
autorl as a library keeps its own handlers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_INTERRUPTED = 128 + signal.SIGINT
_ENDING = ("SIGTERM", "SIGHUP")
_SOON = 0.01  # seconds


class EndedBySignal(KeyboardInterrupt):
    """A signal other than SIGINT that ends the session."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Session:
    """What signals have done to this process.

    Attributes:
        holds: blocks of `held` that it is in.
        pending: the signal that came meanwhile.
        ended: whether a signal has come already.
    """

    holds = 0
    pending: int | None = None
    ended = False

    @classmethod
    def handle(cls, number: int, frame: FrameType | None) -> None:
        """End the session, at once or behind the last block of `held`."""
        if cls.ended:  # what the first signal has begun to end is not cut short by a second one
            return
        cls.ended = True
        if not cls.holds:
            raise EndedBySignal(number)
        cls.pending = number


def reason(error: BaseException | None) -> str:
    """Say what ended the session: `interrupted`, or `ended by SIGTERM`."""
    return f"ended by {error}" if isinstance(error, EndedBySignal) else "interrupted"


def exit_code(error: BaseException | None) -> int:
    """Give a shell's exit code, 128 + the signal: 130 for Ctrl-C."""
    return 128 + error.number if isinstance(error, EndedBySignal) else _INTERRUPTED


@contextmanager
def ending() -> Iterator[None]:
    """Raise `EndedBySignal` at the first SIGTERM or SIGHUP in the block.

    Further ones are ignored. A signal that this process ignores (`nohup`) or handles already stays
    as it is.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for name in _ENDING:
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _Session.handle)
    _Session.holds = 0
    _Session.pending = None
    _Session.ended = False
    unraisable = sys.unraisablehook
    sys.unraisablehook = _sent_again(unraisable)
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler)


def _sent_again(otherwise: Callable[[sys.UnraisableHookArgs], object]) -> Any:
    """Make a hook that sends a signal again whose exception was swallowed.

    Python drops what is raised in a destructor or in the callback of a weak reference, also if it
    is the exception of a signal that came just then: the study went on as if there had been none.
    """

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if not isinstance(error, KeyboardInterrupt):
            otherwise(unraisable)
            return
        number = error.number if isinstance(error, EndedBySignal) else signal.SIGINT
        is_sent = False
        while not is_sent:
            _Session.ended = False
            # On a loaded machine the signal came while the thread was being started, and Python
            # drops what is raised in here as well.
            with suppress(KeyboardInterrupt):
                # Not at once: the exception would be swallowed with what is being cleared away.
                threading.Timer(_SOON, send, (number,)).start()
                is_sent = True

    def send(number: int) -> None:
        # Behind the block the signal has its former effect, which may be to kill the process.
        if sys.unraisablehook is hook:
            os.kill(os.getpid(), number)

    return hook


@contextmanager
def held() -> Iterator[None]:
    """Let the block end before a signal does anything.

    For what belongs together in memory and on disk.
    """
    _Session.holds += 1
    try:
        yield
    finally:
        _Session.holds -= 1
    if not _Session.holds and _Session.pending is not None:
        number = _Session.pending
        _Session.pending = None
        raise EndedBySignal(number)
