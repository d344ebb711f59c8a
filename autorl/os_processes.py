"""Processes of this machine, and their descendants.

Why they ended, what they have started, and how all of it is ended.

On Linux a worker is the reaper of everything it starts, so that no daemon and no session of its own
leaves its tree. Elsewhere nothing here reaches past a process group: the functions say so.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork
_LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_LAST_WAIT = 5.0  # seconds
_SHELL = 128  # a shell reports a command ended by signal n as exit code 128 + n

OWN_FAULTS = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGSYS", "SIGTRAP")
    if hasattr(signal, name)
)
"""Signals that speak of the program itself: it would end so again."""
_FROM_SHELL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})


class ProcessLostError(Exception):
    """Raised where a process that a segment needs was ended from outside.

    It is no fault of its configuration.
    """


class ProcessStat(NamedTuple):
    """A process as Linux describes it.

    It has its parent, its state (`T` = stopped, `Z` = ended), and seconds of CPU time.
    """

    parent: int
    state: str
    cpu_seconds: float


def ended_from_outside(code: int) -> bool:
    """Tell whether an exit code is of a signal from outside.

    Such a signal says nothing of the program. Negative codes are signals.

    An out-of-memory killer sends SIGKILL, a scheduler SIGTERM or SIGHUP, a terminal SIGINT. 128 + n
    is what a shell reports of a command that such a signal has ended.
    """
    if code < 0:
        return -code not in OWN_FAULTS
    return code - _SHELL in _FROM_SHELL


def exit_text(code: int) -> str:
    """Word an exit code: `exit code 3`, or `signal 9 (SIGKILL)`.

    The latter is of a process that a signal has ended.
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends.

    Linux only.

    Elsewhere only the killing of the whole process group takes it along.
    """
    if _LIBC is not None:
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends.

    None leaves this process's tree. Linux only.
    """
    if _LIBC is not None:
        _LIBC.prctl(_ADOPT_ORPHANS, 1)


def open_descriptors() -> list[int]:
    """List numbers above 2 that may be open files of this process.

    They are those that are, where the system lists them.
    """
    place = Path("/proc/self/fd")
    numbers = [int(name) for name in os.listdir(place)] if place.is_dir() else list(range(1024))
    return [number for number in numbers if number > 2]


def stat(pid: int) -> ProcessStat | None:
    """Describe a process as Linux does.

    None once it is gone, and on other systems.
    """
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(int(fields[1]), fields[0], ticks / os.sysconf("SC_CLK_TCK"))


def descendants(pid: int) -> dict[int, ProcessStat]:
    """Return every process below `pid` that has not ended, by its id.

    Linux only.
    """
    below: dict[int, ProcessStat] = {}
    parents = [pid]
    children = _children if _LISTS_CHILDREN else _search_children()
    while parents:
        for child in children(parents.pop()):
            parents.append(child)
            process = stat(child)
            if process is not None and process.state not in "ZX":
                below[child] = process
    return below


def end_descendants(pid: int, spare: Iterable[int] = ()) -> None:
    """Kill everything below `pid` but what is below `spare`.

    Sessions of their own are included. Linux only.

    `pid` must be the reaper of its orphans: those of a process that is killed are found in the next
    round. What cannot be killed at once (it waits for a disk or a device) is not waited for longer
    than `_LAST_WAIT` seconds.
    """
    end = time.monotonic() + _LAST_WAIT
    empty = 0
    while empty < 2 and time.monotonic() < end:  # a list read while a process ends may lack another
        targets = descendants(pid)
        for process in spare:
            for spared in (process, *descendants(process)):
                targets.pop(spared, None)
        empty = 0 if targets else empty + 1
        for target in targets:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        if targets:
            time.sleep(0.001)


def end_marked(variable: str, value: str) -> None:
    """Kill every process started with an environment variable of this value.

    Wherever it is. Linux only.
    """
    end = time.monotonic() + _LAST_WAIT
    mark = f"{variable}={value}".encode()
    while (targets := _marked(mark)) and time.monotonic() < end:
        for target in targets:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        time.sleep(0.001)


def _marked(mark: bytes) -> list[int]:
    marked = []
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():
        if not entry.isdigit():
            continue
        with suppress(OSError):  # it has ended, or it is somebody else's
            if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                process = stat(int(entry))
                if process is not None and process.state not in "ZX":
                    marked.append(int(entry))
    return marked


def _children(pid: int) -> list[int]:
    """Return the children of a process as the kernel lists them.

    Ended ones are included.
    """
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            children += map(
                int, Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
            )
    return children


def _search_children() -> Callable[[int], list[int]]:
    """Find children for a kernel that keeps no list.

    Every process is asked for its parent, once.
    """
    children: dict[int, list[int]] = {}
    entries = os.listdir("/proc") if sys.platform == "linux" else []
    for entry in entries:
        process = stat(int(entry)) if entry.isdigit() else None
        if process is not None:
            children.setdefault(process.parent, []).append(int(entry))
    return lambda pid: children.get(pid, [])
