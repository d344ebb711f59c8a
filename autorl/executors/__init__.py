"""Executors of segments.

They run in this process, in threads, in processes, or on other machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorl.executors.devices import Capacity, visible_device
from autorl.executors.folder import Folder
from autorl.executors.in_process import InProcess
from autorl.executors.processes import Processes
from autorl.executors.queued import Limits
from autorl.executors.ray import Ray
from autorl.executors.ray_cluster import Cluster, check_address, check_answers
from autorl.executors.ray_worker import Kind
from autorl.executors.threads import Threads
from autorl.executors.worker import Load
from autorl.types import Executor, InputError

__all__ = [
    "Capacity",
    "Folder",
    "InProcess",
    "Limits",
    "Load",
    "Processes",
    "Ray",
    "Threads",
    "check",
    "check_answers",
    "make",
    "make_ray",
    "names",
]


def names() -> tuple[str, ...]:
    return ("in_process", "threads", "processes", "ray", "folder")


def make(
    name: str,
    load: Load,
    workers: int,
    *,
    preload: Sequence[str] = (),
    limits: Limits | None = None,
    devices: Sequence[str] = (),
    capacity: Capacity | None = None,
) -> Executor:
    """Make the executor called `name` with `workers` slots, on this machine.

    Of `capacity`, what this machine has, each segment is given what it needs (`processes`).

    Raises:
        InputError: there is no such executor, it cannot enforce the limits or devices asked for, or
            it needs a study, as `Folder` does.
    """
    limits = limits or Limits()
    check(name, limits, devices)
    if name == "folder":
        raise InputError("the `folder` executor needs the folder of a study", key="executor.name")
    if name == "processes":
        return Processes(
            load, workers, preload=preload, limits=limits, devices=devices, capacity=capacity
        )
    if name == "threads":
        return Threads(load, workers, preload=preload, limits=limits)
    return InProcess(load)


def make_ray(
    load: Load,
    address: str,
    *,
    kind: Kind,
    workers: int | None = None,
    cores: float | None = None,
    preload: Sequence[str] = (),
    limits: Limits | None = None,
    autoscaler: bool = False,
) -> Ray:
    """Make the executor whose workers are on a cluster of Ray.

    See `Ray` and `Cluster`.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """
    return Ray(
        load,
        Cluster(address, cores),
        kind=kind,
        workers=workers,
        preload=preload,
        limits=limits,
        autoscaler=autoscaler,
    )


def check(
    name: str, limits: Limits, devices: Sequence[str | int], address: str | None = None
) -> None:
    """Check that an executor can do what is asked of it.

    Nobody is asked at the address of a cluster: see `check_answers`.

    Raises:
        InputError: there is no such executor, or it cannot enforce the limits or assign the
            devices.
    """
    if name not in names():
        raise InputError(
            f"unknown executor {name!r}; known: {', '.join(names())}", key="executor.name"
        )
    if devices and name not in ("processes", "folder"):
        raise InputError(
            f"only the `processes` executor assigns devices, not {name!r}", key="executor.devices"
        )
    for device in devices:
        visible_device(device)
    if name == "ray":
        check_address(address or "local")
    elif address is not None:
        raise InputError(
            f"only the `ray` executor has an address, not {name!r}", key="executor.address"
        )
    if name == "in_process" and limits != Limits():
        raise InputError(
            "the `in_process` executor cannot enforce limits: use `processes`", key="limits"
        )
