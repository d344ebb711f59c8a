"""The warden ends what the driver or the fork server leaves.

It is the parent of the fork server. The fork server imports this module before any other. The
process that imports it stays as the warden, and a fork of it goes on as the server: nothing heavy
is loaded yet, so the warden is small, and an out-of-memory killer takes another. Processes whose
own parents have ended become the warden's children, whatever session they are in, stopped ones too
(Linux; elsewhere the warden ends the server, and each worker its own process group).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from types import TracebackType

from autorl.os_processes import adopt_orphans, die_with_parent, end_descendants, open_descriptors

# Process id of the driver: set for the fork server alone, which splits when it is there.
DRIVER = "AUTORL_DRIVER"
_LOOK_SECONDS = 0.05
# Signals that are sent to all processes of a job at once.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def split(driver: int) -> None:
    """Return in a fork of this process, the server.

    This process itself, the warden, watches the fork and the driver, and never returns.
    """
    with suppress(PermissionError):  # it leads its group already
        os.setsid()  # no Ctrl-C and no Ctrl-Z of the driver's terminal
    adopt_orphans()
    warden = os.getpid()
    server = os.fork()
    if server == 0:
        die_with_parent()
        if os.getppid() != warden:
            os._exit(1)
        sys.excepthook = say_nothing_of_a_driver_that_ended
        return
    code = 1
    try:
        code = _watch(driver, server)
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


def _watch(driver: int, server: int) -> int:
    """Wait until the driver or the server has ended, then end everything."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for descriptor in open_descriptors():  # the server's socket too: it must not outlive the server
        with suppress(OSError):
            os.close(descriptor)
    while os.getppid() == driver:
        if server in _ended():
            break
        time.sleep(_LOOK_SECONDS)
    with suppress(ProcessLookupError):
        os.kill(server, signal.SIGKILL)
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
