"""Benchmarks: recorded or predicted runs answer instead of training."""

from autorl.landscapes.benchmark.replay import LOOK_UPS, LookUp, RecordedRun, Replay
from autorl.landscapes.benchmark.surrogate import MIN_CORRELATION, TREES, Quality, Surrogate

__all__ = [
    "LOOK_UPS",
    "MIN_CORRELATION",
    "TREES",
    "LookUp",
    "Quality",
    "RecordedRun",
    "Replay",
    "Surrogate",
]
