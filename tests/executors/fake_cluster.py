"""A cluster without Ray: nodes and actors that do what a test says, on a clock of its own."""

from __future__ import annotations

import itertools

from autorl.core.types import Outcome, Report, Status
from autorl.executors.ray_cluster import Gang, Node, WorkerLostError
from autorl.executors.ray_worker import WorkerInfo


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Actor:
    """A worker: it has what it was given, and says what the test has it say."""

    def __init__(self, number, plan, amounts, node):
        self.number = number
        self.plan = plan
        self.amounts = amounts
        self.node = node
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
        self.problems = {}  # node -> why its workers cannot train
        self.unusable = {}  # node -> error of its workers
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

    def start(self, plan, amounts, excluded=(), avoid=()):
        # As Ray: anywhere with room but on what is excluded, and elsewhere than on what is avoided.
        places = [name for name in self.all if self._fits(name, amounts) and name not in excluded]
        place = min(places, key=lambda name: name in avoid, default=None)
        actor = Actor(next(self.numbers), plan, amounts, place)
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
        workers = []
        for name in itertools.islice(self.all, hosts):
            workers.append(self.start(plan, amounts, excluded=self.all.keys() - {name}))
        self.gangs.append(tuple(workers))
        return Gang(tuple(workers), None)

    def call(self, actor, method, *arguments):
        call = f"{method}-{next(self.numbers)}"
        self.pending[call] = (actor, method)
        if method == "exchange" and arguments[0] is not None:
            actor.has.append(arguments[0])
        if method == "cancel":
            actor.has.remove(*arguments)
        if method == "set_variables":
            actor.variables = arguments[0]
        return call

    def _ready(self, call):
        actor, method = self.pending[call]
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
        actor, method = self.pending.pop(call)
        if actor.error is not None:
            raise actor.error
        if actor.node in self.unusable:
            raise self.unusable[actor.node]
        if method == "describe":
            problem = self.problems.get(actor.node, "")
            return WorkerInfo(actor.node, f"host/{actor.node}", problem)
        if method == "cancel":
            return None
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
