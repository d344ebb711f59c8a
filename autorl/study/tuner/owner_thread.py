"""A thread that owns a study, whichever thread asks for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from autorl.core.types import StudyError

P = ParamSpec("P")
T = TypeVar("T")


class OwnerThread:
    """Calls functions one after another in one thread.

    A study belongs to the thread that opened it, as SQLite demands of a connection. Calls are done
    in the order in which they come.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="autorl-tuner")
        self._thread = self._pool.submit(threading.get_ident).result()
        self._process = os.getpid()
        self._closed = False

    def submit(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Call a function soon, and return the future of what it returns.

        Raises:
            StudyError: the owner is closed, belongs to the parent of this process, or is the
                thread that asks, which would wait for itself.
        """
        if os.getpid() != self._process:
            raise StudyError(
                "a Tuner belongs to the process that made it: send trials to other processes, "
                "and tell their values in the first one"
            )
        if threading.get_ident() == self._thread:
            raise StudyError(
                "a callback cannot call its tuner, which is still at work: note what to do, and "
                "call the tuner after the method that told the callback has returned"
            )
        if self._closed:
            raise StudyError("the tuner is closed: make another one on the same path")
        return self._pool.submit(function, *arguments, **named)

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function, and return what it returns.

        Raises:
            StudyError: as `submit`.
        """
        return self.submit(function, *arguments, **named).result()

    def close(self, last: Callable[[], None]) -> None:
        """Call `last`, and accept nothing more. A second call does nothing."""
        if self._closed:
            return
        ended = self.submit(last)
        self._closed = True
        try:
            ended.result()
        finally:
            self._pool.shutdown()
