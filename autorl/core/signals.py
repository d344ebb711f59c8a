"""Ends a session at SIGTERM and SIGHUP as Ctrl-C does.

The session completes the file it is writing, ends its children, then prints a line. Schedulers send
the first, a terminal that closes the second. Only the command line asks for this: a program that
uses autorl as a library keeps its own handlers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT
# Signals, and the handler of each that gives way to ours. SIGINT keeps its meaning.
_HANDLED = {
    "SIGTERM": signal.SIG_DFL,
    "SIGHUP": signal.SIG_DFL,
    "SIGINT": signal.default_int_handler,
}
_SOON = 0.01  # seconds


class EndedBySignal(KeyboardInterrupt):
    """A signal other than SIGINT that ends the session."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Session:
    """Signals that this process has received.

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
        """End the session, at once or after the last block of `held`."""
        if _DroppedHook.is_running(frame):
            _send_soon(number)
            return
        if number == signal.SIGINT:
            if not cls.holds or cls.pending is not None:  # a second Ctrl-C does not wait
                signal.default_int_handler(number, frame)
            cls.pending = number
            return
        if cls.ended:  # what the first signal has begun to end is not cut short by a second one
            return
        cls.ended = True
        if not cls.holds:
            raise EndedBySignal(number)
        cls.pending = number


class _DroppedHook:
    """Sends a signal again whose exception was swallowed.

    Python drops what is raised in a destructor or in the callback of a weak reference, also if it
    is the exception of a signal that came just then: the study went on as if there had been none.

    Args:
        otherwise: the hook for all other exceptions that Python drops.
    """

    def __init__(self, otherwise: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._otherwise = otherwise

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if not isinstance(error, KeyboardInterrupt):
            self._otherwise(unraisable)
            return
        _Session.ended = False
        _send_soon(error.number if isinstance(error, EndedBySignal) else signal.SIGINT)

    @classmethod
    def is_running(cls, frame: FrameType | None) -> bool:
        """Say whether a frame is this hook's, or was called by it.

        Python drops what is raised in here as well, and calls no hook for that. On loaded machines
        the signal that was sent again came before the hook had returned, and nothing ended the
        study any more.
        """
        while frame is not None:
            if frame.f_code is cls.__call__.__code__:
                return True
            frame = frame.f_back
        return False


def _send_soon(number: int) -> None:
    """Send a signal to this process, but not at once.

    Its exception would be swallowed with what is being cleared away.
    """

    def send() -> None:
        # Behind the block the signal has its former effect, which may be to kill the process.
        if isinstance(sys.unraisablehook, _DroppedHook):
            os.kill(os.getpid(), number)

    threading.Timer(_SOON, send).start()


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
        for name, usual in _HANDLED.items():
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is usual:
                before[number] = signal.signal(number, _Session.handle)
    _Session.holds = 0
    _Session.pending = None
    _Session.ended = False
    unraisable = sys.unraisablehook
    sys.unraisablehook = _DroppedHook(unraisable)
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Let the block end before a signal does anything.

    For what belongs together, in memory and on disk or in two processes. A Ctrl-C waits outside of
    `ending` too, a second one does not. Signals are handled in the main thread: a block in another
    one holds none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:
        signal.signal(signal.SIGINT, _Session.handle)
    _Session.holds += 1
    try:
        yield
    finally:
        _Session.holds -= 1
        if interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        number = _Session.pending
        if not _Session.holds and number is not None:
            _Session.pending = None
            raise KeyboardInterrupt if number == signal.SIGINT else EndedBySignal(number)
