"""Brings what a worker prints into the log of its segment.

It goes through a pipe that a thread of the driver empties. Not straight into a file, because a
trainer can print faster than anybody can look at its size, and so can what it starts. A pipe that
is full stops whoever prints, and one whose reader dies with the driver kills it.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from autorl.store.log_files import CappedLog

_CHUNK = 2**16  # bytes, what a pipe holds
# Seconds: a process in a session of its own may hold the pipe longer than its segment lives.
PATIENCE = 1.0


def start_output(reader: Connection, log: str) -> threading.Thread:
    """Empty a pipe into a log until nobody has its other end.

    Wait `PATIENCE` seconds for the thread once the worker is gone: it closes the reading end.
    """
    thread = threading.Thread(target=_empty, args=(reader, Path(log)), daemon=True)
    thread.start()
    return thread


def _empty(reader: Connection, path: Path) -> None:
    log: CappedLog | None = None
    with reader:
        try:
            log = CappedLog(path)
            while chunk := os.read(reader.fileno(), _CHUNK):
                log.write(chunk)
        except (FileNotFoundError, FileExistsError):
            # The study's folder is removed while it runs: the driver ends with a line of its own.
            _drain(reader)
        except OSError as error:
            # A full disk, most likely: the worker must be able to go on printing.
            sys.stderr.write(f"autorl: {path} cannot be written ({error.strerror})\n")
            _drain(reader)
        finally:
            if log is not None:
                with suppress(OSError):
                    log.close()


def _drain(reader: Connection) -> None:
    while os.read(reader.fileno(), _CHUNK):
        pass
