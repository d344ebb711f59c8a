"""Runs segments on the nodes of a cluster of Ray.

Its workers are actors that hold an executor of their machine, each for one segment at a time. Ray
places the actors and carries segments and outcomes. The study alone decides which segments are
tried again, and what a lost worker means: no actor is restarted, the queue stays with the driver,
and nothing that must last lies in Ray's object store.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorl.core.plain_text import counted
from autorl.core.types import (
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Resources,
    Segment,
    SegmentId,
    Status,
    StudyError,
)
from autorl.executors.elsewhere import Work
from autorl.executors.ray_cluster import Cluster, Node, WorkerLostError, WorkerUnusableError, needs
from autorl.executors.ray_gang import GangRun
from autorl.executors.ray_worker import WorkerInfo, WorkerPlan
from autorl.executors.worker import failure

_WAIT_SECONDS = 0.5  # how often nodes and idle workers are looked at while nothing else happens
_LOOK_SECONDS = 2.0  # between two looks at the nodes
_POLL_SECONDS = 1.0  # a worker waits so long for news of its segment before it answers
_IDLE_SECONDS = 60.0  # then a worker's share of its node is given back
_ROOM_SECONDS = 60.0  # a worker that has not begun by then waits for room
_CLOSE_SECONDS = 5.0
DOUBT_SECONDS = 30.0  # Ray listed a killed node as dead 13 s after it was gone
_ROUNDING = 1e-6  # of sums of fractions


@dataclass(eq=False)
class _Worker:
    """An actor, and the segment it has.

    Attributes:
        call: what it was asked last, until it has answered.
        asked: when the worker was asked for; idle_since: since when it has no segment.
        info: what it says of itself, None before it has begun.
    """

    handle: Any
    resources: Resources
    asked: float
    idle_since: float
    call: Any = None
    info: WorkerInfo | None = None
    segment: Segment | None = None
    given_at: float = 0.0

    @property
    def node(self) -> str | None:
        return None if self.info is None else self.info.node

    @property
    def is_free(self) -> bool:
        return self.info is not None and self.segment is None and self.call is None


@dataclass(frozen=True)
class _Doubt:
    """An attempt whose worker is out of reach, nobody knows why."""

    outcome: Outcome
    segment: Segment
    node: str | None
    since: float


class Ray:
    """An executor whose workers are actors on the nodes of a cluster.

    Workers are asked for when segments wait, and given back when they have been idle for a minute.
    Nodes may join and leave.

    Args:
        work: how a worker trains.
        cluster: the workers run on; closed with the executor.
        workers: most segments at once; None = as many as the nodes have room for.
        autoscaler: whether the cluster adds nodes for workers that there is no room for.
    """

    copies = True  # a slow node is no other's fault

    def __init__(
        self, work: Work, cluster: Cluster, *, workers: int | None = None, autoscaler: bool = False
    ) -> None:
        variables = {}
        if "XDG_CONFIG_HOME" in os.environ:  # where the key lies that checkpoints are signed with
            variables["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_HOME"]
        self._plan = WorkerPlan(work, folder=os.getcwd(), variables=FrozenMap(variables))
        self._cluster = cluster
        self._most = workers
        self._autoscaler = autoscaler and workers is not None
        self._nodes: dict[str, Node] = {}
        self._looked = 0.0
        self._excluded: set[str] = set()
        self._queues: dict[Resources, deque[Segment]] = {}
        self._workers: list[_Worker] = []
        self._gangs: list[GangRun] = []
        self._doubts: list[_Doubt] = []
        self._lost_on: dict[SegmentId, set[str]] = {}
        self._results: list[Report | Outcome] = []
        self._told: set[str] = set()
        self._closed = False
        self._look_at_nodes(time.monotonic())

    # -- the contract ------------------------------------------------------------------------------

    def submit(self, segments: Sequence[Segment]) -> None:
        """Take segments on.

        Raises:
            InputError: no node has what one needs.
        """
        for segment in segments:
            if segment.resources not in self._queues:
                self._check_possible(segment.resources)
                self._queues[segment.resources] = deque()
            # With a storage a node needs the study folder for nothing but logs.
            if not (self._plan.probe or segment.storage) and segment.scratch:
                self._write_probe(Path(segment.scratch).parent)
            self._queues[segment.resources].append(segment)
        self._advance(time.monotonic())

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened, after at most `timeout` seconds if nothing has.

        Raises:
            StudyError: no node is left that can be used.
        """
        deadline = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            self._watch(now)
            self._advance(now)
            if self._results or not self._busy() or now >= deadline:
                results = self._results
                self._results = []
                return results
            receivers = self._receivers()
            seconds = min(_WAIT_SECONDS, deadline - now)
            if not receivers:  # it waits for nodes, or for the news that one is gone
                time.sleep(seconds)
            for call in self._cluster.wait(list(receivers), seconds):
                receivers[call](call)

    def cancel(self, segment: Segment) -> None:
        """Stop one attempt.

        Its worker hears of it with the next call, within a second or so.
        """
        queue = self._queues.get(segment.resources, deque())
        self._queues[segment.resources] = deque(
            waiting for waiting in queue if waiting.key != segment.key
        )
        for worker in self._workers:
            if worker.segment is not None and worker.segment.key == segment.key:
                worker.segment = None
                worker.call = self._cluster.call(worker.handle, "cancel", segment)
        for run in [run for run in self._gangs if run.segment.key == segment.key]:
            self._end_gang(run)
        self._doubts = [doubt for doubt in self._doubts if doubt.segment.key != segment.key]

    def close(self) -> None:
        """End all workers and leave the cluster. Idempotent."""
        if self._closed:
            return
        self._closed = True
        calls = [self._cluster.call(worker.handle, "close") for worker in self._workers]
        deadline = time.monotonic() + _CLOSE_SECONDS
        while calls and (seconds := deadline - time.monotonic()) > 0:
            for call in self._cluster.wait(calls, seconds):
                calls.remove(call)
        for worker in list(self._workers):
            self._dismiss(worker)
        for run in list(self._gangs):
            self._end_gang(run)
        self._queues.clear()
        self._doubts.clear()
        if self._plan.probe:
            Path(self._plan.probe).unlink(missing_ok=True)
        self._cluster.close()

    # -- what runs and what waits ------------------------------------------------------------------

    def _busy(self) -> bool:
        running = any(worker.segment is not None for worker in self._workers)
        return running or bool(self._gangs or self._doubts) or any(self._queues.values())

    def _receivers(self) -> dict[Any, Callable[[Any], None]]:
        """Give what takes the answer to each open call."""
        receivers: dict[Any, Callable[[Any], None]] = {
            worker.call: functools.partial(self._receive, worker)
            for worker in self._workers
            if worker.call is not None
        }
        for run in self._gangs:
            for call in run.calls:
                receivers[call] = functools.partial(self._receive_of_gang, run)
        return receivers

    def _advance(self, now: float) -> None:
        """Hand out what waits, and ask for workers."""
        for resources, queue in self._queues.items():
            forming = any(run.segment.resources == resources for run in self._gangs)
            if queue or forming:
                self._dismiss_others(resources)
            if queue and resources.nodes > 1:
                self._form_gangs(resources, queue, now)
            elif queue:
                self._hand_out(resources, queue, now)
                self._hire(resources, queue, now)

    def _hand_out(self, resources: Resources, queue: deque[Segment], now: float) -> None:
        """Give segments to free workers, best on nodes new to them."""
        free = [
            worker for worker in self._workers if worker.resources == resources and worker.is_free
        ]
        while queue and free:
            segment = queue.popleft()
            avoid = self._lost_on.get(segment.id, set())
            worker = min(free, key=lambda worker: worker.node in avoid)
            free.remove(worker)
            worker.segment = segment
            worker.given_at = now
            self._exchange(worker, segment)

    def _exchange(self, worker: _Worker, segment: Segment | None = None) -> None:
        worker.call = self._cluster.call(worker.handle, "exchange", segment, _POLL_SECONDS)

    # -- workers -----------------------------------------------------------------------------------

    def _hire(self, resources: Resources, queue: deque[Segment], now: float) -> None:
        """Ask for workers for what waits, as many as there are slots."""
        coming = [
            worker
            for worker in self._workers
            if worker.resources == resources and worker.segment is None
        ]
        missing = len(queue) - len(coming)
        avoid = set[str]().union(*(self._lost_on.get(segment.id, set()) for segment in queue))
        for _ in range(min(missing, self._free_slots(resources))):
            handle = self._cluster.start(self._plan, needs(resources), self._excluded, avoid)
            worker = _Worker(handle, resources, asked=now, idle_since=now)
            worker.call = self._cluster.call(handle, "describe")
            self._workers.append(worker)

    def _free_slots(self, resources: Resources) -> int:
        """Count the workers of a size that may still be asked for."""
        sizes = [worker.resources for worker in self._workers]
        sizes += [run.segment.resources for run in self._gangs]
        free = (
            sys.maxsize if self._autoscaler else self._capacity(resources) - sizes.count(resources)
        )
        return free if self._most is None else min(free, self._most - len(sizes))

    def _dismiss_others(self, resources: Resources) -> None:
        """Give back idle workers of other sizes, to make room."""
        for worker in list(self._workers):
            queue = self._queues.get(worker.resources)
            if worker.resources != resources and worker.is_free and not queue:
                self._dismiss(worker)

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._cluster.end(worker.handle)

    # -- answers -----------------------------------------------------------------------------------

    def _receive(self, worker: _Worker, call: object) -> None:
        if worker not in self._workers:
            return
        worker.call = None
        try:
            answer = self._cluster.result(call)
        except WorkerLostError as error:
            self._dismiss(worker)
            self._lose(worker.info, worker.segment, worker.given_at, error)
        except WorkerUnusableError as error:
            self._refuse(worker, str(error), self._nodes_at(error.address))
        else:
            if isinstance(answer, WorkerInfo):
                self._admit(worker, answer)
            elif worker.segment is not None:  # None: it has heard of a cancelled attempt
                self._take(worker, worker.segment, answer)

    def _admit(self, worker: _Worker, info: WorkerInfo) -> None:
        """Take a worker on, unless its node cannot be used."""
        worker.info = info
        worker.idle_since = time.monotonic()
        if info.problem:
            self._refuse(worker, info.problem, [info.node])

    def _take(
        self, worker: _Worker, segment: Segment, messages: Sequence[Report | Outcome]
    ) -> None:
        """Pass on what a worker says of the attempt it has."""
        for message in messages:
            if message.key != segment.key:
                continue
            if isinstance(message, Outcome):
                worker.segment = None
                worker.idle_since = time.monotonic()
                self._finish(message, worker.info)
                return
            self._results.append(message)
        self._exchange(worker)

    def _finish(self, outcome: Outcome, info: WorkerInfo | None) -> None:
        if info is not None:
            outcome = dataclasses.replace(outcome, host=info.host)
            self._note(outcome, info.node)
        self._results.append(outcome)

    # -- nodes -------------------------------------------------------------------------------------

    def _look_at_nodes(self, now: float) -> None:
        self._looked = now
        self._nodes = {node.id: node for node in self._cluster.nodes()}
        room = self._capacity(next(iter(self._queues), Resources()))
        self.slots = max(1, room if self._most is None else min(room, self._most))

    @property
    def _usable(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.id not in self._excluded]

    def _capacity(self, resources: Resources) -> int:
        """Count the segments that fit on all nodes together, were these empty."""
        fits = [_count(node, resources) for node in self._usable]
        if resources.nodes > 1:
            return sum(1 for count in fits if count) // resources.nodes
        return sum(fits)

    def _nodes_at(self, address: str) -> list[str]:
        return [node.id for node in self._nodes.values() if node.address == address]

    def _refuse(self, worker: _Worker, problem: str, nodes: Sequence[str]) -> None:
        """Give up a worker whose node cannot be used, and the node.

        Raises:
            StudyError: no node is left.
        """
        self._dismiss(worker)
        if worker.segment is not None:
            lost = failure(worker.segment, Status.LOST, problem, 0.0)
            self._results.append(dataclasses.replace(lost, preempted=True))
        for node in nodes:
            if node not in self._excluded:
                self._excluded.add(node)
                self._say(f"node {node[:12]} of the Ray cluster is not used: {problem}")
        if not self._capacity(worker.resources) and not self._autoscaler:
            raise StudyError(f"no node of the Ray cluster can be used; the last one: {problem}")

    def _check_possible(self, resources: Resources) -> None:
        """Refuse what no node of the cluster has.

        Raises:
            InputError: naming it.
        """
        self._look_at_nodes(time.monotonic())
        if self._capacity(resources):
            return
        message = f"no node of the Ray cluster has {self._missing(resources)}"
        if not self._autoscaler:
            raise InputError(message, key="resources")
        self._say(f"caution: {message}; waiting for the autoscaler")

    def _missing(self, resources: Resources) -> str:
        """Say what a segment needs that no node has."""
        lines = []
        for name, amount in needs(resources).items():
            most = max((node.resources.get(name, 0.0) for node in self._usable), default=0.0)
            if amount > most + _ROUNDING:
                lines.append(f"{_shown(name, amount)} (the most a node has: {_shown(name, most)})")
        if lines:
            return " and ".join(lines)
        hosts = f" on each of {resources.nodes} nodes" if resources.nodes > 1 else " on one node"
        amounts = ", ".join(_shown(name, amount) for name, amount in needs(resources).items())
        return f"{amounts}{hosts} ({counted(len(self._usable), 'node', 'are')} there)"

    def _write_probe(self, checkpoints: Path) -> None:
        """Write a file beside the checkpoints, for workers to read.

        It has the name of something unfinished, which is removed if the driver is killed.
        """
        checkpoints.mkdir(parents=True, exist_ok=True)
        probe = checkpoints.absolute() / f".tmp-probe-{secrets.token_hex(8)}"
        text = secrets.token_hex(16)
        probe.write_text(text, encoding="ascii")
        self._plan = dataclasses.replace(self._plan, probe=str(probe), probe_text=text)

    # -- losses ------------------------------------------------------------------------------------

    def _lose(
        self, info: WorkerInfo | None, segment: Segment | None, since: float, error: WorkerLostError
    ) -> None:
        """Report an attempt whose worker is gone or out of reach.

        A node that is gone says nothing against what ran there. That is decided when the cluster
        knows, within a bound.
        """
        if segment is None:
            return
        now = time.monotonic()
        where = f" on {info.host}" if info is not None else ""
        lost = failure(segment, Status.LOST, f"worker{where} lost: {error}", now - since)
        lost = dataclasses.replace(lost, host=info.host if info is not None else "")
        doubt = _Doubt(lost, segment, None if info is None else info.node, now)
        self._look_at_nodes(now)
        if error.preempted or error.certain or self._is_gone(doubt):
            self._settle(doubt, preempted=error.preempted or self._is_gone(doubt))
        else:
            self._doubts.append(doubt)

    def _is_gone(self, doubt: _Doubt) -> bool:
        return doubt.node is not None and doubt.node not in self._nodes

    def _settle(self, doubt: _Doubt, *, preempted: bool) -> None:
        outcome = dataclasses.replace(doubt.outcome, preempted=preempted)
        if doubt.node is not None:
            self._note(outcome, doubt.node)
        self._results.append(outcome)

    def _note(self, outcome: Outcome, node: str) -> None:
        """Remember where a segment was lost, until it ends otherwise."""
        if outcome.status is Status.LOST:
            self._lost_on.setdefault(outcome.segment, set()).add(node)
        else:
            self._lost_on.pop(outcome.segment, None)

    def _watch(self, now: float) -> None:
        """Look at nodes, doubtful losses and idle or waiting workers."""
        if now - self._looked >= _LOOK_SECONDS:
            self._look_at_nodes(now)
            if not self._usable and self._busy():
                self._say("no node of the Ray cluster is left: waiting for one")
        for doubt in list(self._doubts):
            if self._is_gone(doubt) or now - doubt.since > DOUBT_SECONDS:
                self._doubts.remove(doubt)
                self._settle(doubt, preempted=self._is_gone(doubt))
        for worker in list(self._workers):
            waiting = bool(self._queues.get(worker.resources))
            if waiting and worker.info is None and now - worker.asked > _ROOM_SECONDS:
                self._say("waiting for room on the Ray cluster: others use it, or a node starts")
            gone = worker.info is not None and worker.node not in self._nodes
            idle = worker.segment is None and now - worker.idle_since > _IDLE_SECONDS
            if not waiting and worker.segment is None and (gone or idle):
                self._dismiss(worker)

    # -- gangs -------------------------------------------------------------------------------------

    def _form_gangs(self, resources: Resources, queue: deque[Segment], now: float) -> None:
        """Begin segments that need several hosts, which Ray finds or waits for."""
        while queue and self._free_slots(resources) > 0:
            gang = self._cluster.start_gang(self._plan, needs(resources), resources.nodes)
            run = GangRun(gang, queue.popleft(), self._cluster.call, _POLL_SECONDS, now)
            run.describe()
            self._gangs.append(run)

    def _receive_of_gang(self, run: GangRun, call: object) -> None:
        if call not in run.calls:
            return
        rank = run.calls[call]
        try:
            answer = self._cluster.result(call)
        except WorkerLostError as error:
            self._end_gang(run)
            message = f"rank {rank} of {len(run.gang.workers)}: {error}"
            lost = WorkerLostError(
                message, certain=error.certain, preempted=error.preempted or not run.running
            )
            self._lose(run.infos.get(rank), run.segment, run.begun, lost)
            return
        except WorkerUnusableError as error:
            raise StudyError(f"a host of a gang cannot be used: {error}") from None
        if isinstance(answer, WorkerInfo) and answer.problem:
            raise StudyError(
                f"node {answer.node[:12]} cannot be a host of a gang: {answer.problem}"
            )
        for said in run.receive(call, answer):
            if isinstance(said, Outcome):
                self._end_gang(run)
                self._finish(said, run.infos.get(0))
                return
            self._results.append(said)

    def _end_gang(self, run: GangRun) -> None:
        self._gangs.remove(run)
        run.calls.clear()
        self._cluster.end_gang(run.gang)

    # ----------------------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        """Tell whoever runs the study, once."""
        if line not in self._told:
            self._told.add(line)
            with suppress(OSError):
                print(f"autorl: {line}", file=sys.stderr, flush=True)


def _count(node: Node, resources: Resources) -> int:
    """Count the segments that fit on an empty node."""
    counts = [
        int((node.resources.get(name, 0.0) + _ROUNDING * amount) / amount)
        for name, amount in needs(resources).items()
    ]
    return min(counts, default=1)


def _shown(name: str, amount: float) -> str:
    if name in ("object_store_memory", "memory"):
        return f"{amount / 2**30:.3g} GiB of {name}"
    return f"{amount:g} {name}"
