"""Reckons what the nodes of a cluster have left for workers.

Ray itself decides where a worker goes, as others may use the cluster too. What is reckoned here
keeps this study from asking for more workers than the nodes have room for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from autorl.executors.ray_cluster import Node, needs
from autorl.plain_text import counted
from autorl.types import Resources

_LOOK_SECONDS = 2.0
_ROUNDING = 1e-6  # of sums of fractions
_RAY_OWN = ("object_store_memory", "memory")

Taken = tuple[str | None, Mapping[str, float]]
"""A node, None where it is not known yet, and amounts that a worker has of it."""


class SeesNodes(Protocol):
    """A cluster, as far as its nodes are concerned."""

    def nodes(self) -> list[Node]: ...


class Nodes:
    """The nodes that are alive, looked at every other second.

    Attributes:
        excluded: why nodes are not used, by their ids.
    """

    def __init__(self, cluster: SeesNodes) -> None:
        self.excluded: dict[str, str] = {}
        self._cluster = cluster
        self._nodes: dict[str, Node] = {}
        self._looked: float | None = None

    def look(self, now: float, *, at_once: bool = False) -> bool:
        """Bring the list up to date.

        Returns:
            Whether the cluster was asked, which is done every other second.
        """
        if not at_once and self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        self._nodes = {node.id: node for node in self._cluster.nodes()}
        return True

    def is_alive(self, node: str) -> bool:
        """Tell whether a node was alive when last looked at."""
        return node in self._nodes

    @property
    def usable(self) -> list[Node]:
        """The nodes that are alive and not excluded."""
        return [node for node in self._nodes.values() if node.id not in self.excluded]

    def capacity(self, resources: Resources) -> int:
        """Count the segments that fit on all nodes together, were these empty."""
        fits = [_count(node.resources, needs(resources)) for node in self.usable]
        if resources.nodes > 1:
            return sum(1 for count in fits if count) // resources.nodes
        return sum(fits)

    def room(
        self, resources: Resources, taken: Iterable[Taken], avoid: Collection[str] = ()
    ) -> tuple[str, int] | None:
        """Find the node with most room for segments.

        Args:
            resources: of one segment.
            taken: what workers have already. One whose node is not known counts where it fits.
            avoid: nodes that are not looked for.

        Returns:
            The node's id, and how many segments fit there. None where there is no room.
        """
        remaining = {node.id: dict(node.resources) for node in self.usable}
        somewhere = []
        for place, amounts in taken:
            if place is None:
                somewhere.append(amounts)
            elif place in remaining:
                _take(remaining[place], amounts)
        for amounts in somewhere:
            fitting = [node for node in remaining.values() if _count(node, amounts)]
            if fitting:
                _take(fitting[0], amounts)
        amounts = needs(resources)
        counts = {
            place: _count(remaining[place], amounts) for place in remaining if place not in avoid
        }
        best = max(counts, key=lambda place: counts[place], default=None)
        return (best, counts[best]) if best is not None and counts[best] else None

    def has_hosts(self, resources: Resources, taken: Sequence[Taken]) -> bool:
        """Tell whether enough nodes have room for a gang."""
        hosts: set[str] = set()
        while len(hosts) < resources.nodes:
            place = self.room(resources, taken, hosts)
            if place is None:
                return False
            hosts.add(place[0])
        return True

    def missing(self, resources: Resources) -> str:
        """Say what a segment needs that no node has.

        Returns:
            "" where one has it all.
        """
        if self.capacity(resources):
            return ""
        lines = []
        for name, amount in needs(resources).items():
            most = max((node.resources.get(name, 0.0) for node in self.usable), default=0.0)
            if amount > most + _ROUNDING:
                lines.append(f"{_shown(name, amount)} (the most a node has: {_shown(name, most)})")
        if not lines:
            hosts = (
                f" on each of {resources.nodes} nodes" if resources.nodes > 1 else " on one node"
            )
            lines = [
                ", ".join(_shown(name, amount) for name, amount in needs(resources).items())
                + f"{hosts} ({counted(len(self.usable), 'node', 'are')} there)"
            ]
        return " and ".join(lines)


def _count(left: Mapping[str, float], amounts: Mapping[str, float]) -> int:
    """Count how often amounts fit into what is left."""
    counts = [
        int((left.get(name, 0.0) + _ROUNDING * amount) / amount) for name, amount in amounts.items()
    ]
    return min(counts, default=1)


def _take(left: dict[str, float], amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        left[name] = left.get(name, 0.0) - amount


def _shown(name: str, amount: float) -> str:
    if name in _RAY_OWN:
        return f"{amount / 2**30:.3g} GiB of {name}"
    return f"{amount:g} {name}"
