"""The supervisor ends what the driver or the fork server leaves.

It is the parent of the fork server. The fork server imports this module before any other. The
process that imports it stays as the supervisor, and a fork of it goes on as the server: nothing
heavy is loaded yet, so the supervisor is small, and an out-of-memory killer takes another process.
Processes whose own parents have ended become the supervisor's children, whatever session they are
in, stopped ones too (Linux; elsewhere the supervisor ends the server, and each worker its own
process group).
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from contextlib import suppress
from types import TracebackType

from autorl.core.os_processes import (
    adopt_orphans,
    die_with_parent,
    end_descendants,
    open_descriptors,
)
from autorl.executors.stopped import StoppedWorkers

# Process id of the driver: set for the fork server alone, which splits when it is there.
DRIVER = "AUTORL_DRIVER"
# Set where the driver is a worker of a cluster: one that a signal has stopped is ended.
ENDS_STOPPED = "AUTORL_ENDS_STOPPED"
_LOOK_SECONDS = 0.05
# Seconds for a server whose driver is gone: it ends by itself, and libraries that were killed left
# temporary folders.
_PATIENCE = 1.0
# Signals that are sent to all processes of a job at once.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def split(driver: int) -> None:
    """Return in a fork of this process, the server.

    This process itself, the supervisor, watches the fork and the driver, and never returns.
    """
    with suppress(PermissionError):  # it leads its group already
        os.setsid()  # no Ctrl-C and no Ctrl-Z of the driver's terminal
    adopt_orphans()
    ends_stopped = os.environ.pop(ENDS_STOPPED, None) is not None
    supervisor = os.getpid()
    server = os.fork()
    if server == 0:
        die_with_parent()
        if os.getppid() != supervisor:
            os._exit(1)
        sys.excepthook = say_nothing_of_a_driver_that_ended
        return
    code = 1
    try:
        code = _watch(driver, server, ends_stopped=ends_stopped)
    finally:
        os._exit(code)


def say_nothing_of_a_driver_that_ended(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an exception nobody caught, in the fork server and its forks.

    Not where multiprocessing finds nothing to read: the driver was interrupted or killed while it
    asked for a worker, which is no fault, and two of a hundred signals showed its traceback.
    """
    where = trace
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    module = where.tb_frame.f_globals.get("__name__", "") if where is not None else ""
    if isinstance(error, EOFError) and module.startswith("multiprocessing."):
        return
    sys.__excepthook__(kind, error, trace)


def _watch(driver: int, server: int, *, ends_stopped: bool) -> int:
    """Wait until the driver or the server has ended, then end everything."""
    stopped = StoppedWorkers()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for descriptor in open_descriptors():  # the server's socket too: it must not outlive the server
        with suppress(OSError):
            os.close(descriptor)
    until = math.inf
    while server not in _ended() and time.monotonic() < until:
        if os.getppid() != driver:
            until = min(until, time.monotonic() + _PATIENCE)
        elif ends_stopped and stopped.among([driver], time.monotonic()):
            os.kill(driver, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    end_descendants(os.getpid())
    return 0


def _ended() -> set[int]:
    """Return the children that have ended since the last call."""
    ended = set()
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.add(pid)
    return ended


# In a fork server, which `-c` runs.
if os.environ.get(DRIVER) == str(os.getppid()) and sys.argv[0] == "-c":
    split(int(os.environ.pop(DRIVER)))
