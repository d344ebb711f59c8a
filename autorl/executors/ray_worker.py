"""Trains a segment in a process of Ray.

The process keeps its executor: Ray gives it the next segment of the driver. It knows of Ray no more
than where it is; see `autorl.executors.ray`.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from autorl.core.signals import held
from autorl.core.types import Executor, FrozenMap, Outcome, Report, Segment
from autorl.executors.devices import Capacity
from autorl.executors.elsewhere import Code, Work
from autorl.executors.supervisor import ENDS_STOPPED


@dataclass(frozen=True)
class WorkerPlan:
    """Orders of a driver to those who train for it.

    Attributes:
        work: how they train.
        token: what no other executor of a driver has.
        folder: working folder of the driver, taken where the machine has it.
        probe: a file in the study folder that the worker must be able to read; "" = none.
        probe_text: what the file says, random, so that no other file passes for it.
        variables: of the environment, for what is started.
    """

    work: Work
    token: str = ""
    folder: str = ""
    probe: str = ""
    probe_text: str = ""
    variables: FrozenMap = field(default_factory=FrozenMap)


class Place(NamedTuple):
    """The id of a node ("" outside Ray) and its address."""

    node: str
    host: str


@dataclass(frozen=True)
class Answer:
    """Messages about a segment from where it ran, its outcome last.

    Attributes:
        problem: why nothing can be trained there, "" where it can.
    """

    place: Place
    messages: tuple[Report | Outcome, ...] = ()
    problem: str = ""


_kept: dict[object, Executor] = {}
"""The executor of this process, by the driver's token and the devices."""


def train(plan: WorkerPlan, segment: Segment, tell: Callable[[Place | Report], None]) -> Answer:
    """Train a segment, and tell its driver of place and reports."""
    node, address, devices = _place()
    # Before the fork server starts, whose children have the variables it was started with.
    os.environ.update(plan.variables)
    os.environ[ENDS_STOPPED] = "1"
    with suppress(OSError):  # the machine may have no such folder
        os.chdir(plan.folder or ".")
    host = socket.gethostname()
    place = Place(node, f"{address or host}/{node[:12]}" if node else host)
    if problem := _problem(plan):
        return Answer(place, problem=problem)
    tell(place)
    with held():  # an interrupt amid it left a temporary folder
        executor = _executor(plan, devices)
    messages: list[Report | Outcome] = []
    try:
        executor.submit([loggable(segment)])
        while not messages or not isinstance(messages[-1], Outcome):
            for message in executor.poll(1.0):
                if isinstance(message, Outcome):
                    message = dataclasses.replace(message, host=place.host)
                else:
                    tell(message)
                messages.append(message)
    except KeyboardInterrupt:  # Ray's way to cancel
        executor.cancel(segment)
        raise
    return Answer(place, tuple(messages))


def free_port() -> tuple[str, int]:
    """Give the address of this machine and a port nobody listens at."""
    _, address, _ = _place()
    with socket.socket() as free:
        free.bind(("", 0))
        return address or socket.gethostname(), int(free.getsockname()[1])


def gang_environment(rank: int, world_size: int, address: str, port: int) -> dict[str, str]:
    """Make the variables by which a host finds its gang.

    `RANK` and `WORLD_SIZE` count hosts: launchers replace them for the processes they start.
    `PET_...` are the defaults of `torchrun`'s own options, so that it needs none of them.

    Args:
        rank: number of this host, from 0; host 0 is the one the others connect to.
        world_size: number of hosts.
        address: of host 0, as the others reach it.
        port: free on host 0.
    """
    master = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    hosts = {"NNODES": str(world_size), "NODE_RANK": str(rank)}
    return {
        **master,
        **hosts,
        **{f"PET_{name}": value for name, value in (master | hosts).items()},
        "WORLD_SIZE": str(world_size),
        "RANK": str(rank),
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }


def loggable(segment: Segment) -> Segment:
    """Leave out the log where the study folder cannot be seen.

    Only with a storage: without, such a node gets no segments.
    """
    if not segment.storage or segment.log is None or Path(segment.log).parent.is_dir():
        return segment
    return dataclasses.replace(segment, log=None)


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


def _executor(plan: WorkerPlan, devices: tuple[str, ...]) -> Executor:
    key = plan.token, devices
    if key not in _kept:
        for executor in _kept.values():
            executor.close()
        _kept.clear()
        _kept[key] = plan.work.executor(capacity=Capacity(groups=(devices,) if devices else ()))
    return _kept[key]


def _place() -> tuple[str, str, tuple[str, ...]]:
    """Return the node, address and devices of this process.

    They are empty outside of Ray.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return "", "", ()
    context = ray.get_runtime_context()
    devices = tuple(map(str, context.get_accelerator_ids().get("GPU", [])))
    return context.get_node_id(), ray.util.get_node_ip_address(), devices
