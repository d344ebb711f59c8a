"""Starts child processes that never outlive the driver.

They start quickly and are killed with all they started: driver -> supervisor -> fork server ->
workers -> whatever a worker starts. Each worker is the parent of its orphans, and the supervisor is
the parent of orphans whose worker is gone; see `autorl.executors.supervisor`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from autorl.core.os_processes import (
    ProcessLostError,
    adopt_orphans,
    descendants,
    die_with_parent,
    end_descendants,
    open_descriptors,
    stat,
    without_main,
)
from autorl.executors.supervisor import DRIVER
from autorl.executors.worker import ONE_THREAD
from autorl.store.log_files import prints_to

_TRIES = 3  # fork servers in a row that end before they have started a worker
_LAST_WAIT = 6.0  # seconds for what is ending to end: a supervisor, or the news of an exit code
# A socket's name has at most 103 bytes on macOS, 107 on Linux; multiprocessing needs 32 of them.
_LONGEST_TMPDIR = 71
_server: int | None = None  # process id of the fork server, once it has started a worker


def fork_server(preload: Sequence[str]) -> ForkServerContext:
    """Return the fork-server context, with its server running.

    The server has one thread per library and has imported `preload` once, so a fresh process starts
    in some 50 ms instead of seconds (`benchmarks/fork_server.py`). The server is one per driver; a
    later call with other modules uses the server as it is. A server that has ended is replaced.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["autorl.executors.supervisor", *preload])
    _ensure_running()
    return context


def start(
    context: ForkServerContext, target: Callable[..., None], arguments: tuple[object, ...]
) -> BaseProcess:
    """Start `target(*arguments)` in a child.

    The caller's `__main__` is not imported there: scripts need no guard.

    Raises:
        EOFError, ConnectionError, FileNotFoundError: the fork server has ended meanwhile; the next
            call replaces it.
    """
    global _server
    _ensure_running()
    process = context.Process(target=target, args=arguments, daemon=False)
    # multiprocessing starts another server where the one just seen has ended meanwhile. It needs
    # the same environment: without it there was no supervisor, once in some hundred killed servers.
    with _environment_of_server(), _socket_without_name(), without_main():
        process.start()
    worker = stat(process.pid or 0)
    if worker is not None:
        _server = worker.parent
    return process


def start_connected(
    context: ForkServerContext,
    target: Callable[..., None],
    arguments: tuple[object, ...],
    *,
    duplex: bool,
) -> tuple[BaseProcess, Connection]:
    """Start `target(connection, *arguments)` in a child.

    Returns the process and the other end of that connection.

    Raises:
        ProcessLostError: the fork server ends whenever it is asked, as one does that cannot import
            what it preloads.
    """
    for _ in range(_TRIES):
        own_end, child_end = context.Pipe(duplex=duplex)
        try:
            return start(context, target, (child_end, *arguments)), own_end
        except (EOFError, ConnectionError, FileNotFoundError):
            # The server is gone. A worker that was begun all the same finds its connection closed.
            own_end.close()
            _wait_for_end(_supervisor())
        finally:
            child_end.close()
    raise ProcessLostError(f"the fork server ended {_TRIES} times before it had started a worker")


def adopt(
    environment: Mapping[str, str],
    output: Connection | None = None,
    log: str | None = None,
    *,
    threads: int = 1,
) -> None:
    """Make this child process a worker, before anything else.

    It gets a process group of its own, dies with the driver, and takes on its variables and output.

    Args:
        environment: variables to set.
        output: a pipe that takes standard output and error to `log`.
        log: the file at the end of that pipe.
        threads: of torch.
    """
    os.setsid()
    adopt_orphans()
    die_with_parent()
    _keep_descriptors()
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
        sys.modules["torch"].set_num_threads(threads)


