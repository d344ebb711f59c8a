"""Which running segments get a backup copy: those that take much longer than predicted, when a worker would idle."""

from types import SimpleNamespace

import pytest
from segments import segment_of

from autorl.core.types import Outcome, SegmentId, Status
from autorl.study.stragglers import BackupCopies


def segment(number, steps=100):
    return segment_of(number, until=steps, horizon=1000)


class Situation:
    """Segments 0 to 3 were handed out at 0 s; 0 took 10 s of its worker, and 100 steps are 10 s."""

    def __init__(self, lengths=(100, 100, 100, 100), copies=True):
        self.now = 0.0
        segments = [segment(number, steps) for number, steps in enumerate(lengths)]
        self.running = {each.id: each for each in segments}
        info = SimpleNamespace(relative_cost=lambda trainer, env, config, start, until: until)
        work = SimpleNamespace(in_flight=self.running, copy=str)
        self.executor = SimpleNamespace(slots=0, clock=lambda: self.now)
        if copies is not None:
            self.executor.copies = copies
        self.copies = BackupCopies(SimpleNamespace(info=lambda trainer: info), work, self.executor)
        assert self.copies.after(segments) == []

    def end(self, number, seconds=10.0):
        cost = {} if seconds is None else {"wall_seconds": seconds}
        self.copies.ended(Outcome(SegmentId(number, 0), Status.DONE, 100, cost=cost))
        self.running.pop(SegmentId(number, 0), None)

    def chosen(self, now, slots=4, submitted=()):
        self.now, self.executor.slots = now, slots
        return self.copies.after(submitted)


def test_nothing_is_copied_before_it_is_overdue_or_while_no_worker_is_idle():
    situation = Situation()
    assert situation.chosen(100.0) == [], "nothing has ended: no pace is known"
    situation.end(0)
    assert situation.chosen(14.0) == []
    assert situation.chosen(16.0, slots=3) == [], "three run on three workers"
    assert situation.chosen(16.0) == ["1.0"], "one of four workers is idle"


def test_a_segment_is_copied_once_and_its_copy_occupies_a_worker():
    situation = Situation()
    situation.end(0)
    assert situation.chosen(20.0, slots=5) == ["1.0", "2.0"]
    assert situation.chosen(90.0, slots=5) == [], "two copies run beside three segments"
    situation.end(1, 30.0)
    assert situation.chosen(90.0, slots=5) == ["3.0"], "2.0 has its copy"


def test_a_segment_is_overdue_at_more_than_half_as_much_again_and_five_seconds():
    situation = Situation()
    situation.end(0)
    assert situation.chosen(15.0) == []
    assert situation.chosen(15.5) == ["1.0"]
    short = Situation()
    short.end(0, 4.0)
    assert short.chosen(9.0) == [], "five seconds late, no more"
    assert short.chosen(9.5) == ["1.0"]


def test_the_most_overdue_come_first_by_what_they_were_predicted():
    situation = Situation(lengths=(100, 400, 100, 200))
    situation.end(0)
    assert situation.chosen(90.0, slots=4) == ["2.0"]
    assert situation.chosen(90.0, slots=5) == ["3.0"], "90 s of 20 s, then of 40 s"
    assert situation.chosen(90.0, slots=6) == ["1.0"]


def test_a_segment_that_is_handed_out_again_began_when_it_was_first():
    situation = Situation()
    situation.end(0)
    assert situation.chosen(14.0, submitted=[segment(1)]) == []
    assert situation.chosen(16.0) == ["1.0"]
    unknown = Situation()
    unknown.end(0)
    unknown.running[SegmentId(8, 0)] = segment(8)
    assert "8.0" not in unknown.chosen(99.0, slots=9), "nobody knows when it began"


@pytest.mark.parametrize("seconds", [10.0, None])
def test_late_outcomes_and_those_without_seconds_say_nothing_of_the_pace(seconds):
    situation = Situation()
    situation.end(0, seconds)
    situation.end(0, 1e-9)  # a late one, of nothing that runs
    assert situation.chosen(16.0) == (["1.0"] if seconds else [])


@pytest.mark.parametrize("copies", [False, None])
def test_executors_that_do_not_ask_for_copies_get_none(copies):
    situation = Situation(copies=copies)
    situation.end(0)
    assert situation.chosen(16.0) == []
