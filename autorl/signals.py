"""SIGTERM and SIGHUP end a session as Ctrl-C does.

What is being written is written, children are ended, then a line is printed.

Schedulers send the first, a terminal that closes the second. Only the command line asks for this: a
program that uses autorl as a library keeps its own handlers.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTED = 128 + signal.SIGINT
_ENDING = ("SIGTERM", "SIGHUP")


class EndedBySignal(KeyboardInterrupt):
    """Raised where a signal other than SIGINT ends the session."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Session:
    """The signal that came while `held`.

    And whether one has been raised already.
    """

    holds = 0
    pending: int | None = None
    ended = False


def reason(error: BaseException | None) -> str:
    """Word what ended the session: `interrupted`, or `ended by SIGTERM`."""
    return f"ended by {error}" if isinstance(error, EndedBySignal) else "interrupted"


def exit_code(error: BaseException | None) -> int:
    """Return 128 + the number of the signal that ended the session.

    A shell reports it so: 130 for Ctrl-C.
    """
    return 128 + error.number if isinstance(error, EndedBySignal) else _INTERRUPTED


@contextmanager
def ending() -> Iterator[None]:
    """Raise `EndedBySignal` at the first SIGTERM or SIGHUP.

    It does so while the block runs; what follows it is ignored.

    A signal that this process ignores (`nohup`) or handles already stays as it is.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in _ENDING:
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _handle)
    _Session.holds = 0
    _Session.pending = None
    _Session.ended = False
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Let the block end before a signal does anything.

    It is for what belongs together in memory and on disk.
    """
    _Session.holds += 1
    try:
        yield
    finally:
        _Session.holds -= 1
    if not _Session.holds and _Session.pending is not None:
        number, _Session.pending = _Session.pending, None
        raise EndedBySignal(number)


def _handle(number: int, frame: FrameType | None) -> None:
    if _Session.ended:
        return
    _Session.ended = True
    if not _Session.holds:
        raise EndedBySignal(number)
    _Session.pending = number