def kill_group(process: BaseProcess) -> None:
    """Kill a child and everything it started, and wait for the end.

    On Linux processes in sessions of their own are included.
    """
    if process.pid is not None and process.is_alive():
        with suppress(ProcessLookupError, PermissionError):
            # Stopped, it starts nothing more, and adopts the orphans of what is killed.
            os.kill(process.pid, signal.SIGSTOP)
        end_descendants(process.pid)
    if process.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not have become a group leader yet
    process.join(_LAST_WAIT)
    _end_strays()


def exit_code(process: BaseProcess) -> int | None:
    """Return the exit code of a worker that has ended.

    The result is None where no process saw it, because the fork server is gone.
    """
    process.join(_LAST_WAIT)
    unseen = 255  # what multiprocessing says then
    return None if process.exitcode == unseen else process.exitcode


def resident_bytes(pid: int) -> int:
    """Measure the resident memory of a process and all it started.

    In bytes; 0 once the process is gone.
    """
    total = 0
    for entry in (pid, *descendants(pid)):
        with suppress(psutil.Error):
            total += psutil.Process(entry).memory_info().rss
    return total


def _ensure_running() -> None:
    """Start the fork server, and the supervisor before it, unless they run.

    They are continued if they were stopped.
    """
    for pid in (_supervisor(), _server):
        if pid is not None and (process := stat(pid)) is not None and process.state == "T":
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)
    with _environment_of_server(), _socket_without_name(), without_main():
        forkserver.ensure_running()


def _supervisor() -> int | None:
    """Return the process id of the supervisor, None before there is one.

    It is what the driver takes for the fork server.
    """
    pid: int | None = vars(forkserver)["_forkserver"]._forkserver_pid
    return pid


def _wait_for_end(supervisor: int | None) -> None:
    """Wait until a supervisor whose server is gone has ended.

    It ends everything else first.
    """
    end = time.monotonic() + _LAST_WAIT
    time.sleep(0.1)  # where nothing is known of processes: until it can be seen that it has ended
    while (
        supervisor is not None
        and (process := stat(supervisor)) is not None
        and process.state != "Z"
    ):
        if time.monotonic() > end:
            os.kill(supervisor, signal.SIGKILL)
        time.sleep(0.01)


def _end_strays() -> None:
    """Kill what workers that are gone have left.

    That is all below the supervisor that is not below the fork server.
    """
    supervisor = _supervisor()
    if supervisor is None or _server is None:
        return
    server = stat(_server)
    if server is not None and server.parent == supervisor:
        end_descendants(supervisor, spare=(_server,))


def _keep_descriptors() -> None:
    """Keep started programs from inheriting the pipes of this process.

    Otherwise nobody would see the pipes end with this process.
    """
    for descriptor in open_descriptors():
        with suppress(OSError):
            os.set_inheritable(descriptor, False)


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    end_descendants(os.getpid())
    os.killpg(os.getpgrp(), signal.SIGKILL)


@contextmanager
def _environment_of_server() -> Iterator[None]:
    """Set the variables a fork server is started with.

    By them it has a supervisor, and one thread a library.
    """
    values = {**ONE_THREAD, DRIVER: str(os.getpid())}
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
def _socket_without_name() -> Iterator[None]:
    """Remove the socket of a fork server that the block starts.

    Linux reaches a socket by a descriptor too, and a driver that is killed leaves nothing. Below a
    long `TMPDIR` the server ended with "AF_UNIX path too long": the folder has a short name then.
    """
    supervisor = stat(_supervisor() or 0)
    if not sys.platform.startswith("linux") or (supervisor is not None and supervisor.state != "Z"):
        yield
        return
    long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TMPDIR
    server = vars(forkserver)["_forkserver"]
    config = vars(multiprocessing.current_process())["_config"]
    before = config.get("tempdir")
    with tempfile.TemporaryDirectory(prefix="pymp-", dir="/tmp" if long else None) as folder:
        config["tempdir"] = folder  # where multiprocessing makes it
        try:
            yield
        finally:
            config["tempdir"] = before
            address = server._forkserver_address
            if address is not None and Path(address).parent == Path(folder):
                server._forkserver_address = f"/proc/self/fd/{os.open(address, os.O_PATH)}"
