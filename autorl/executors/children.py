"""Child processes that start quickly, never outlive the driver, and are killed with all they started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from autorl.executors.worker import ONE_THREAD
from autorl.store.log_files import prints_to


def fork_server(preload: Sequence[str]) -> ForkServerContext:
    """The fork-server context, its server started with one thread per library and `preload` imported once.

    A fresh process then starts in some 50 ms instead of seconds (`benchmarks/fork_server.py`). The server is one per
    driver; a later call with other modules uses the server as it is.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with _environment(ONE_THREAD), _without_main():
        forkserver.ensure_running()
    return context


def start(context: ForkServerContext, target: Callable[..., None], arguments: tuple[Any, ...]) -> BaseProcess:
    """Start `target(*arguments)` in a child. The caller's `__main__` is not imported there: scripts need no guard."""
    process = context.Process(target=target, args=arguments, daemon=False)
    with _without_main():
        process.start()
    return process


def adopt(environment: Mapping[str, str], output: Connection | None = None, log: str | None = None) -> None:
    """First act of a child: own process group, death with the driver, its variables, one torch thread, its output.

    `output` is a pipe that standard output and error become, on their way to `log`.
    """
    os.setsid()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    os.environ.update(environment)
    if output is not None and log is not None:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        output.close()
        prints_to(log)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def kill_group(process: BaseProcess) -> None:
    """Kill a child and everything it started, and wait until it is gone."""
    if process.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not have become a group leader yet
    process.join()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its group, in bytes; 0 once it is gone or where /proc is missing."""
    total = 0
    for entry in _group_members(pid):
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{entry}/statm").read_text(encoding="ascii").split()[1])
            total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def _group_members(group: int) -> Iterator[int]:
    proc = Path("/proc")
    if not proc.is_dir():
        return
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int(entry.name) == group or os.getpgid(int(entry.name)) == group:
                    yield int(entry.name)


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os.killpg(os.getpgrp(), signal.SIGKILL)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide `__main__` from multiprocessing, which would import it in every child."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
