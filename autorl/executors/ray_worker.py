"""The worker that an actor of Ray holds.

It is an executor of the machine it was started on. It knows nothing of Ray. The driver asks it what
it is, and then exchanges segments for what has become of those it has; see `autorl.executors.ray`.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import util
from pathlib import Path
from typing import Literal

from autorl import __version__
from autorl.executors.processes import Processes
from autorl.executors.queued import Limits
from autorl.executors.stopped import STOPPED_SECONDS
from autorl.executors.threads import Threads
from autorl.executors.worker import Load
from autorl.os_processes import stat
from autorl.store.provenance import source_sha256
from autorl.types import AttemptKey, Executor, FrozenMap, Outcome, Report, Segment

Kind = Literal["processes", "threads"]
_LOOK_SECONDS = 0.5
# The last report of a segment comes a moment before its outcome. One answer with both halves the
# calls of a driver whose segments are short.
_LINGER_SECONDS = 0.01
# Outcomes of a worker that has more to do are gathered for so long: a call costs the driver more
# than the rest of what it does for an outcome.
_GATHER_SECONDS = 0.1


@dataclass(frozen=True)
class WorkerPlan:
    """What a worker is to do, as its driver says.

    Attributes:
        load: builds trainers; pickled by reference, so that the worker's machine needs the package.
        kind: the executor it runs segments on.
        slots: how many at once.
        preload: modules its fork server imports.
        limits: of each segment.
        folder: working folder of the driver, taken where the machine has it.
        probe: a file in the study folder that the worker must be able to read; "" = none.
        probe_text: what the file says.
        variables: of its environment, for what it starts.
    """

    load: Load
    kind: Kind
    slots: int
    preload: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    folder: str = ""
    probe: str = ""
    probe_text: str = ""
    variables: FrozenMap = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker says of itself before it gets any work.

    Attributes:
        node: id of its node, "" = not of Ray.
        host: address of its machine and the node there.
        pid: of the actor's process.
        python, version, source: of the interpreter, of autorl, and SHA-256 of autorl's files.
        sees_folder: whether the probe in the study folder can be read there.
    """

    node: str
    host: str
    pid: int
    python: str
    version: str
    source: str
    sees_folder: bool


def info(plan: WorkerPlan, node: str = "", address: str = "") -> WorkerInfo:
    """Describe this process as a worker."""
    host = socket.gethostname()
    if node:  # several nodes may be on one machine
        host = f"{address or host}/{node[:12]}"
    return WorkerInfo(
        node=node,
        host=host,
        pid=os.getpid(),
        python=platform.python_version(),
        version=__version__,
        source=source_sha256(),
        sees_folder=not plan.probe or _reads(plan.probe, plan.probe_text),
    )


def _reads(file: str, text: str) -> bool:
    try:
        return Path(file).read_text(encoding="ascii") == text
    except (OSError, UnicodeDecodeError):
        return False


def loggable(segment: Segment) -> Segment:
    """Leave out the log where the study folder cannot be seen.

    Only with a storage: without, such a node gets no segments.
    """
    if not segment.storage or segment.log is None or Path(segment.log).parent.is_dir():
        return segment
    return dataclasses.replace(segment, log=None)


class RayWorker:
    """Runs segments for a driver on another machine.

    It does so as `processes` and `threads` do. Its methods are called one after another. What its
    segments have started ends with this process, by the warden of its fork server.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._executor: Executor | None = None
        self._unfinished: set[AttemptKey] = set()

    def answer(self, method: str, arguments: Sequence[object]) -> object:
        """Call a method."""
        return getattr(self, method)(*arguments)

    def describe(self) -> WorkerInfo:
        """Say where this is and what runs here.

        Nothing heavy is imported yet.
        """
        node, address, devices = _place()
        # Before the fork server starts, whose children have the variables it was started with.
        os.environ.update(self._plan.variables)
        if devices:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        with suppress(OSError):  # the machine may have no such folder
            os.chdir(self._plan.folder or ".")
        return info(self._plan, node, address)

    def free_port(self) -> tuple[str, int]:
        """Give the address of this machine and a port nobody listens at."""
        _, address, _ = _place()
        with socket.socket() as free:
            free.bind(("", 0))
            return address or socket.gethostname(), int(free.getsockname()[1])

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set variables for what is started here, before the first segment."""
        os.environ.update(variables)

    def exchange(
        self, segments: Sequence[Segment], cancelled: Sequence[Segment], seconds: float
    ) -> list[Report | Outcome]:
        """Take segments on, and return the news of all taken on.

        Waits at most `seconds` for the first of it.
        """
        executor = self._started()
        for segment in cancelled:
            executor.cancel(segment)
            self._unfinished.discard(segment.key)
        executor.submit([loggable(segment) for segment in segments])
        self._unfinished |= {segment.key for segment in segments}
        messages = self._poll(executor, seconds)
        begin = time.monotonic()
        while messages:
            ended = any(isinstance(message, Outcome) for message in messages)
            if ended and len(self._unfinished) <= self._plan.slots:
                break
            patience = _GATHER_SECONDS if ended else _LINGER_SECONDS
            remaining = begin + patience - time.monotonic()
            if remaining <= 0:
                break
            messages += self._poll(executor, remaining)
        while more := self._poll(executor, 0.0):  # whole batches: the driver commits once for each
            messages += more
        return messages

    def _poll(self, executor: Executor, seconds: float) -> list[Report | Outcome]:
        """Return news of segments, and take note of those that have ended."""
        messages = executor.poll(seconds)
        self._unfinished -= {message.key for message in messages if isinstance(message, Outcome)}
        return messages

    def close(self) -> None:
        """End what runs here. Idempotent."""
        if self._executor is None:
            return
        self._executor.close()
        node, _, _ = _place()
        if node:
            # The actor is killed next: multiprocessing does not come to remove its folder.
            shutil.rmtree(util.get_temp_dir(), ignore_errors=True)

    def _started(self) -> Executor:
        if self._executor is None:
            plan = self._plan
            make: type[Processes] | type[Threads] = Processes
            if plan.kind == "threads":
                make = Threads
            self._executor = make(plan.load, plan.slots, preload=plan.preload, limits=plan.limits)
        return self._executor


def _place() -> tuple[str, str, list[str]]:
    """Return the node, address and devices of this process.

    They are empty outside of Ray.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return "", "", []
    context = ray.get_runtime_context()
    devices = [str(device) for device in context.get_accelerator_ids().get("GPU", [])]
    return context.get_node_id(), ray.util.get_node_ip_address(), devices


def end_if_stopped(pid: int, source: str) -> bool:
    """Kill a worker of this machine that a signal has stopped.

    One that is continued in time goes on. It is looked at for as long as a worker of `processes`
    would be. What the worker has started ends with it.

    Args:
        pid: its process id.
        source: what its command line must hold: a process id may be given to another program.

    Returns:
        Whether it was stopped all the time; it is gone then.
    """
    end = time.monotonic() + STOPPED_SECONDS
    while time.monotonic() < end:
        process = stat(pid)
        if process is None or process.state != "T" or source not in command_line(pid):
            return False
        time.sleep(_LOOK_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    return True


def command_line(pid: int) -> str:
    """Read the command line of a process, "" once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
