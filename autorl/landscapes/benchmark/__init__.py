"""Benchmarks: recorded or predicted runs answer instead of training."""

from autorl.landscapes.benchmark.replay import LookUp, RecordedRun, Replay
from autorl.landscapes.benchmark.surrogate import MIN_CORRELATION, TREES, Quality, Surrogate

__all__ = ["MIN_CORRELATION", "TREES", "LookUp", "Quality", "RecordedRun", "Replay", "Surrogate"]
