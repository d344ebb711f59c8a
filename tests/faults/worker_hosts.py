"""Hosts of a study's segments, and the processes that a fault there strikes.

A worker is the process that holds segments for the driver: a process of a segment (`processes`), a
task of Ray (`ray`). A node is the worker with all that one machine runs: also the driver (`processes`),
also the raylet (`ray`), also the rest of the job (`slurm`).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from fault_machinery import Place, members

from autorl.core.os_processes import descendants, stat

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "executors"))

from ray_processes import Nodes

WORKER, NODE, DRIVER, STOPPED = "worker", "node", "driver", "stopped worker"
FAULTS = (WORKER, NODE, DRIVER, STOPPED)
TRAINS = "ray::autorl"
# The working folder of a script of `command` lies in the scratch folder of its attempt.
_SCRATCH = re.compile(r"/\.tmp-(?P<segment>[^/]+)-(?P<epoch>\d+)-(?P<number>\d+)/")
# In command lines, which Ray's own processes do not hold.
_OURS = (TRAINS, "multiprocessing.forkserver", "train.py", "-m\0autorl")


@dataclass(frozen=True, order=True)
class Attempt:
    """An attempt at a segment that is being trained.

    Attributes:
        segment: its name.
        epoch, number: of its fence.
        script: process id of the program that trains.
    """

    segment: str
    epoch: int
    number: int
    script: int


def attempts(marker: str) -> list[Attempt]:
    """The attempts that processes of a case train just now."""
    running = []
    for pid in members(marker):
        with suppress(OSError):
            match = _SCRATCH.search(os.readlink(f"/proc/{pid}/cwd"))
            if match is not None:
                fence = int(match["epoch"]), int(match["number"])
                running.append(Attempt(match["segment"], *fence, pid))
    return sorted(running)


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on; empty once the process is gone."""
    above = []
    process = stat(pid)
    while process is not None and process.parent > 1:
        above.append(process.parent)
        process = stat(process.parent)
    return above


def command_line(pid: int) -> str:
    """The words of a process's command line, each ended by a zero; empty once it is gone."""
    with suppress(psutil.Error):
        return "\0".join(psutil.Process(pid).cmdline())
    return ""


def send(number: signal.Signals, pids: Iterable[int]) -> bool:
    """Signal processes, and say whether the first of them was there."""
    reached = []
    for pid in pids:
        try:
            os.kill(pid, number)
            reached.append(True)
        except ProcessLookupError:
            reached.append(False)
    return reached[:1] == [True]


class OneMachine:
    """`processes`: workers are children of the driver's fork server.

    Attributes:
        executor: the section of the study file, once `begin` was called.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.executor: Mapping[str, Any] = {"name": "processes", "workers": 2}

    def begin(self) -> None:
        """Start what has to be there before the driver."""

    def tend(self) -> None:
        """Start anew what was killed or has left, while the driver runs."""

    def targets(self, fault: str, attempt: Attempt, rng: random.Random) -> list[int]:
        """The processes that a fault strikes, the worker's own first; empty once it has ended."""
        worker = self.worker_of(attempt)
        if worker is None:
            return []
        return self.machine_of(attempt, worker) if fault == NODE else [worker]

    def worker_of(self, attempt: Attempt) -> int | None:
        """The process that holds an attempt."""
        return next(iter(ancestors(attempt.script)), None)

    def machine_of(self, attempt: Attempt, worker: int) -> list[int]:
        """All processes of the worker's machine."""
        return [worker, *members(self.place.marker)]

    def left(self) -> list[int]:
        """Processes of an ended study that should be gone."""
        return list(members(self.place.marker))

    def close(self) -> None:
        """End what does not end with the study."""


class SlurmJobs(OneMachine):
    """`slurm`: jobs are processes of this machine, which submitit starts."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.executor = {"name": "slurm", "cluster": "local", "batch": 2}

    def machine_of(self, attempt: Attempt, worker: int) -> list[int]:
        above = ancestors(worker)
        jobs = [pid for pid in above if "submitit.local._local" in command_line(pid)]
        return [pid for job in jobs for pid in (worker, job, *descendants(job))]


class RayNodes(OneMachine):
    """`ray`: a head and two nodes as processes of their own; a node that is gone is replaced."""

    most = 2

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.folder = Path(
            tempfile.mkdtemp(prefix="art-", dir="/tmp")
        )  # Ray's sockets: short paths
        self.cluster: Nodes | None = None
        self.nodes: list[Any] = []

    def begin(self) -> None:
        home = self.place.folder / "home"
        home.mkdir()
        variables = self.place.variables | {
            "HOME": str(home),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that is stopped counts as dead after some 20 s; by default after a minute.
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "3",
        }
        self.cluster = Nodes(variables, self.place.folder, self.folder)
        self.place.variables = self.cluster.variables
        self.executor = {"name": "ray", "address": self.cluster.address}
        self.tend()

    def tend(self) -> None:
        assert self.cluster is not None
        self.nodes = [node for node in self.nodes if node.poll() is None]
        while len(self.nodes) < self.most:
            self.nodes.append(self.cluster.add())

    def targets(self, fault: str, attempt: Attempt, rng: random.Random) -> list[int]:
        # A stopped process is ended by its node; a machine that was stopped as a whole comes back.
        whole = fault == NODE or (fault == STOPPED and rng.random() < 0.5)
        return super().targets(NODE if whole else WORKER, attempt, rng)

    def worker_of(self, attempt: Attempt) -> int | None:
        above = ancestors(attempt.script)
        return next((pid for pid in above if command_line(pid).startswith(TRAINS)), None)

    def machine_of(self, attempt: Attempt, worker: int) -> list[int]:
        above = ancestors(worker)
        return [
            pid
            for node in self.nodes
            if node.pid in above
            for pid in (worker, node.pid, *descendants(node.pid))
        ]

    def left(self) -> list[int]:
        # Ray writes the titles of its workers over their environment.
        below = [pid for node in self.nodes for pid in descendants(node.pid)]
        pids = {*members(self.place.marker), *below}
        return [pid for pid in pids if any(part in command_line(pid) for part in _OURS)]

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)


HOSTS: dict[str, type[OneMachine]] = {"ray": RayNodes, "processes": OneMachine, "slurm": SlurmJobs}
