"""A cluster without Ray: nodes and actors that do what a test says, on a clock of its own."""

from __future__ import annotations

import dataclasses
import itertools
import platform

from autorl import __version__
from autorl.executors.ray_cluster import Gang, Node, WorkerLostError
from autorl.executors.ray_worker import WorkerInfo
from autorl.store.provenance import source_sha256
from autorl.types import Outcome, Report, Status


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Actor:
    """A worker: it has what it was given, and says what the test has it say."""

    def __init__(self, number, plan, amounts, node, pin):
        self.number = number
        self.plan = plan
        self.amounts = amounts
        self.node = node
        self.pin = pin
        self.has = []
        self.told = []
        self.variables = {}
        self.ended = False
        self.error = None
        self.silent = False


class FakeCluster:
    def __init__(self, clock, **nodes):
        self.clock = clock
        self.all = {
            name: Node(name, f"10.0.0.{number}", resources)
            for number, (name, resources) in enumerate(nodes.items())
        }
        self.actors = []
        self.gangs = []
        self.pending = {}
        self.numbers = itertools.count()
        self.differ = {}  # node -> what its workers say of themselves
        self.unusable = {}  # node -> error of its workers
        self.stopped = set()
        self.looks = []
        self.closed = 0
        self.answers = True

    # -- what the test does ------------------------------------------------------------------------

    @property
    def alive(self):
        return [actor for actor in self.actors if not actor.ended]

    def held(self):
        """Segments by the node that has them."""
        found = {}
        for actor in self.alive:
            if actor.has:
                found.setdefault(actor.node, []).extend(segment.id for segment in actor.has)
        return found

    def actor_of(self, name):
        return next(actor for actor in self.alive if name in [segment.id for segment in actor.has])

    def say(self, name, status=Status.DONE, *, seconds=100.0, step=None):
        actor = self.actor_of(name)
        segment = next(segment for segment in actor.has if segment.id == name)
        if step is not None:
            actor.told.append(Report(segment.id, step, {"x": 1.0}, fence=segment.fence))
            return segment
        actor.has.remove(segment)
        actor.told.append(outcome(segment, status, seconds))
        return segment

    def lose(self, actor, *, certain, preempted=False):
        actor.error = WorkerLostError("gone", certain=certain, preempted=preempted)

    # -- the contract ------------------------------------------------------------------------------

    def nodes(self):
        return list(self.all.values())

    def start(self, plan, amounts, node):
        # As Ray: anywhere with room, unless it is pinned.
        place = node or next((name for name in self.all if self._fits(name, amounts)), None)
        actor = Actor(next(self.numbers), plan, amounts, place, node)
        self.actors.append(actor)
        return actor

    def _fits(self, name, amounts):
        taken = [actor.amounts for actor in self.alive if actor.node == name]
        return all(
            sum(other.get(kind, 0) for other in taken) + amount
            <= self.all[name].resources.get(kind, 0)
            for kind, amount in amounts.items()
        )

    def start_gang(self, plan, amounts, hosts):
        workers = tuple(
            self.start(plan, amounts, name) for name in itertools.islice(self.all, hosts)
        )
        self.gangs.append(workers)
        return Gang(workers, None)

    def call(self, actor, method, *arguments):
        call = f"{method}-{next(self.numbers)}"
        self.pending[call] = (actor, method, arguments)
        if method == "exchange":
            segments, cancelled, _ = arguments
            keys = {segment.key for segment in cancelled}
            actor.has = [segment for segment in actor.has if segment.key not in keys]
            actor.has += segments
        if method == "set_variables":
            actor.variables = arguments[0]
        return call

    def end_if_stopped(self, node, pid):
        call = f"look-{next(self.numbers)}"
        self.looks.append((node, pid))
        self.pending[call] = (None, "look", (pid,))
        return call

    def _ready(self, call):
        actor, method, _ = self.pending[call]
        if method == "look":
            return True
        if actor.error is not None:
            return True
        if actor.silent:
            return False
        return bool(actor.told) if method == "exchange" else actor.node is not None

    def wait(self, calls, seconds):
        ready = [call for call in calls if self._ready(call)]
        if not ready:
            self.clock.sleep(max(seconds, 0.01))
        return ready if self.answers else []

    def result(self, call):
        actor, method, arguments = self.pending.pop(call)
        if method == "look":
            return arguments[0] in self.stopped
        if actor.error is not None:
            raise actor.error
        if actor.node in self.unusable:
            raise self.unusable[actor.node]
        if method == "describe":
            info = WorkerInfo(
                node=actor.node,
                host=f"host/{actor.node}",
                pid=actor.number,
                python=platform.python_version(),
                version=__version__,
                source=source_sha256(),
                sees_folder=True,
            )
            return dataclasses.replace(info, **self.differ.get(actor.node, {}))
        if method == "free_port":
            return "10.0.0.0", 4711
        told, actor.told = actor.told, []
        return told

    def end(self, actor):
        actor.ended = True

    def end_gang(self, gang):
        for actor in gang.workers:
            actor.ended = True

    def close(self):
        self.closed += 1


def outcome(segment, status=Status.DONE, seconds=100.0):
    return Outcome(
        segment.id,
        status,
        reached=segment.until,
        cost={"wall_seconds": seconds},
        fence=segment.fence,
    )
