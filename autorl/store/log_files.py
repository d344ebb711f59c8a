"""Logs of segments.

A file keeps the beginning and the end of what a segment printed, whatever prints it.

A worker's standard output and error are a pipe that the driver empties
(`autorl.executors.processes`). Nothing that a trainer starts can fill the disk: neither native code
nor a process of its own has the file open. A worker that writes a line of its own into its log
therefore prints it (`open_log`).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HEAD = 2**20  # bytes kept of the beginning of a log
TAIL = 2**20  # bytes kept of its end; twice as many while it grows
_LEFT_OUT = re.compile(rb"\n\[autorl: (\d+) bytes left out here\]\n")
_printed: str | None = None  # the log that standard output and error of this process go to


class CappedLog:
    """Appends to a log and cuts out its middle.

    It has at most `HEAD + 2 * TAIL` bytes, `HEAD + TAIL` once it is closed.

    All of it is on disk at any moment, and a byte is copied at most once, when the end has grown to
    twice its length. The output of an earlier attempt at the segment is the beginning. Several
    threads may write.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, head: int = HEAD, tail: int = TAIL) -> None:
        # Not its parents: a study whose folder was removed must not begin to lie there again.
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._head = head
        self._tail = tail
        self._guard = threading.Lock()
        self._size = os.fstat(self._file).st_size
        self._left_out = 0
        self._tail_begins = head
        # An earlier attempt may have cut it already. The line has fewer than 100 bytes.
        match = _LEFT_OUT.match(os.pread(self._file, 100, head))
        if match is not None:
            self._left_out = int(match[1])
            self._tail_begins += len(match[0])

    def write(self, data: bytes) -> None:
        """Append."""
        with self._guard:
            # In pieces: one print of many megabytes must not pass the cap before it is cut.
            for begin in range(0, len(data), self._tail):
                self._append(data[begin : begin + self._tail])
                if self._size >= self._tail_begins + 2 * self._tail:
                    self._cut()

    def close(self) -> None:
        """Cut to the length that stays, and let go of the file."""
        with self._guard:
            try:
                self._cut()
            finally:  # on a full disk too
                os.close(self._file)

    def _append(self, data: bytes) -> None:
        while data:
            written = os.pwrite(self._file, data, self._size)
            self._size += written
            data = data[written:]

    def _cut(self) -> None:
        """Put the last `tail` bytes behind the beginning.

        A line between them says how much is left out.
        """
        surplus = self._size - self._tail_begins - self._tail
        if surplus <= 0:
            return
        last = os.pread(self._file, self._tail, self._size - self._tail)
        self._left_out += surplus
        line = f"\n[autorl: {self._left_out} bytes left out here]\n".encode("ascii")
        self._size = self._head
        self._tail_begins = self._head + len(line)
        self._append(line + last)
        os.ftruncate(self._file, self._size)


def prints_to(log: str) -> None:
    """Say that this process prints to `log` from now on.

    Its standard output and error do.
    """
    global _printed
    _printed = log


@contextmanager
def open_log(path: str) -> Iterator[Callable[[str], None]]:
    """Give what appends text to a segment's log while the block runs.

    It may be in whichever process; in one that prints to the log, text is printed at once.

    Raises:
        OSError: it cannot be written.
    """
    log = None if path == _printed else CappedLog(Path(path))
    write = _print if log is None else log.write
    try:
        # A lone half of a character is no UTF-8, and must not end a run.
        yield lambda text: write(text.encode("utf-8", "backslashreplace"))
    finally:
        if log is not None:
            log.close()


def _print(data: bytes) -> None:
    while data:  # a pipe may take a part
        data = data[os.write(2, data) :]  # not `sys.stderr`, which user code may have replaced


def log_bytes(folder: Path) -> int:
    """Add up the size of all logs below a folder.

    It is 0 if there is none.
    """
    if not folder.is_dir():
        return 0
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                total += entry.stat().st_size
            elif entry.is_dir(follow_symlinks=False):
                total += log_bytes(Path(entry.path))
    return total
