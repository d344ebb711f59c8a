"""Serves several studies with one set of workers.

Each study has a view, which is an executor to it. Segments of different studies may have equal
names, so on their way to the workers their fences say which study they are of.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import deque
from collections.abc import Sequence

from autorl.core.types import AttemptKey, Executor, Outcome, Report, Segment, TrainerSpec
from autorl.executors.worker import Load
from autorl.trainers.contract import Trainer

# Segments handed to a lone backend for each of its slots: workers find their next segment without
# a round trip, and a backend that grows by demand sees some.
_AHEAD = 2
# How long one of several busy backends is waited for while another may have news.
_SLICE_SECONDS = 0.05


def load_apart(load: Load, foreign: Sequence[str], spec: TrainerSpec) -> Trainer:
    """Load a trainer where the modules of other studies cannot be imported.

    A worker inherits the import path of the driver, which has the folders of all studies on it.

    Args:
        load: loads the trainers of the study.
        foreign: folders of the other studies.
        spec: the trainer.
    """
    sys.path[:] = [folder for folder in sys.path if folder not in foreign]
    return load(spec)


class SharedExecutor:
    """Runs the segments of several studies over one or more executors.

    A free slot goes to the study with the fewest segments out, among those to the one that was
    served longest ago. No study therefore waits for ever, and a study that has nothing to run
    leaves its share to the others. Over several backends no more segments are out than the largest
    has slots.
    """

    def __init__(self) -> None:
        self._views: dict[str, StudyView] = {}
        self._served = 0  # segments handed to backends so far, which orders turns

    def view(self, study: str, backend: Executor) -> StudyView:
        """Make the executor of one study.

        Args:
            study: a name that no other view has.
            backend: runs its segments; several views may have the same one.
        """
        if study in self._views:
            raise ValueError(f"two studies are called {study!r}")
        self._views[study] = StudyView(self, study, backend)
        return self._views[study]

    @property
    def slots(self) -> int:
        """How many segments run at once, of all studies."""
        return max(backend.slots for backend in self._backends())

    def poll(self, timeout: float) -> None:
        """Hand what workers have sent to the views.

        Waits at most `timeout` seconds for the first of it.
        """
        self.dispatch()
        deadline = time.monotonic() + timeout
        while busy := [backend for backend in self._backends() if self._out(backend)]:
            wait = max(0.0, deadline - time.monotonic())
            if len(busy) > 1:
                wait = min(wait, _SLICE_SECONDS)
            delivered = 0
            for backend in busy:
                for message in backend.poll(wait):
                    view = self._views.get(message.fence.study)
                    delivered += view is not None and view.receive(message)
            if delivered or time.monotonic() >= deadline:
                break
        self.dispatch()

    def dispatch(self) -> None:
        """Hand waiting segments to backends that have room, in fair order."""
        batches: dict[int, list[Segment]] = {}
        backends = self._backends()
        for view in self._views.values():
            view.slots = self.slots
        while (chosen := self._next(backends)) is not None:
            released = chosen.release(self._served)
            batches.setdefault(id(chosen.backend), []).append(released)
            self._served += 1
        for backend in backends:
            if id(backend) in batches:
                backend.submit(batches[id(backend)])

    def close(self) -> None:
        """Stop everything and release processes. Idempotent."""
        for view in self._views.values():
            view.forget()
        for backend in self._backends():
            backend.close()

    def _backends(self) -> list[Executor]:
        return list({id(view.backend): view.backend for view in self._views.values()}.values())

    def _out(self, backend: Executor) -> int:
        """Count the segments a backend was handed and has not ended."""
        return sum(view.out for view in self._views.values() if view.backend is backend)

    def _next(self, backends: Sequence[Executor]) -> StudyView | None:
        """Choose whose segment is handed out next.

        None: nothing waits, or there is no room.
        """
        ahead = _AHEAD if len(backends) == 1 else 1
        total = sum(view.out for view in self._views.values())
        if total >= max(1, ahead * self.slots):  # 1: an elastic backend may begin without a worker
            return None
        with_room = {
            id(backend)
            for backend in backends
            if self._out(backend) < max(1, ahead * backend.slots)
        }
        waiting = [
            view for view in self._views.values() if view.waits and id(view.backend) in with_room
        ]
        return min(waiting, key=lambda view: (view.out, view.last_turn), default=None)


class StudyView:
    """The share of one study in a `SharedExecutor`.

    To the study it is an executor.

    Attributes:
        backend: runs the segments.
        slots: how many segments of all studies run at once.
        last_turn: which of all hand-outs its latest was; -1 before the first.
    """

    def __init__(self, shared: SharedExecutor, study: str, backend: Executor) -> None:
        self.backend = backend
        self.slots = backend.slots
        self.last_turn = -1
        self._shared = shared
        self._study = study
        self._waiting: deque[Segment] = deque()
        # As the study knows them, by the key that the backend knows them by.
        self._out: dict[AttemptKey, Segment] = {}
        self._inbox: list[Report | Outcome] = []

    @property
    def out(self) -> int:
        """Number of segments its backend was handed and has not ended."""
        return len(self._out)

    @property
    def waits(self) -> bool:
        """Say whether a segment waits for a free slot."""
        return bool(self._waiting)

    def submit(self, segments: Sequence[Segment]) -> None:
        """Take segments on, and start those there is room for."""
        self._waiting.extend(segments)
        self._shared.dispatch()

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened to this study's segments since the last call."""
        if not self._inbox and timeout > 0:
            self._shared.poll(timeout)
        messages = self._inbox
        self._inbox = []
        return messages

    def cancel(self, segment: Segment) -> None:
        """Stop one attempt at a segment for good."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != segment.key)
        stamped = self._stamped(segment)
        if self._out.pop(stamped.key, None) is not None:
            self.backend.cancel(stamped)

    def close(self) -> None:
        """Stop all segments of this study.

        Segments of other studies go on.
        """
        running = [self._stamped(segment) for segment in self._out.values()]
        self.forget()
        for segment in running:
            self.backend.cancel(segment)

    def forget(self) -> None:
        """Drop what waits, what is out and what was not polled."""
        self._waiting.clear()
        self._out.clear()
        self._inbox.clear()

    def release(self, turn: int) -> Segment:
        """Give up the segment that waits longest, for the backend."""
        segment = self._waiting.popleft()
        stamped = self._stamped(segment)
        self._out[stamped.key] = segment
        self.last_turn = turn
        return stamped

    def receive(self, message: Report | Outcome) -> bool:
        """Keep a message until it is polled.

        False where its attempt was cancelled.
        """
        segment = self._out.get(message.key)
        if segment is None:
            return False
        if isinstance(message, Outcome):
            del self._out[message.key]
        self._inbox.append(dataclasses.replace(message, fence=segment.fence))
        return True

    def _stamped(self, segment: Segment) -> Segment:
        return dataclasses.replace(
            segment, fence=dataclasses.replace(segment.fence, study=self._study)
        )
