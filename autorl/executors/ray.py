"""Runs segments on the nodes of a cluster of Ray.

A segment is a task of Ray, which finds the place, keeps the processes that train, and carries
segments and outcomes. The study alone decides which segments are tried again, and what a lost
worker means: Ray repeats no task, the queue stays with the driver, and nothing that must last lies
in Ray's object store.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from autorl.executors.ray_cluster import (
    Cluster,
    Node,
    WorkerEndedError,
    WorkerLostError,
    WorkerUnusableError,
    needs,
)
from autorl.executors.ray_worker import Answer, Place, WorkerPlan, gang_environment
from autorl.executors.worker import failure

_WAIT_SECONDS = 0.5  # how often nodes are looked at while nothing else happens
_LOOK_SECONDS = 2.0  # between two looks at the nodes
_ROOM_SECONDS = 60.0  # a segment that has not begun by then waits for room
DOUBT_SECONDS = 30.0  # Ray listed a killed node as dead 13 s after it was gone
_CLOSE_SECONDS = 5.0
_ROUNDING = 1e-6  # of sums of fractions


@dataclass(eq=False)
class _Run:
    """An attempt at a segment that runs on one host or several.

    Attributes:
        asked: when its hosts were asked for.
        calls: what is on its way, by the rank of the host.
        group: what reserves several hosts.
        places: where it has begun, by rank.
        n_reports: how many reports of rank 0 were passed on.
    """

    segment: Segment
    asked: float
    calls: dict[Any, int] = field(default_factory=dict)
    group: Any = None
    places: dict[int, Place] = field(default_factory=dict)
    n_reports: int = 0


@dataclass(frozen=True)
class _Doubt:
    """An attempt whose worker is out of reach, nobody knows why."""

    outcome: Outcome
    segment: Segment
    node: str | None
    since: float


class Ray:
    """An executor whose workers are processes on the nodes of a cluster.

    Nodes may join and leave.

    Args:
        work: how a worker trains.
        cluster: the workers run on; closed with the executor.
        workers: most segments at once; None = as many as the nodes have room for.
        autoscaler: whether the cluster adds nodes for segments that there is no room for.
    """

    copies = True  # a slow node is no other's fault

    def __init__(
        self, work: Work, cluster: Cluster, *, workers: int | None = None, autoscaler: bool = False
    ) -> None:
        variables = {}
        if "XDG_CONFIG_HOME" in os.environ:  # where the key lies that checkpoints are signed with
            variables["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_HOME"]
        token = secrets.token_hex(8)
        self._plan = WorkerPlan(work, token, folder=os.getcwd(), variables=FrozenMap(variables))
        self._cluster = cluster
        self._most = workers
        self._autoscaler = autoscaler and workers is not None
        self._nodes: dict[str, Node] = {}
        self._looked = 0.0
        self._excluded: set[str] = set()
        self._queues: dict[Resources, deque[Segment]] = {}
        self._runs: list[_Run] = []
        self._ending: deque[Any] = deque(maxlen=100)  # calls that were cancelled last
        self._doubts: list[_Doubt] = []
        self._lost_on: dict[SegmentId, set[str]] = {}
        self._results: list[Report | Outcome] = []
        self._told: set[str] = set()
        self._closed = False
        self._look_at_nodes(time.monotonic())
        self._news = cluster.news()

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
        self._hand_out(time.monotonic())

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened, after at most `timeout` seconds if nothing has.

        Raises:
            StudyError: no node is left that can be used.
        """
        deadline = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            self._watch(now)
            self._hand_out(now)
            if self._results or not self._busy() or now >= deadline:
                results = self._results
                self._results = []
                return results
            runs = {call: run for run in self._runs for call in run.calls}
            seconds = min(_WAIT_SECONDS, deadline - now)
            for call in self._cluster.wait([self._news, *runs], seconds):
                if call == self._news:
                    self._hear()
                elif call in runs[call].calls:
                    self._receive(runs[call], call)

    def cancel(self, segment: Segment) -> None:
        """Stop one attempt."""
        queue = self._queues.get(segment.resources, deque())
        self._queues[segment.resources] = deque(
            waiting for waiting in queue if waiting.key != segment.key
        )
        for run in [run for run in self._runs if run.segment.key == segment.key]:
            self._end(run)
        self._doubts = [doubt for doubt in self._doubts if doubt.segment.key != segment.key]

    def close(self) -> None:
        """End what runs and leave the cluster. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for run in list(self._runs):
            self._end(run)
        calls = list(self._ending)  # killed at once, their processes would leave temporary folders
        deadline = time.monotonic() + _CLOSE_SECONDS
        while calls and (seconds := deadline - time.monotonic()) > 0:
            for call in self._cluster.wait(calls, seconds):
                calls.remove(call)
        self._queues.clear()
        self._doubts.clear()
        if self._plan.probe:
            Path(self._plan.probe).unlink(missing_ok=True)
        self._cluster.close()

    # -- what runs and what waits ------------------------------------------------------------------

    def _busy(self) -> bool:
        return bool(self._runs or self._doubts) or any(self._queues.values())

    def _hand_out(self, now: float) -> None:
        """Give Ray as many segments as the nodes have room for."""
        for resources, queue in self._queues.items():
            while queue and self._free_slots(resources) > 0:
                run = _Run(queue.popleft(), now)
                self._runs.append(run)
                if resources.nodes > 1:
                    run.group = self._cluster.reserve(resources)
                    run.calls[self._cluster.free_port(run.group)] = 0
                    continue
                avoid = self._lost_on.get(run.segment.id, set())
                call = self._cluster.train(
                    self._plan, run.segment, excluded=self._excluded, avoid=avoid
                )
                run.calls[call] = 0

    def _free_slots(self, resources: Resources) -> int:
        """Count the segments of a size that may still be begun."""
        sizes = [run.segment.resources for run in self._runs]
        free = (
            sys.maxsize if self._autoscaler else self._capacity(resources) - sizes.count(resources)
        )
        return free if self._most is None else min(free, self._most - len(sizes))

    def _end(self, run: _Run) -> None:
        self._runs.remove(run)
        self._ending += run.calls
        self._cluster.cancel(run.calls, run.group)
        run.calls.clear()

    # -- answers -----------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take what running segments say."""
        try:
            news = self._cluster.result(self._news)
        except WorkerLostError:  # Ray starts the mailbox again
            time.sleep(_WAIT_SECONDS)
            news = []
        self._news = self._cluster.news()
        runs = {run.segment.key: run for run in self._runs}
        for attempt, rank, message in news:
            if (run := runs.get(attempt)) is None:
                continue
            if isinstance(message, Place):
                run.places[rank] = message
            elif rank == 0:
                run.n_reports += 1
                self._results.append(message)

    def _receive(self, run: _Run, call: Any) -> None:
        """Take the answer of a host.

        Raises:
            StudyError: no node is left, or one cannot be a host of a gang.
        """
        rank = run.calls.pop(call)
        try:
            answer = self._cluster.result(call)
        except WorkerLostError as error:
            self._lose(run, rank, error)
        except WorkerUnusableError as error:
            nodes = self._nodes.values()
            unusable = [node.id for node in nodes if node.address == error.address]
            self._refuse(run, str(error), unusable)
        else:
            if not isinstance(answer, Answer):
                self._begin_gang(run, *answer)
            elif answer.problem:
                self._refuse(run, answer.problem, [answer.place.node])
            else:
                self._take(run, rank, answer)

    def _begin_gang(self, run: _Run, address: str, port: int) -> None:
        """Train a segment on the hosts that are reserved for it."""
        hosts = run.segment.resources.nodes
        for rank in range(hosts):
            call = self._cluster.train(
                self._plan,
                _part(run.segment, rank),
                rank=rank,
                group=run.group,
                variables=gang_environment(rank, hosts, address, port),
            )
            run.calls[call] = rank

    def _take(self, run: _Run, rank: int, answer: Answer) -> None:
        """Pass on messages of the first host, and failures of the others."""
        messages = answer.messages[run.n_reports :]
        outcome = answer.messages[-1]
        assert isinstance(outcome, Outcome)
        if rank:
            if not outcome.status.failed:
                return
            message = f"rank {rank}: {outcome.message}"
            messages = (dataclasses.replace(outcome, message=message),)
        self._end(run)
        self._note(outcome, answer.place.node)
        self._results += messages

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

    def _refuse(self, run: _Run, problem: str, nodes: Sequence[str]) -> None:
        """Give up an unusable node, and try its segment elsewhere.

        Raises:
            StudyError: no node is left, or it is a host of a gang.
        """
        if run.group is not None:
            raise StudyError(f"a host of a gang cannot be used: {problem}")
        self._end(run)
        self._results.append(failure(run.segment, Status.LOST, problem, 0.0, preempted=True))
        for node in nodes:
            if node not in self._excluded:
                self._excluded.add(node)
                self._say(f"node {node[:12]} of the Ray cluster is not used: {problem}")
        if not self._capacity(run.segment.resources) and not self._autoscaler:
            raise StudyError(f"no node of the Ray cluster can be used; the last one: {problem}")

    def _check_possible(self, resources: Resources) -> None:
        """Refuse resources that no node of the cluster has.

        Raises:
            InputError: names them.
        """
        self._look_at_nodes(time.monotonic())
        if self._capacity(resources):
            return
        message = f"no node of the Ray cluster has {self._missing(resources)}"
        if not self._autoscaler:
            raise InputError(message, key="resources")
        self._say(f"caution: {message}; waiting for the autoscaler")

    def _missing(self, resources: Resources) -> str:
        """Name a need of a segment that no node meets."""
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

    def _lose(self, run: _Run, rank: int, error: WorkerLostError) -> None:
        """Report an attempt whose worker is gone or out of reach.

        A node that is gone says nothing against what ran there. That is decided when the cluster
        knows, within a bound.
        """
        self._end(run)
        now = time.monotonic()
        place = run.places.get(rank, Place("", ""))
        where = f" on {place.host}" if place.host else ""
        which = f"rank {rank}: " if run.group is not None else ""
        message = f"worker{where} lost: {which}{error}"
        lost = failure(run.segment, Status.LOST, message, now - run.asked, host=place.host)
        doubt = _Doubt(lost, run.segment, place.node or None, now)
        self._look_at_nodes(now)
        idle = run.group is not None and not run.places  # a gang that has not begun
        if isinstance(error, WorkerEndedError) or idle or self._is_gone(doubt):
            self._settle(doubt, preempted=idle or self._is_gone(doubt))
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
        waits = [run for run in self._runs if not run.places and now - run.asked > _ROOM_SECONDS]
        if waits:
            self._say("waiting for room on the Ray cluster: others use it, or a node starts")

    # ----------------------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        """Tell whoever runs the study, once."""
        if line not in self._told:
            self._told.add(line)
            with suppress(OSError):
                print(f"autorl: {line}", file=sys.stderr, flush=True)


def _part(segment: Segment, rank: int) -> Segment:
    """Give a host of a gang its segment.

    Only rank 0 saves, and each has a log of its own.
    """
    if rank == 0:
        return segment
    log = segment.log
    if log is not None:
        path = Path(log)
        log = str(path.with_name(f"{path.stem}.rank{rank}{path.suffix}"))
    scratch = f"{segment.scratch}/rank{rank}" if segment.scratch else ""
    return dataclasses.replace(segment, save=False, folder="", log=log, scratch=scratch)


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
