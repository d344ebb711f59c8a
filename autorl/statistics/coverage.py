"""Measured coverage of nominal 95 % intervals, by number of runs.

Measured on the seed noise of recorded RL training and written by `benchmarks/error_rates.py` from
ARLBench's DQN and PPO tables: `benchmarks/results/error_rates.md` has the set-up, the errors and
the intervals that were not chosen. A test holds that both say the same.
"""

from __future__ import annotations

from bisect import bisect_right

MEASURED: dict[str, dict[int, float]] = {
    "iqm": {
        2: 0.486,
        3: 0.734,
        4: 0.861,
        5: 0.891,
        6: 0.89,
        8: 0.932,
        10: 0.937,
        15: 0.935,
        20: 0.942,
    },
    "mean": {
        2: 0.464,
        3: 0.688,
        4: 0.741,
        5: 0.765,
        6: 0.798,
        8: 0.828,
        10: 0.846,
        15: 0.878,
        20: 0.908,
    },
    "difference of iqm": {3: 0.74, 5: 0.879, 10: 0.934, 20: 0.943},
    "median": {
        2: 0.514,
        3: 0.756,
        4: 0.886,
        5: 0.94,
        6: 0.939,
        8: 0.922,
        10: 0.939,
        15: 0.927,
        20: 0.946,
    },
    "quantile(0.25)": {
        2: 0.393,
        3: 0.588,
        4: 0.698,
        5: 0.774,
        6: 0.82,
        8: 0.9,
        10: 0.904,
        15: 0.917,
        20: 0.931,
    },
    "cvar(0.2)": {
        2: 0.162,
        3: 0.264,
        4: 0.318,
        5: 0.379,
        6: 0.437,
        8: 0.526,
        10: 0.596,
        15: 0.757,
        20: 0.79,
    },
}
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
