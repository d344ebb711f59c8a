"""Executors of segments.

They run in this process, in threads, in processes, or on other machines.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from autorl.core.types import Executor, InputError
from autorl.executors.devices import Capacity, visible_device
from autorl.executors.elsewhere import Kind, Work
from autorl.executors.in_process import InProcess
from autorl.executors.processes import Processes
from autorl.executors.queued import Limits
from autorl.executors.ray import Ray
from autorl.executors.ray_cluster import Cluster, check_address, check_answers
from autorl.executors.slurm import MOST_SEGMENTS, Slurm, SlurmCluster
from autorl.executors.threads import Threads
from autorl.executors.worker import Load

__all__ = [
    "MOST_SEGMENTS",
    "Cluster",
    "InProcess",
    "Kind",
    "Limits",
    "Ray",
    "Slurm",
    "SlurmCluster",
    "Work",
    "check",
    "check_answers",
    "make",
]

_NAMES = ("in_process", "threads", "processes", "ray", "slurm")


def make(
    name: str,
    load: Load,
    workers: int,
    *,
    preload: Sequence[str] = (),
    limits: Limits | None = None,
    capacity: Capacity | None = None,
) -> Executor:
    """Make the executor called `name` with `workers` slots, on this machine.

    With `processes` each segment gets what it needs of `capacity`, the resources of this machine.

    Raises:
        InputError: there is no such executor, or it cannot enforce the limits asked for.
    """
    limits = limits or Limits()
    check(name, limits)
    if name == "processes":
        return Processes(load, workers, preload=preload, limits=limits, capacity=capacity)
    if name == "threads":
        return Threads(load, workers, preload=preload, limits=limits)
    return InProcess(load)


def check(
    name: str, limits: Limits, devices: Sequence[str | int] = (), address: str | None = None
) -> None:
    """Check that an executor can do what is asked of it.

    Nobody is asked at the address of a cluster: see `check_answers`.

    Raises:
        InputError: there is no such executor, or it cannot enforce the limits or assign the
            devices.
    """
    if name not in _NAMES:
        message = f"unknown executor {name!r}; known: {', '.join(_NAMES)}"
        raise InputError(message, key="executor.name")
    if devices and name != "processes":
        message = f"only the `processes` executor assigns devices, not {name!r}"
        raise InputError(message, key="executor.devices")
    for device in devices:
        visible_device(device)
    if name == "slurm" and importlib.util.find_spec("submitit") is None:
        message = "the executor `slurm` needs submitit: pip install 'autorl[slurm]'"
        raise InputError(message, key="executor.name")
    if name == "ray":
        check_address(address or "local")
    elif address is not None:
        message = f"only the `ray` executor has an address, not {name!r}"
        raise InputError(message, key="executor.address")
    if name == "in_process" and limits != Limits():
        message = "the `in_process` executor cannot enforce limits: use `processes`"
        raise InputError(message, key="limits")
