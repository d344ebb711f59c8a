"""A cluster without Ray: nodes and tasks that do what a test says, on a clock of its own."""

from __future__ import annotations

import itertools

from autorl.core.types import Outcome, Report, Status
from autorl.executors.ray_cluster import Node, WorkerEndedError, WorkerLostError, needs
from autorl.executors.ray_worker import Answer, Place

NEWS = "news"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Task:
    """A segment on a node, once there is room, and what the test has it say."""

    def __init__(self, plan, segment, rank, variables):
        self.plan = plan
        self.segment = segment
        self.rank = rank
        self.variables = variables
        self.amounts = needs(segment.resources)
        self.node = None
        self.told = []
        self.result = None


class FakeCluster:
    def __init__(self, clock, **nodes):
        self.clock = clock
        self.all = {
            name: Node(name, f"10.0.0.{number}", resources)
            for number, (name, resources) in enumerate(nodes.items())
        }
        self.tasks = []
        self.posted = []
        self.problems = {}  # node -> why nothing can be trained there
        self.unusable = {}  # node -> error of what is begun there
        self.groups = itertools.count()
        self.closed = 0

    # -- what the test does ------------------------------------------------------------------------

    def held(self):
        """Segments by the node that has them."""
        found = {}
        for task in self.tasks:
            if task.node is not None:
                found.setdefault(task.node, []).append(task.segment.id)
        return found

    def task_of(self, name):
        return next(task for task in self.tasks if task.segment.id == name)

    def post(self, name, step):
        task = self.task_of(name)
        point = Report(name, step, {"x": 1.0}, fence=task.segment.fence)
        task.told.append(point)
        self.posted.append((task.segment.key, task.rank, point))

    def say(self, name, status=Status.DONE):
        task = self.task_of(name)
        self.answer(task, outcome(task.segment, status))

    def answer(self, task, *messages):
        place = Place(task.node, f"host/{task.node}")
        task.result = Answer(place, (*task.told, *messages))

    def lose(self, task, *, certain):
        task.result = (WorkerEndedError if certain else WorkerLostError)("gone")

    # -- the contract ------------------------------------------------------------------------------

    def nodes(self):
        return list(self.all.values())

    def train(self, plan, segment, *, rank=0, group=None, variables=None, excluded=(), avoid=()):
        task = Task(plan, segment, rank, variables)
        self.tasks.append(task)
        task.group = group
        # As Ray: anywhere with room but on what is excluded, elsewhere than on what is avoided.
        task.fits = [name for name in self.all if name not in excluded]
        if group is not None:
            task.fits = [list(self.all)[rank]]
        task.fits.sort(key=lambda name: name in avoid)
        self._place()
        return task

    def _place(self):
        for task in self.tasks:
            if task.node is None:
                task.node = next((name for name in task.fits if self._has_room(name, task)), None)
                if task.node is not None:
                    place = Place(task.node, f"host/{task.node}")
                    self.posted.append((task.segment.key, task.rank, place))
                    problem = self.problems.get(task.node)
                    if problem:
                        task.result = Answer(place, problem=problem)
                    task.result = self.unusable.get(task.node, task.result)

    def _has_room(self, name, task):
        taken = [other.amounts for other in self.tasks if other.node == name]
        return all(
            sum(other.get(kind, 0) for other in taken) + amount
            <= self.all[name].resources.get(kind, 0)
            for kind, amount in task.amounts.items()
        )

    def reserve(self, resources):
        return f"group-{next(self.groups)}"

    def free_port(self, group):
        return f"port of {group}"

    def news(self):
        return NEWS

    def wait(self, calls, seconds):
        ready = [
            call
            for call in calls
            if (call == NEWS and self.posted)
            or (isinstance(call, str) and call.startswith("port"))
            or getattr(call, "result", None) is not None
        ]
        if not ready:
            self.clock.sleep(max(seconds, 0.01))
        return ready

    def result(self, call):
        if call == NEWS:
            posted, self.posted = self.posted, []
            return posted
        if isinstance(call, str):
            return "10.0.0.0", 4711
        self.tasks.remove(call)
        self._place()
        if isinstance(call.result, Exception):
            raise call.result
        return call.result

    def cancel(self, calls, group=None):
        gone = [task for task in self.tasks if task in calls]
        self.tasks = [task for task in self.tasks if task not in gone]
        self._place()

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
