"""Shares cores, memory and GPUs of one machine among segments.

Nothing here looks at the machine or starts anything: see `autorl.executors.machine`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from autorl.core.plain_text import counted
from autorl.core.types import InputError, Resources
from autorl.executors.worker import ONE_THREAD

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"(?:cuda:)?(?P<number>\d+)|(?P<uuid>(?:GPU|MIG)-[^\s,]+)")
_MOST_AT_ONCE = 10_000  # segments; nobody has so many of a thousandth of a core each


def visible_device(device: str | int, key: str = "executor.devices") -> str:
    """Name a device, or several of one segment, as CUDA_VISIBLE_DEVICES does.

    It is `0` for 0, "0" and "cuda:0", and `0,1` for "0,1" and "cuda:0, cuda:1"; GPU-... and MIG-...
    stay as they are.

    Raises:
        InputError: it is none of these, or names a device twice.
    """
    names: list[str] = []
    for part in str(device).split(","):
        match = _DEVICE.fullmatch(part.strip())
        if match is None:
            message = f"expected CUDA devices such as 0, cuda:0, GPU-<uuid> or 0,1, got {device!r}"
            raise InputError(message, key=key)
        names.append(match["number"] or match["uuid"])
    if len(set(names)) < len(names):
        raise InputError(f"{device!r} names a device twice", key=key)
    return ",".join(names)


def device_groups(devices: Iterable[str | int]) -> tuple[tuple[str, ...], ...]:
    """Group devices as a study file lists them.

    An entry with a comma is a group, and all others together are one. The devices of a segment are
    of one group.

    Raises:
        InputError: an entry names no device, or a device is in two groups.
    """
    entries = [visible_device(device) for device in devices]
    single = tuple(dict.fromkeys(entry for entry in entries if "," not in entry))
    groups = [tuple(entry.split(",")) for entry in dict.fromkeys(entries) if "," in entry]
    if single:
        groups.append(single)
    names = [name for group in groups for name in group]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"device {twice} is in two groups", key="executor.devices")
    return tuple(groups)


@dataclass(frozen=True)
class Capacity:
    """Resources of a machine for the segments of a study.

    Attributes:
        cpu: cores; None = not counted.
        memory_gb: GiB; None = not counted.
        groups: CUDA devices; those of a segment are of one group. Empty = not counted.
    """

    cpu: float | None = None
    memory_gb: float | None = None
    groups: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Placement:
    """The needs of a running segment, and the devices that meet them."""

    needs: Resources
    devices: tuple[str, ...] = ()


class Allocator:
    """Places segments on what a machine has.

    Shares are exact: ten tenths of a device are the whole of it. A device that a segment has whole
    is shared with no other.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._groups = capacity.groups
        self._amounts = {
            kind: _exact(amount)
            for kind, amount in (("cpu", capacity.cpu), ("memory_gb", capacity.memory_gb))
            if amount is not None
        }
        self._shares = {device: Fraction(1) for group in capacity.groups for device in group}

    def place(self, needs: Resources) -> Placement | None:
        """Take what a segment needs, None where that is not free."""
        if self._short(needs):
            return None
        placement = Placement(needs, self._devices(_exact(needs.gpu)) or ())
        self._take(placement, 1)
        return placement

    def release(self, placement: Placement) -> None:
        """Give back what a segment had."""
        self._take(placement, -1)

    def next(self, waiting: Iterable[Resources]) -> tuple[int, Placement] | None:
        """Place the first of those that wait which can start.

        The longest waiting segment is never overtaken: another segment may start before it only if
        it needs nothing that the first is short of, and leaves enough of all else.

        Args:
            waiting: needs in the order in which they began to wait.

        Returns:
            Its position and what it has, None where nothing can start.
        """
        first: Resources | None = None
        short: frozenset[str] = frozenset()
        refused: set[Resources] = set()
        before: Resources | None = None
        for position, needs in enumerate(waiting):
            # The segments of a study share one object: thousands may wait, looked at every time.
            if needs is before or needs in refused:
                continue
            before = needs
            refused.add(needs)
            if short & self._counted(needs).keys():
                continue
            placement = self.place(needs)
            if placement is None:
                if first is None:
                    first = needs
                    short = self._short(needs)
                    if "cpu" in short:  # which everybody needs
                        return None
                continue
            if first is None or self._short(first) == short:
                return position, placement
            self.release(placement)
        return None

    def _counted(self, needs: Resources) -> dict[str, Fraction]:
        """Return how much a segment needs of what is counted."""
        amounts = {"cpu": needs.cpu, "memory_gb": needs.memory_gb or 0.0, "gpu": needs.gpu}
        counted = {*self._amounts, *(("gpu",) if self._groups else ())}
        return {
            kind: _exact(amount) for kind, amount in amounts.items() if amount and kind in counted
        }

    def _short(self, needs: Resources) -> frozenset[str]:
        """Name what a segment needs and cannot have now."""
        return frozenset(
            kind
            for kind, amount in self._counted(needs).items()
            if (self._devices(amount) is None if kind == "gpu" else amount > self._amounts[kind])
        )

    def _devices(self, share: Fraction) -> tuple[str, ...] | None:
        """Choose the devices of a segment, None where too few are free.

        Devices with the least left over are chosen: a large free device stays free.
        """
        if share == 0 or not self._groups:
            return ()
        if share < 1:
            fitting = [device for device, free in self._shares.items() if free >= share]
            return (min(fitting, key=self._shares.__getitem__),) if fitting else None
        count = int(share)
        free_of_groups = [
            tuple(device for device in group if self._shares[device] == 1) for group in self._groups
        ]
        fitting_groups = [free for free in free_of_groups if len(free) >= count]
        return min(fitting_groups, key=len)[:count] if fitting_groups else None

    def _take(self, placement: Placement, sign: int) -> None:
        for kind, amount in self._counted(placement.needs).items():
            if kind == "gpu":
                for device in placement.devices:
                    self._shares[device] -= sign * min(amount, Fraction(1))
            else:
                self._amounts[kind] -= sign * amount


