"""Compares what segments need with what this machine has."""

from __future__ import annotations

import os

from autorl.executors import machine
from autorl.executors.devices import Capacity, most_at_once, shortage
from autorl.spec import Spec
from autorl.types import InputError, Resources

ON_THIS_MACHINE = ("in_process", "threads", "processes")
"""Executors that run segments where the driver is. Others know their own machines."""


def capacity(spec: Spec) -> Capacity:
    """Look up what this machine has of what the segments need.

    Cores count where the study file or a trainer says how many; else `executor.workers` alone
    decides how many segments run at once.

    Raises:
        InputError: GPUs are asked for, and there are none.
    """
    needs = spec.resources_by_algorithm
    states_cpu = any(
        section.cpu is not None for name in needs for _, section in spec.resource_sections(name)
    )
    cpu = None
    if states_cpu or any(need.cpu != 1 for need in needs.values()):
        cpu = machine.cores()
    memory_gb = None
    if any(need.memory_gb is not None for need in needs.values()):
        memory_gb = machine.memory_gb()
    groups: tuple[tuple[str, ...], ...] = ()
    asking = next((name for name, need in needs.items() if need.gpu), None)
    if asking is not None:
        try:
            groups = machine.gpu_groups(spec.executor.devices)
        except InputError as error:
            if error.key != "resources.gpu":
                raise
            raise InputError(error.message, key=_key(spec, asking, "gpu")) from None
    return Capacity(cpu, memory_gb, groups)


def check_resources(spec: Spec, executor: str) -> None:
    """Check that this machine has what a segment of each algorithm needs.

    Nothing is said of an executor with other machines.

    Raises:
        InputError: it has less, or the executor cannot give it.
    """
    if executor not in ON_THIS_MACHINE:
        return
    for algorithm, needs in spec.resources_by_algorithm.items():
        refusal = _refusal(executor, needs)
        if refusal is not None:
            kind, message = refusal
            raise InputError(message, key=_key(spec, algorithm, kind))
    of_machine = capacity(spec)
    for algorithm, needs in spec.resources_by_algorithm.items():
        lacking = shortage(of_machine, needs)
        if lacking is not None:
            kind, message = lacking
            raise InputError(message, key=_key(spec, algorithm, kind))


def segments_at_once(spec: Spec, executor: str, workers: int | None = None) -> int:
    """Count how many segments of a study run at once at most.

    Args:
        spec: the study.
        executor: its name.
        workers: instead of `executor.workers`.

    Raises:
        InputError: GPUs are asked for, and there are none.
    """
    if executor == "in_process":
        return 1
    stated = workers or spec.executor.workers
    cores = os.cpu_count() or 1
    of_machine = Capacity() if executor not in ON_THIS_MACHINE else capacity(spec)
    if of_machine == Capacity():
        return stated or cores
    needs = spec.resources_by_algorithm.values()
    most = most_at_once(of_machine, needs)
    if all(need.gpu > 0 for need in needs) or of_machine.cpu is not None:
        return max(1, min(stated or most, most))
    return max(1, min(stated or cores, most))


def _refusal(executor: str, needs: Resources) -> tuple[str, str] | None:
    """Say what an executor of this machine cannot give, with its key."""
    if needs.nodes > 1:
        message = f"{needs.nodes} hosts a segment: `{executor}` has one, use the executor `ray`"
        return "nodes", message
    if needs.custom:
        names = ", ".join(needs.custom)
        return "custom", f"{names}: only nodes of a cluster have such, use the executor `ray`"
    if needs.gpu and executor != "processes":
        return "gpu", f"`{executor}` assigns no GPUs to segments, only `processes` and `ray` do"
    return None


def _key(spec: Spec, algorithm: str, kind: str) -> str:
    """Name the key that says what an algorithm needs of a resource."""
    for key, section in spec.resource_sections(algorithm):
        if kind in section.stated():
            return f"{key}.{kind}"
    return f"resources.{kind}"  # the trainer asks for it
