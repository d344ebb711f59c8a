"""Runs segments on the nodes of a cluster of Ray.

Its workers are actors that hold an executor of their machine. Ray places the actors and carries
segments and outcomes. What is tried again, and what a lost worker means, is the study's own affair:
no actor is restarted, the queue stays with the driver, and nothing that must last lies in Ray's
object store.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from autorl.executors.queued import Limits
from autorl.executors.ray_admission import Admission
from autorl.executors.ray_attempts import ClusterWorker
from autorl.executors.ray_cluster import Gang, Node, WorkerLostError, WorkerUnusableError, needs
from autorl.executors.ray_gang import GangRun
from autorl.executors.ray_losses import Loss, Losses, LostSegment
from autorl.executors.ray_nodes import Nodes, Taken
from autorl.executors.ray_worker import Kind, WorkerInfo, WorkerPlan
from autorl.executors.stopped import MESSAGE
from autorl.executors.worker import Load, failure
from autorl.types import (
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Resources,
    Segment,
    Status,
    StudyError,
)

_WAIT_SECONDS = 0.5  # how often nodes and idle workers are looked at while nothing else happens
_POLL_SECONDS = 1.0  # a worker waits so long for news of its segments before it answers
_IDLE_SECONDS = 60.0  # then a worker's share of its node is given back
_SILENT_SECONDS = 10.0  # without an answer, until its node is asked whether it is stopped
_LOOK_AGAIN_SECONDS = 30.0
_ROOM_SECONDS = 60.0  # a worker that has not begun by then waits for room
_CLOSE_SECONDS = 5.0


class RayCluster(Protocol):
    """What is asked of a cluster: see `autorl.executors.ray_cluster.Cluster`."""

    def nodes(self) -> list[Node]: ...
    def start(self, plan: WorkerPlan, amounts: dict[str, float], node: str | None) -> Any: ...
    def start_gang(self, plan: WorkerPlan, amounts: dict[str, float], hosts: int) -> Gang: ...
    def call(self, worker: object, method: str, *arguments: object) -> Any: ...
    def end_if_stopped(self, node: str, pid: int) -> Any: ...
    def wait(self, calls: Sequence[object], seconds: float) -> list[Any]: ...
    def result(self, call: object) -> Any: ...
    def end(self, worker: object) -> None: ...
    def end_gang(self, gang: Gang) -> None: ...
    def close(self) -> None: ...


class Ray:
    """An executor whose workers are actors on the nodes of a cluster.

    Workers are asked for when segments wait, and given back when they have been idle for a minute.
    Nodes may join and leave.

    Args:
        load: top-level function that builds a trainer from its spec in a worker's child.
        cluster: the workers run on; closed with the executor.
        kind: the executor that a worker holds.
        workers: most segments at once; None = as many as the nodes have room for.
        preload: modules that a worker's fork server imports.
        limits: of each segment; enforced on its own machine.
        autoscaler: whether the cluster adds nodes for workers that there is no room for.
    """

    copies = True  # a slow node is no other's fault

    def __init__(
        self,
        load: Load,
        cluster: RayCluster,
        *,
        kind: Kind,
        workers: int | None = None,
        preload: Sequence[str] = (),
        limits: Limits | None = None,
        autoscaler: bool = False,
    ) -> None:
        variables = {}
        if "XDG_CONFIG_HOME" in os.environ:  # where the key lies that checkpoints are signed with
            variables["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_HOME"]
        self._admission = Admission()
        self._plan = WorkerPlan(
            load=load,
            kind=kind,
            slots=1,
            preload=tuple(preload),
            limits=limits or Limits(),
            folder=os.getcwd(),
            probe_text=self._admission.text,
            variables=FrozenMap(variables),
        )
        self._cluster = cluster
        self._most = workers
        self._autoscaler = autoscaler
        self._nodes = Nodes(cluster)
        self._nodes.look(time.monotonic())
        self._pins = False  # workers are asked for node by node, as one node is of no use
        self._queues: dict[Resources, deque[Segment]] = {}
        self._workers: list[ClusterWorker] = []
        self._gangs: list[GangRun] = []
        self._losses = Losses(self._nodes)
        self._results: list[Report | Outcome] = []
        self._told: set[str] = set()
        self._closed = False
        self.slots = self._count_slots()

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
            if not (self._admission.probe or segment.storage) and segment.scratch:
                self._admission.write_probe(Path(segment.scratch).parent)
                self._plan = dataclasses.replace(self._plan, probe=self._admission.probe)
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
            worker.withdraw(segment)
        for run in [run for run in self._gangs if run.segment.key == segment.key]:
            self._end_gang(run)
        self._losses.cancel(segment.key)

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
        for worker in self._workers:
            self._cluster.end(worker.handle)
        for run in list(self._gangs):
            self._end_gang(run)
        self._workers.clear()
        self._queues.clear()
        self._losses.clear()
        self._admission.remove_probe()
        self._cluster.close()

    # -- what runs and what waits ------------------------------------------------------------------

    def _busy(self) -> bool:
        running = any(worker.running or worker.cancelled for worker in self._workers)
        return running or bool(self._gangs or self._losses) or any(self._queues.values())

    def _receivers(self) -> dict[Any, Callable[[Any], None]]:
        """Give what takes the answer to each open call."""
        receivers: dict[Any, Callable[[Any], None]] = {}
        for worker in self._workers:
            if worker.call is not None:
                receivers[worker.call] = functools.partial(self._receive, worker)
            if worker.look is not None:
                receivers[worker.look] = functools.partial(self._receive_look, worker)
        for run in self._gangs:
            for call in run.calls:
                receivers[call] = functools.partial(self._receive_of_gang, run)
        return receivers

    def _advance(self, now: float) -> None:
        """Ask for workers, and hand out what waits."""
        for resources, queue in self._queues.items():
            if not queue:
                continue
            if resources.nodes > 1:
                self._form_gangs(resources, queue, now)
                continue
            self._hand_out(resources, queue, now)
            self._hire(resources, len(queue), now)
        for worker in self._workers:
            if worker.info is None or worker.call is not None or not worker.has_news:
                continue
            segments, cancelled = worker.drain()
            worker.asked = now
            worker.call = self._cluster.call(
                worker.handle, "exchange", segments, cancelled, _POLL_SECONDS
            )

    def _hand_out(self, resources: Resources, queue: deque[Segment], now: float) -> None:
        """Give segments that wait to workers that have room, the emptiest first."""
        team = [worker for worker in self._workers if worker.resources == resources]
        ready = [worker for worker in team if worker.info is not None]
        later: list[Segment] = []
        while queue:
            free = [worker for worker in ready if len(worker.running) < worker.most]
            if not free:
                break
            segment = queue.popleft()
            avoid = self._losses.avoided_by(segment.id)
            elsewhere = [worker for worker in free if worker.node not in avoid]
            if not elsewhere and self._comes_elsewhere(resources, avoid, now):
                later.append(segment)
                continue
            worker = min(elsewhere or free, key=lambda worker: len(worker.running) / worker.slots)
            worker.give(segment, now)
        queue.extendleft(reversed(later))

    def _comes_elsewhere(self, resources: Resources, avoid: set[str], now: float) -> bool:
        """Tell whether a segment should wait for a worker on another node.

        It is away from where the segment was lost. Such a worker is asked for where there is room.
        """
        coming = [
            now - worker.asked
            for worker in self._workers
            if worker.resources == resources and worker.info is None and worker.node not in avoid
        ]
        if coming:
            return min(coming) < _ROOM_SECONDS
        place = self._nodes.room(resources, self._taken(), avoid)
        if place is None or self._left_to_hire() < 1:
            return False
        self._start_worker(resources, 1, place[0], now, pinned=True)
        return True

    # -- workers -----------------------------------------------------------------------------------

    def _hire(self, resources: Resources, waiting: int, now: float) -> None:
        """Ask for workers for so many segments, where there is room."""
        missing = waiting
        for worker in self._workers:
            if worker.resources == resources:
                missing -= max(0, worker.slots - len(worker.running))
        while missing > 0 and self._left_to_hire() > 0:
            node, room = self._nodes.room(resources, self._taken()) or (None, 0)
            if not room and not (self._autoscaler and self._most is not None):
                self._dismiss_others(resources)
                return
            # One worker of `threads` for all cores of a node: its kernels are loaded once. Devices
            # and the like are reserved for one segment at a time.
            slots = 1
            if self._plan.kind == "threads" and needs(resources).keys() <= {"CPU", "memory"}:
                slots = max(1, min(missing, room, self._left_to_hire()))
            self._start_worker(resources, slots, node, now, pinned=self._pins)
            missing -= slots

    def _left_to_hire(self) -> int:
        hired = sum(worker.slots for worker in self._workers) + len(self._gangs)
        return sys.maxsize if self._most is None else self._most - hired

    def _start_worker(
        self, resources: Resources, slots: int, node: str | None, now: float, *, pinned: bool
    ) -> None:
        """Ask for a worker.

        Where it is not pinned, Ray finds the place, as others may use the cluster too.
        """
        plan = dataclasses.replace(self._plan, slots=slots)
        handle = self._cluster.start(plan, needs(resources, slots), node if pinned else None)
        placed = pinned and node is not None
        worker = ClusterWorker(handle, resources, slots, node, placed, asked=now, idle_since=now)
        worker.call = self._cluster.call(handle, "describe")
        self._workers.append(worker)

    def _dismiss_others(self, resources: Resources) -> None:
        """Give back idle workers of other sizes, to make room."""
        for worker in list(self._workers):
            if worker.resources != resources and self._is_idle(worker):
                self._dismiss(worker)

    def _is_idle(self, worker: ClusterWorker) -> bool:
        busy = worker.call is not None or worker.running or self._queues.get(worker.resources)
        return worker.info is not None and not busy

    def _dismiss(self, worker: ClusterWorker) -> None:
        self._workers.remove(worker)
        self._cluster.end(worker.handle)

    def _taken(self) -> list[Taken]:
        """List what workers have of the nodes, or will have."""
        taken: list[Taken] = [
            (worker.node, needs(worker.resources, worker.slots)) for worker in self._workers
        ]
        for run in self._gangs:
            amounts = needs(run.segment.resources)
            taken += [(node, amounts) for node in run.nodes()]
        return taken

    # -- answers -----------------------------------------------------------------------------------

    def _receive(self, worker: ClusterWorker, call: object) -> None:
        if worker not in self._workers:
            return
        worker.call = None
        try:
            answer = self._cluster.result(call)
        except WorkerLostError as error:
            self._lose(worker, error)
        except WorkerUnusableError as error:
            self._refuse(worker, str(error))
        else:
            if isinstance(answer, WorkerInfo):
                self._admit(worker, answer)
            else:
                self._take(worker, answer)

    def _admit(self, worker: ClusterWorker, info: WorkerInfo) -> None:
        """Take a worker on, unless its node cannot be used."""
        worker.node = info.node
        worker.placed = True
        problem = self._nodes.excluded.get(info.node) or self._admission.problem(info)
        if problem:
            self._refuse(worker, problem)
            return
        worker.info = info
        worker.idle_since = time.monotonic()

    def _take(self, worker: ClusterWorker, messages: Iterable[Report | Outcome]) -> None:
        """Pass on what a worker says of the attempts it has."""
        for message in worker.take(messages, time.monotonic()):
            if isinstance(message, Report):
                self._results.append(message)
            else:
                self._finish(message, worker.info)

    def _finish(self, outcome: Outcome, info: WorkerInfo | None) -> None:
        if info is not None:
            outcome = dataclasses.replace(outcome, host=info.host)
            self._losses.note(outcome, info.node)
        self._results.append(outcome)

    # -- nodes that cannot be used -----------------------------------------------------------------

    def _refuse(self, worker: ClusterWorker, problem: str) -> None:
        """Give up a worker whose node cannot be used, and the node.

        Raises:
            StudyError: no node is left.
        """
        self._dismiss(worker)
        for segment in worker.running.values():
            outcome = failure(segment, Status.LOST, problem, 0.0)
            self._results.append(dataclasses.replace(outcome, preempted=True))
        self._pins = True
        if worker.node is None or not worker.placed:
            return  # nobody knows where it was: the next ones are asked for node by node
        if worker.node not in self._nodes.excluded:
            self._nodes.excluded[worker.node] = problem
            self._say(f"node {worker.node[:12]} of the Ray cluster is not used: {problem}")
        if not self._nodes.capacity(worker.resources) and not self._autoscaler:
            raise StudyError(
                f"no node of the Ray cluster can be used; node {worker.node[:12]}: {problem}"
            )

    def _check_possible(self, resources: Resources) -> None:
        """Refuse what no node of the cluster has.

        Raises:
            InputError: naming it.
        """
        self._nodes.look(time.monotonic(), at_once=True)
        missing = self._nodes.missing(resources)
        if not missing:
            return
        message = f"no node of the Ray cluster has {missing}"
        if not self._autoscaler:
            raise InputError(message, key="resources")
        self._say(f"caution: {message}; waiting for the autoscaler")

    # -- losses ------------------------------------------------------------------------------------

    def _lose(self, worker: ClusterWorker, error: WorkerLostError) -> None:
        """Give up a worker that is gone or out of reach.

        The attempts it has are lost with it.
        """
        self._dismiss(worker)
        host = worker.info.host if worker.info is not None else ""
        loss = Loss(worker.node, host, worker.lost(), str(error), time.monotonic())
        self._results += self._losses.judge(loss, error)

    def _watch(self, now: float) -> None:
        """Look at nodes, at doubtful losses, at silent and at idle workers."""
        if self._nodes.look(now):
            self.slots = self._count_slots()
            if not self._nodes.usable and self._busy():
                self._say("no node of the Ray cluster is left: waiting for one")
        self._results += self._losses.settled(now)
        for worker in list(self._workers):
            self._watch_silence(worker, now)
            if not self._is_idle(worker):
                continue
            gone = worker.node is not None and not self._nodes.is_alive(worker.node)
            if gone or now - worker.idle_since > _IDLE_SECONDS:
                self._dismiss(worker)

    def _watch_silence(self, worker: ClusterWorker, now: float) -> None:
        """Look at a worker that does not answer.

        Its node is asked whether a signal has stopped it. A worker that is only slow is waited for.
        """
        silent = now - worker.asked - _POLL_SECONDS
        if worker.call is None or silent < _SILENT_SECONDS:
            return
        if worker.info is None:
            if silent > _ROOM_SECONDS:
                self._say("waiting for room on the Ray cluster: others use it, or a node starts")
            return
        fresh = worker.looked is None or now - worker.looked > _LOOK_AGAIN_SECONDS
        if worker.look is None and fresh:
            worker.looked = now
            worker.look = self._cluster.end_if_stopped(worker.info.node, worker.info.pid)

    def _receive_look(self, worker: ClusterWorker, call: object) -> None:
        worker.look = None
        try:
            stopped = self._cluster.result(call)
        except (WorkerLostError, WorkerUnusableError):
            return  # the call to the worker itself will say what has happened
        if stopped and worker in self._workers:
            self._lose(worker, WorkerLostError(MESSAGE, certain=True))

    # -- gangs -------------------------------------------------------------------------------------

    def _form_gangs(self, resources: Resources, queue: deque[Segment], now: float) -> None:
        """Begin segments that need several hosts, as far as there is room."""
        while queue and self._left_to_hire() > 0:
            if not self._nodes.has_hosts(resources, self._taken()):
                self._dismiss_others(resources)
                return
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
            self._lose_gang(run, rank, error)
            return
        except WorkerUnusableError as error:
            raise StudyError(f"a host of a gang cannot be used: {error}") from None
        if isinstance(answer, WorkerInfo) and (problem := self._admission.problem(answer)):
            raise StudyError(f"node {answer.node[:12]} cannot be a host of a gang: {problem}")
        for message in run.receive(call, answer):
            if isinstance(message, Outcome):
                self._end_gang(run)
                self._finish(message, run.infos.get(0))
                return
            self._results.append(message)

    def _lose_gang(self, run: GangRun, rank: int, error: WorkerLostError) -> None:
        self._end_gang(run)
        info = run.infos.get(rank)
        node = info.node if info is not None else None
        host = info.host if info is not None else ""
        message = f"rank {rank} of {len(run.gang.workers)}: {error}"
        lost = LostSegment(run.segment, run.begun, begun=run.running)
        loss = Loss(node, host, (lost,), message, time.monotonic())
        self._results += self._losses.judge(loss, error)

    def _end_gang(self, run: GangRun) -> None:
        self._gangs.remove(run)
        run.calls.clear()
        self._cluster.end_gang(run.gang)

    # ----------------------------------------------------------------------------------------------

    def _count_slots(self) -> int:
        """Count the segments that can run at once on these nodes."""
        resources = next(iter(self._queues), Resources())
        room = self._nodes.capacity(resources)
        return max(1, room if self._most is None else min(room, self._most))

    def _say(self, line: str) -> None:
        """Tell whoever runs the study, once."""
        if line not in self._told:
            self._told.add(line)
            with suppress(OSError):
                print(f"autorl: {line}", file=sys.stderr, flush=True)
