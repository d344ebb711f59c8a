"""Says where segments will run: how many at once, on which devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

from autorl.core.plain_text import counted
from autorl.core.plain_values import plain
from autorl.core.types import Resources
from autorl.executors.devices import (
    VISIBLE_DEVICES,
    Allocator,
    Capacity,
    most_at_once,
    thread_count,
    variables,
    visible_device,
)
from autorl.executors.worker import ONE_THREAD
from autorl.study.setup import ON_THIS_MACHINE, capacity, executor_name, segments_at_once
from autorl.study.spec import Spec

_MOST_SHOWN = 8  # places of one algorithm


@dataclass(frozen=True)
class Share:
    """Resources of the segments of one algorithm.

    Attributes:
        algorithm: "" where the study has one trainer.
        needs: of a segment.
        at_once: segments of this algorithm alone; None: another machine decides it.
        visible: the values of CUDA_VISIBLE_DEVICES, and how many segments have each.
    """

    algorithm: str
    needs: Resources
    at_once: int | None
    visible: dict[str, int]


def _shares(spec: Spec) -> list[Share]:
    """List what the segments of each algorithm have."""
    name = executor_name(spec)
    needs = spec.resources_by_algorithm
    if name not in ON_THIS_MACHINE:
        return [Share(algorithm, need, None, {}) for algorithm, need in needs.items()]
    of_machine = capacity(spec)
    at_once = segments_at_once(spec, name)
    devices = spec.executor.devices
    result = []
    for algorithm, need in needs.items():
        count = at_once
        if of_machine != Capacity():
            count = min(count, most_at_once(of_machine, [need]))
        visible: list[str] = []
        if of_machine.groups:  # which segments choose one after another
            allocator = Allocator(of_machine)
            placed = (allocator.place(need) for _ in range(count))
            visible = [variables(place, of_machine)[VISIBLE_DEVICES] for place in placed if place]
        elif devices:  # which slots take in turn
            visible = [visible_device(devices[slot % len(devices)]) for slot in range(count)]
        result.append(Share(algorithm, need, count, dict(Counter(visible))))
    return result


def placement_rows(spec: Spec) -> list[tuple[str, str]]:
    """Write the resources of the segments of each algorithm.

    There are no rows if nobody asks for any.
    """
    plain_study = set(spec.resources_by_algorithm.values()) == {Resources()}
    if plain_study and not spec.executor.devices and spec.resources is None:
        return []
    rows = []
    for share in _shares(spec):
        where = f"placed by `{executor_name(spec)}`"
        if share.at_once is not None:
            where = f"at most {share.at_once} at once on this machine"
        said = [("resources", f"{_needs_text(share.needs)} a segment; {where}")]
        if share.visible:
            places = [
                f"{devices or 'none'} ({counted(count, 'segment')})"
                for devices, count in islice(share.visible.items(), _MOST_SHOWN)
            ]
            more = len(share.visible) - _MOST_SHOWN
            places += [f"{more} more"] if more > 0 else []
            said.append(("devices", f"{VISIBLE_DEVICES} = {'; '.join(places)}"))
        threads = thread_count(share.needs)
        if threads > 1:
            said.append(("threads", f"{', '.join(ONE_THREAD)} = {threads}"))
        if share.needs.nodes > 1:
            text = f"MASTER_ADDR, MASTER_PORT, WORLD_SIZE = {share.needs.nodes}, RANK of each host"
            said.append(("gang", text))
        prefix = f"{share.algorithm}: " if share.algorithm else ""
        rows += [(name, prefix + text) for name, text in said]
    return rows


def placement_list(spec: Spec) -> list[dict[str, object]]:
    """Return what the segments of each algorithm have, as JSON types."""
    return [
        {
            "algorithm": share.algorithm,
            "needs": vars(share.needs) | {"custom": plain(share.needs.custom)},
            "at_once": share.at_once,
            "visible_devices": share.visible,
            "threads": thread_count(share.needs),
        }
        for share in _shares(spec)
    ]


def _needs_text(needs: Resources) -> str:
    """Write what a segment needs: `1 core, 2 GPUs`."""
    parts = [counted(needs.cpu, "core", form="g")]
    if needs.gpu:
        parts.append(f"{needs.gpu:g} {'GPU' if needs.gpu <= 1 else 'GPUs'}")
    if needs.memory_gb is not None:
        parts.append(f"{needs.memory_gb:g} GiB")
    parts += [f"{amount:g} {name}" for name, amount in needs.custom.items()]
    if needs.nodes > 1:
        parts.append(f"on each of {needs.nodes} hosts")
    return ", ".join(parts)
