"""Several studies on one executor: who gets a free slot, and that nobody gets another's outcomes."""

import sys
from pathlib import Path

import pytest
from segments import segment_of

from autorl.core.types import Config, Fence, Outcome, Report, SegmentId, Status, TrainerSpec
from autorl.executors.shared import SharedExecutor, load_apart


class Backend:
    """An executor whose segments end when a test says so."""

    def __init__(self, slots):
        self.slots = slots
        self.running = []
        self.cancelled = []
        self.closed = False
        self._messages = []

    def submit(self, segments):
        self.running += segments

    def poll(self, timeout):
        messages, self._messages = self._messages, []
        return messages

    def cancel(self, segment):
        self.cancelled.append(segment.key)
        self.running = [other for other in self.running if other.key != segment.key]

    def close(self):
        self.closed = True

    def end(self, *places):
        """End the running segments at these places."""
        for segment in [self.running[place] for place in places]:
            self.running.remove(segment)
            self.tell(Report(segment.id, 5, {"x": 1.0}, segment.fence))
            self.tell(Outcome(segment.id, Status.DONE, 10, fence=segment.fence))

    def tell(self, message):
        self._messages.append(message)

    @property
    def studies(self):
        return [segment.fence.study for segment in self.running]


def segments(count, start=0, act="train"):
    made = {"trainer": TrainerSpec("misbehaving"), "config": Config(act=act)}
    made |= {"evaluate_at": (5, 10), "fence": Fence(epoch=3, attempt=1)}
    return [segment_of(number, **made) for number in range(start, start + count)]


def two_views(slots):
    backend = Backend(slots)
    shared = SharedExecutor()
    return backend, shared, shared.view("a", backend), shared.view("b", backend)


def test_equal_segments_of_two_studies_come_back_to_their_own_with_their_own_fence():
    backend, _, a, b = two_views(2)
    a.submit(segments(1))
    b.submit(segments(1))
    assert len({segment.key for segment in backend.running}) == 2
    backend.end(1)
    assert a.poll(0.0) == []
    report, outcome = b.poll(0.1)
    assert (report.step, outcome.status) == (5, Status.DONE)
    assert report.fence == outcome.fence == Fence(epoch=3, attempt=1)
    assert outcome.key == segments(1)[0].key
    backend.end(0)
    assert [type(message) for message in a.poll(0.1)] == [Report, Outcome]


def test_slots_are_shared_evenly_whoever_comes_first():
    backend, shared, a, b = two_views(2)
    a.submit(segments(20))
    b.submit(segments(20))
    assert backend.studies == ["a"] * 4  # twice the slots: what nobody else wanted then
    for _ in range(4):
        backend.end(0)
        shared.poll(0.0)
    assert sorted(backend.studies) == ["a", "a", "b", "b"]


def test_of_more_studies_than_slots_none_starves():
    backend = Backend(1)
    shared = SharedExecutor()
    views = [shared.view(name, backend) for name in "abcde"]
    for view in views:
        view.submit(segments(3))
    order = []
    while backend.running:
        order.append(backend.studies[0])
        backend.end(0)
        shared.poll(0.0)
    assert order == list("aabcde" + "abcde" + "bcde")  # two of a were out before b came
    assert [order.count(name) for name in "abcde"] == [3] * 5


def test_closing_one_study_cancels_its_segments_alone():
    backend, shared, a, b = two_views(2)
    a.submit(segments(9))
    b.submit(segments(2))
    late = backend.running[0]
    a.close()
    assert {key[1].study for key in backend.cancelled} == {"a"}
    shared.poll(0.0)
    assert backend.studies == ["b", "b"]
    backend.tell(Outcome(late.id, Status.DONE, 10, fence=late.fence))  # it was under way already
    shared.poll(0.0)
    assert a.poll(0.0) == b.poll(0.0) == []


def test_cancel_stops_the_attempt_of_one_study():
    backend, _, a, b = two_views(2)
    a.submit(segments(6))
    b.submit(segments(1))
    waiting, running = segments(6)[5], segments(6)[0]
    a.cancel(waiting)
    a.cancel(running)
    assert backend.cancelled == [(running.id, Fence(3, 1, "a"))]
    while backend.running:
        backend.end(0)
        b.poll(0.0)
        a.poll(0.1)
    assert not a.waits


def test_what_carries_no_known_fence_is_ignored():
    backend, shared, a, b = two_views(2)
    a.submit(segments(1))
    for fence in (Fence(), Fence(3, 1, "z"), Fence(3, 0, "a"), Fence(2, 1, "a")):
        backend.tell(Outcome(SegmentId(0, 0), Status.DONE, 10, fence=fence))
    shared.poll(0.0)
    assert a.poll(0.0) == b.poll(0.0) == []
    assert a.out == 1


def test_over_several_backends_no_more_run_than_the_largest_has_slots():
    small, large = Backend(1), Backend(3)
    shared = SharedExecutor()
    a, b = shared.view("a", small), shared.view("b", large)
    a.submit(segments(5))
    b.submit(segments(5))
    assert (len(small.running), len(large.running)) == (1, 2)
    assert a.slots == b.slots == 3
    shared.close()
    assert small.closed
    assert large.closed


def test_a_backend_without_a_worker_yet_is_handed_a_segment():
    backend, _, a, _ = two_views(0)
    a.submit(segments(3))
    assert len(backend.running) == 1


def test_two_studies_cannot_have_one_name():
    _, shared, _, _ = two_views(1)
    with pytest.raises(ValueError, match="'a'"):
        shared.view("a", Backend(1))


def test_a_worker_imports_nothing_of_other_studies(tmp_path, monkeypatch):
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    monkeypatch.setattr(sys, "path", [theirs, *sys.path, ours])
    seen = []
    load_apart(lambda spec: seen.append(list(sys.path)), [theirs], TrainerSpec("any"))
    assert theirs not in seen[0]
    assert ours in seen[0]
    assert Path(seen[0][0]) != tmp_path / "theirs"