def shortage(capacity: Capacity, needs: Resources) -> tuple[str, str] | None:
    """Name a need of a segment that an idle machine cannot meet.

    Returns:
        The key of the resource and a message, None if the segment can run.
    """
    if capacity.cpu is not None and needs.cpu > capacity.cpu:
        cores = counted(needs.cpu, "core")
        return "cpu", f"{cores} a segment, but this machine has {capacity.cpu:g}"
    memory = capacity.memory_gb
    if memory is not None and needs.memory_gb is not None and needs.memory_gb > memory:
        return "memory_gb", f"{needs.memory_gb:g} GiB a segment, but this machine has {memory:.1f}"
    largest = max(map(len, capacity.groups), default=0)
    if capacity.groups and needs.gpu > largest:
        have = f"there are {largest}"
        if len(capacity.groups) > 1:
            have = f"the largest group of executor.devices has {largest}"
        return "gpu", f"{counted(needs.gpu, 'GPU')} a segment, but {have}"
    return None


def most_at_once(capacity: Capacity, needs: Iterable[Resources]) -> int:
    """Count how many segments of these kinds run at once at most.

    The least first, which leaves most for others.
    """
    allocator = Allocator(capacity)
    count = 0
    for kind in sorted(set(needs), key=lambda kind: (kind.gpu, kind.cpu, kind.memory_gb or 0.0)):
        while count < _MOST_AT_ONCE and allocator.place(kind) is not None:
            count += 1
    return count


def variables(placement: Placement, capacity: Capacity) -> dict[str, str]:
    """Make the environment variables of a segment.

    They say which GPUs it sees, and how many threads its libraries have.
    """
    result: dict[str, str] = {}
    if capacity.groups:
        # Empty for who needs none: it would take a GPU that others have.
        result[VISIBLE_DEVICES] = ",".join(placement.devices)
    count = thread_count(placement.needs)
    if count > 1:
        result |= dict.fromkeys(ONE_THREAD, str(count))
    return result


def thread_count(needs: Resources) -> int:
    """Return the threads that the libraries of a segment may start."""
    return max(1, int(needs.cpu))


def _exact(amount: float) -> Fraction:
    return Fraction(str(amount))  # a tenth as it is written, not as it is stored
