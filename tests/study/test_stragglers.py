"""Which running segments get a backup copy: those that take much longer than predicted, when a worker would idle."""

from types import SimpleNamespace

from segments import segment_of

from autorl.core.types import Outcome, SegmentId, Status
from autorl.study.stragglers import BackupCopies, Stragglers


def segment(number, steps=100):
    return segment_of(number, until=steps, horizon=1000)


class Situation:
    """Segments 0 to 3 were handed out at 0 s; 0 took 10 s of its worker, and 100 steps are 10 s."""

    def __init__(self, lengths=(100, 100, 100, 100)):
        self.now = 0.0
        self.stragglers = Stragglers(lambda segment: float(segment.until), lambda: self.now)
        segments = [segment(number, steps) for number, steps in enumerate(lengths)]
        self.running = {each.id: each for each in segments}
        self.stragglers.submitted(segments)

    def end(self, number, seconds=10.0):
        self.stragglers.ended(self.running.pop(SegmentId(number, 0)), seconds)

    def chosen(self, now, slots=4):
        self.now = now
        return [str(name) for name in self.stragglers.choose(self.running, slots)]


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


def test_what_is_predicted_to_take_long_is_no_straggler():
    situation = Situation(lengths=(100, 1000, 100, 100))
    situation.end(0)
    assert situation.chosen(50.0, slots=8) == ["2.0", "3.0"]
    assert situation.chosen(151.0, slots=8) == ["1.0"]


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


def test_the_pace_is_the_median_of_those_that_ended():
    situation = Situation(lengths=(100, 100, 100, 50, 50))
    for number, seconds in ((0, 10.0), (1, 10.0), (2, 1000.0)):
        situation.end(number, seconds)
    assert situation.chosen(9.0, slots=3) == []
    assert situation.chosen(10.5, slots=3) == ["3.0"], "50 steps take 5 s"


def test_a_segment_that_is_handed_out_again_began_when_it_was_first():
    situation = Situation()
    situation.end(0)
    situation.now = 14.0
    situation.stragglers.submitted([segment(1)])
    assert situation.chosen(16.0) == ["1.0"]
    unknown = Situation()
    unknown.end(0)
    unknown.running[SegmentId(8, 0)] = segment(8)
    assert "8.0" not in unknown.chosen(99.0, slots=9), "nobody knows when it began"


# -- the copies of a study ---------------------------------------------------------------------------------------------


def copies(running, *, wanted=True, clock=None):
    """The backup copies of a study whose executor has two workers; 100 steps are 10 s."""
    work = SimpleNamespace(in_flight=running, copy=lambda name: f"copy of {name}")
    executor = SimpleNamespace(slots=2)
    if wanted is not None:
        executor.copies = wanted
    if clock is not None:
        executor.clock = clock
    info = SimpleNamespace(relative_cost=lambda trainer, env, config, start, until: until - start)
    return BackupCopies(SimpleNamespace(info=lambda trainer: info), work, executor)


def ended(number, **cost):
    return Outcome(SegmentId(number, 0), Status.DONE, 100, cost=cost)


def copied(*, wanted=True, **cost):
    now = [0.0]
    running = {SegmentId(number, 0): segment(number) for number in range(2)}
    backups = copies(running, wanted=wanted, clock=lambda: now[0])
    assert backups.after(list(running.values())) == []
    backups.ended(ended(0, **cost))
    del running[SegmentId(0, 0)]
    backups.ended(ended(0, wall_seconds=1e-9))  # a late one, of nothing that runs
    now[0] = 16.0
    return backups.after([])


def test_executors_on_other_machines_get_copies_by_their_own_clock():
    assert copied(wall_seconds=10.0) == ["copy of 1.0"]
    assert copied(wall_seconds=11.0) == []


def test_an_outcome_that_does_not_say_its_seconds_says_nothing_of_the_pace():
    assert copied() == []


def test_executors_that_do_not_ask_for_copies_get_none():
    assert copied(wanted=False, wall_seconds=10.0) == []
    assert copied(wanted=None, wall_seconds=10.0) == []
