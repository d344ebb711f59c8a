"""Reports of a user's trainer cost the same for every point and every record."""

from growth_exponent import exponent
from segments import segment

from autorl.trainers.metrics import Collector, MetricSource
from autorl.trainers.user_code import Told

SEGMENT = segment("python:some:function", None, {"x": 1.0}, 10_000, id="0.0")


def test_reports_of_a_segment_are_linear():
    def tell(points):
        told = Told(SEGMENT, lambda report: None)
        for step in range(1, points + 1):
            told.tell(step, {"value": 1.0})

    assert exponent(tell, 200) < 1.1


def test_records_of_a_command_are_linear():
    def collect(points):
        collector = Collector(
            MetricSource(reduce_last=3), range(10, 10 * points + 1, 10), 0, 10 * points
        )
        for step in range(1, 10 * points + 1):
            collector.add({"step": step, "value": float(step)})
        collector.finish()

    assert exponent(collect, 40) < 1.1


def test_a_point_is_the_mean_of_the_latest_values_up_to_it():
    collector = Collector(MetricSource(reduce_last=2), [10, 20, 30], 0, 30)
    told = []
    for step, value in [
        (3, 1.0),
        (9, 2.0),
        (10, 4.0),
        (8, 16.0),
        (15, 32.0),
        (28, 64.0),
        (31, 128.0),
    ]:
        told += collector.add({"step": step, "value": value})
    told += collector.finish()
    assert told == [(10, {"value": 10.0}), (20, {"value": 24.0}), (30, {"value": 96.0})]
