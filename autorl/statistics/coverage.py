"""Measured coverage of nominal 95 % intervals, by number of runs.

Measured on the seed noise of recorded RL training and written by `benchmarks/error_rates.py` from
ARLBench's DQN and PPO tables: `benchmarks/results/error_rates.md` has the set-up, the errors and
the intervals that were not chosen. A test holds that both say the same.
"""

from __future__ import annotations

from bisect import bisect_right

_SIZES = (2, 3, 4, 5, 6, 8, 10, 15, 20)
_OF_ONE = {
    "iqm": (0.486, 0.734, 0.861, 0.891, 0.89, 0.932, 0.937, 0.935, 0.942),
    "mean": (0.464, 0.688, 0.741, 0.765, 0.798, 0.828, 0.846, 0.878, 0.908),
    "median": (0.514, 0.756, 0.886, 0.94, 0.939, 0.922, 0.939, 0.927, 0.946),
    "quantile(0.25)": (0.393, 0.588, 0.698, 0.774, 0.82, 0.9, 0.904, 0.917, 0.931),
    "cvar(0.2)": (0.162, 0.264, 0.318, 0.379, 0.437, 0.526, 0.596, 0.757, 0.79),
}
MEASURED = {name: dict(zip(_SIZES, shares, strict=True)) for name, shares in _OF_ONE.items()}
MEASURED["difference of iqm"] = {3: 0.74, 5: 0.879, 10: 0.934, 20: 0.943}
FEW_RUNS = 8  # with fewer the interval of an interquartile mean covers less than 0.93


def measured_coverage(aggregate: str, runs: int) -> float | None:
    """Return the measured coverage of an aggregate's 95 % interval.

    The result is None where it was not measured. Between two measured numbers of runs it is that of
    the smaller one. All are percentile intervals, that of a difference in pairs.
    """
    table = MEASURED.get(aggregate, {})
    sizes = sorted(table)
    place = bisect_right(sizes, runs)
    return table[sizes[place - 1]] if place else None


def level_text(aggregate: str, runs: int) -> str:
    """Write the level at which an aggregate's interval was measured to hold.

    Returns:
        `94 % `, to stand before the bounds; empty with few runs, and where nothing was measured.
    """
    coverage = measured_coverage(aggregate, runs)
    return "" if coverage is None or runs < FEW_RUNS else f"{100 * coverage:.0f} % "
