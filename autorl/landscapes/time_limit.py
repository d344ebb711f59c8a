"""The time that a query of anyone may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from autorl.plain_text import counted
from autorl.types import InputError

if TYPE_CHECKING:
    import duckdb

QUERY_SECONDS = 300.0
"""Seconds a query may take unless told. Queries of our own pages take under one."""

# An interrupt between two statements of a query, or before its first, is lost.
_AGAIN = 0.1  # seconds until the next


class TimeLimit:
    """Ends the query of a connection that takes longer than it may.

    What its reader does with the rows in between takes none of its time. DuckDB looks for an
    interrupt between chunks of rows: a single function call is not ended.

    Args:
        connection: asks the query, and nothing else meanwhile.
        seconds: the most it may take; None = no limit.
        file: of the landscape, for the message.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, seconds: float | None, file: str
    ) -> None:
        self._connection = connection
        self._seconds = seconds
        self._left = seconds
        self._file = file

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the time of a block, whose query ends at the limit.

        Raises:
            InputError: the limit is reached.
        """
        import duckdb

        if self._left is None or self._seconds is None:
            yield
            return
        begin = time.monotonic()
        ended = threading.Event()
        late = threading.Event()
        watch = threading.Thread(
            target=self._interrupt, args=(self._left, ended, late), name="query-limit", daemon=True
        )
        watch.start()
        try:
            yield
        except duckdb.Error:
            if not late.is_set():
                raise
            raise InputError(
                f"no answer within {counted(self._seconds, 'second')}: ask for less, or allow more "
                "(`--seconds`, in Python `seconds=`)",
                file=self._file,
                key="sql",
            ) from None
        finally:
            ended.set()
            # A late interrupt would end the next query of the connection.
            watch.join()
            self._left = max(0.0, self._left - (time.monotonic() - begin))

    def _interrupt(self, seconds: float, ended: threading.Event, late: threading.Event) -> None:
        if ended.wait(seconds):
            return
        late.set()
        self._connection.interrupt()
        while not ended.wait(_AGAIN):
            self._connection.interrupt()
