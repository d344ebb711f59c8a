"""Answers a query of anyone in a process that ends at limits.

DuckDB looks for an interrupt between chunks of rows, and its memory limit leaves out the values
inside a function: one call (`repeat('x', 2000000000)`) is ended with its process alone.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.os_processes import die_with_parent, exit_text
from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes._views import check_only_reads, first_line

if TYPE_CHECKING:
    import duckdb

QUERY_SECONDS = 300.0
"""Seconds a query may take unless told. Queries of our own pages take under one."""
QUERY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
"""Memory a query may take: half of the machine's."""

_ENDLESS = 1e8  # seconds, three years
_CHUNK = 1000  # rows of an answer that are Python objects at once


def answer(
    connect: Callable[[], duckdb.DuckDBPyConnection],
    query: str,
    limit: int | None,
    seconds: float | None,
    file: str,
) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Answer a query by columns and rows.

    Time that its reader spends on the rows in between does not count.

    Args:
        connect: opens the guarded DuckDB; it is pickled.
        query: one query that only reads.
        limit: the most rows that are wanted; no more are computed.
        seconds: the most it may take; None = no limit.
        file: of the landscape, for messages.

    Raises:
        InputError: the query is wrong, or reaches a limit, also while its rows are fetched.
    """
    if seconds is not None and not 0.0 < seconds < _ENDLESS:
        message = f"expected a number above 0 and below {_ENDLESS:g}, got {seconds}"
        raise InputError(message, key="seconds")
    private = tempfile.TemporaryDirectory(prefix="autorl-query-")
    process = subprocess.Popen(
        # -P: no module of the folder somebody stands in.
        [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
            "TMPDIR": private.name,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process
    )
    chunks = _chunks(process, private, seconds, file)
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        pickle.dump((connect, query, limit, seconds, file, QUERY_BYTES), stdin)
    (columns,) = next(chunks)
    return columns, (row for chunk in chunks for row in chunk)


def _chunks(
    process: subprocess.Popen[bytes],
    private: tempfile.TemporaryDirectory[str],
    seconds: float | None,
    file: str,
) -> Iterator[list[Any]]:
    """Read the columns and then the rows that the process sends."""
    with private, process:
        assert process.stdout is not None
        try:
            while chunk := pickle.load(process.stdout):
                if isinstance(chunk, InputError):
                    raise chunk
                yield chunk
        except (EOFError, pickle.UnpicklingError):
            code = process.wait()
            reason = f"the query has ended its process ({exit_text(code)}): ask for less"
            if code == -signal.SIGALRM and seconds is not None:
                reason = (
                    f"no answer within {counted(seconds, 'second')}: ask for less, or allow more "
                    "(`--seconds`, in Python `seconds=`)"
                )
            raise InputError(reason, file=file, key="sql") from None
        finally:
            process.kill()


def main() -> None:
    """Answer the query on standard input: the process."""
    connect, query, limit, seconds, file, most_bytes = pickle.load(sys.stdin.buffer)
    die_with_parent()
    answered = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # DuckDB prints how far it is
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    # If the machine has less than it says (a job of a cluster), the query ends before others.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    seconds_left = seconds or 0.0  # 0 = no limit
    answers = _answers(connect, query, limit, file)
    message: object = True
    while message:
        # The signal ends this process, whatever it computes.
        signal.setitimer(signal.ITIMER_REAL, seconds_left)
        message = next(answers, [])
        seconds_left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
        pickle.dump(message, answered)
        answered.flush()


def _answers(
    connect: Callable[[], duckdb.DuckDBPyConnection], query: str, limit: int | None, file: str
) -> Iterator[object]:
    """Give the columns and rows of a query, or its error."""
    import duckdb

    try:
        connection = connect()
        check_only_reads(connection, query, file)
        relation = connection.sql(query)
        yield [list(relation.columns)]
        if limit is not None:
            # A limit of the query, not of its answer: no more rows are computed.
            yield relation.limit(limit).fetchall()
            return
        unlimited = connection.execute(query)
        while chunk := unlimited.fetchmany(_CHUNK):
            yield chunk
    except InputError as error:
        yield error
    # Python has no such date, say.
    except (duckdb.Error, ValueError, OverflowError, MemoryError) as error:
        yield InputError(first_line(error), file=file, key="sql")
