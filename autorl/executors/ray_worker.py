"""The worker that an actor of Ray holds.

It is an executor of the machine it was started on. It knows nothing of Ray. The driver asks it what
it is, and then exchanges segments for what has become of them; see `autorl.executors.ray`.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import util
from pathlib import Path

from autorl.core.types import Executor, FrozenMap, Outcome, Report, Segment
from autorl.executors.elsewhere import Code, Work
from autorl.executors.warden import ENDS_STOPPED

# The last report of a segment comes a moment before its outcome. One answer with both halves the
# calls of a driver whose segments are short.
_LINGER_SECONDS = 0.01


@dataclass(frozen=True)
class WorkerPlan:
    """Orders of a driver to a worker.

    Attributes:
        work: how it trains.
        folder: working folder of the driver, taken where the machine has it.
        probe: a file in the study folder that the worker must be able to read; "" = none.
        probe_text: what the file says, random, so that no other file passes for it.
        variables: of its environment, for what it starts.
    """

    work: Work
    folder: str = ""
    probe: str = ""
    probe_text: str = ""
    variables: FrozenMap = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class WorkerInfo:
    """Description that a worker gives of itself before it gets any work.

    Attributes:
        node: id of its node, "" = not of Ray.
        host: address of its machine and the node there.
        problem: why it cannot train for this driver, "" where it can.
    """

    node: str
    host: str
    problem: str = ""


def _problem(plan: WorkerPlan) -> str:
    if difference := Code().difference(plan.work.code):
        return difference
    with suppress(OSError, UnicodeDecodeError):
        if not plan.probe or Path(plan.probe).read_text(encoding="ascii") == plan.probe_text:
            return ""
    return (
        f"it does not see the study folder {Path(plan.probe).parents[1]}: put it on a disk that "
        "all nodes share, or give the study a `storage:`"
    )


def loggable(segment: Segment) -> Segment:
    """Leave out the log where the study folder cannot be seen.

    Only with a storage: without, such a node gets no segments.
    """
    if not segment.storage or segment.log is None or Path(segment.log).parent.is_dir():
        return segment
    return dataclasses.replace(segment, log=None)


class RayWorker:
    """Runs segments for a driver on another machine, one at a time.

    Its methods are called one after another. Processes that its segments have started end with this
    process, by the warden of its fork server, which also ends a process that a signal has stopped.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._executor: Executor | None = None

    def describe(self) -> WorkerInfo:
        """Say where this is and what runs here.

        Nothing heavy is imported yet.
        """
        node, address, devices = _place()
        # Before the fork server starts, whose children have the variables it was started with.
        os.environ.update(self._plan.variables)
        os.environ[ENDS_STOPPED] = "1"
        if devices:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        with suppress(OSError):  # the machine may have no such folder
            os.chdir(self._plan.folder or ".")
        host = socket.gethostname()
        if node:  # several nodes may be on one machine
            host = f"{address or host}/{node[:12]}"
        return WorkerInfo(node, host, _problem(self._plan))

    def free_port(self) -> tuple[str, int]:
        """Give the address of this machine and a port nobody listens at."""
        _, address, _ = _place()
        with socket.socket() as free:
            free.bind(("", 0))
            return address or socket.gethostname(), int(free.getsockname()[1])

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set variables for what is started here, before the first segment."""
        os.environ.update(variables)

    def exchange(self, segment: Segment | None, seconds: float) -> list[Report | Outcome]:
        """Take a segment on, unless it is None, and return news.

        Waits at most `seconds` for the first of it.
        """
        if self._executor is None:
            self._executor = self._plan.work.executor()
        if segment is not None:
            self._executor.submit([loggable(segment)])
        messages = self._executor.poll(seconds)
        end = time.monotonic() + _LINGER_SECONDS
        while messages and not isinstance(messages[-1], Outcome) and time.monotonic() < end:
            messages += self._executor.poll(_LINGER_SECONDS)
        return messages

    def cancel(self, segment: Segment) -> None:
        """End a segment before it ends by itself."""
        if self._executor is not None:
            self._executor.cancel(segment)

    def close(self) -> None:
        """End what runs here. Idempotent."""
        if self._executor is None:
            return
        self._executor.close()
        node, _, _ = _place()
        if node:
            # The actor is killed next: multiprocessing does not come to remove its folder.
            shutil.rmtree(util.get_temp_dir(), ignore_errors=True)


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
