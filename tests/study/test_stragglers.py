"""Which running segments get a backup copy: those that take much longer than predicted, when a worker would idle."""

from autorl.study.stragglers import Stragglers
from autorl.types import Config, Segment, SegmentId, TrainerSpec


def segment(number, steps=100):
    return Segment(
        id=SegmentId(number, 0),
        trainer=TrainerSpec("toy"),
        config=Config(),
        seed=0,
        role="tuning",
        until=steps,
        horizon=1000,
    )


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


def test_what_is_late_by_less_than_a_copy_costs_is_not_copied():
    situation = Situation()
    situation.end(0, 0.01)  # so the others, begun with it, are predicted to take as long
    assert situation.chosen(4.9) == []
    assert situation.chosen(5.1) == ["1.0"]


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
