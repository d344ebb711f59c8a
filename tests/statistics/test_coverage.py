"""Intervals of a mean, and the measured coverage that reports quote."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from autorl.statistics import FEW_RUNS, level_text, measured_coverage, student_interval
from autorl.statistics.coverage import MEASURED

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "error_rates.md"
ROWS = {
    "iqm": "IQM, percentile",
    "mean": "mean, percentile",
    "difference of iqm": "difference of IQMs, paired percentile",
    "median": "median, percentile",
    "quantile(0.25)": "quantile(0.25), percentile",
    "cvar(0.2)": "cvar(0.2), percentile",
}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def published(name):
    """Coverage by number of runs, from the benchmark's table."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith(f"| {name} |"))
    row = lines[place]
    header = next(line for line in lines[place::-1] if line.startswith("| interval |"))
    sizes = [int(cell.split()[0]) for cell in cells(header)[1:]]
    return dict(zip(sizes, (float(cell.split()[0]) for cell in cells(row)[1:]), strict=True))


@pytest.mark.parametrize("aggregate", list(ROWS))
def test_what_reports_quote_is_what_the_benchmark_measured(aggregate):
    assert MEASURED[aggregate] == published(ROWS[aggregate])


def test_the_headline_interval_holds_at_ten_seeds():
    assert published("IQM, percentile")[10] >= 0.93
    assert published("mean, percentile")[10] < 0.93, "why the mean is no headline"


def test_coverage_between_measured_numbers_of_runs_is_that_of_fewer():
    assert measured_coverage("iqm", 9) == MEASURED["iqm"][8]
    assert measured_coverage("iqm", 1000) == MEASURED["iqm"][20]
    assert measured_coverage("iqm", 1) is None
    assert measured_coverage("cvar(0.3)", 10) is None


def test_students_interval_is_scipys():
    scores = np.random.default_rng(0).normal(3.0, 2.0, 7)
    expected = ttest_1samp(scores, 0.0).confidence_interval(0.9)
    found = student_interval(scores, level=0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.level, found.method) == (0.9, "Student's t")


@pytest.mark.parametrize(
    ("scores", "options", "rule"),
    [
        ([1.0], {}, "at least 2 runs"),
        ([[1.0, 2.0], [3.0, 4.0]], {}, "of one task"),
        ([1.0, np.nan], {}, "finite"),
        ([1.0, 2.0], {"level": 1.0}, "strictly between"),
    ],
)
def test_refusals(scores, options, rule):
    with pytest.raises(ValueError, match=rule):
        student_interval(scores, **options)


def test_few_runs_are_fewer_than_those_whose_interval_was_measured_to_hold():
    assert measured_coverage("iqm", FEW_RUNS - 1) < 0.93 <= measured_coverage("iqm", FEW_RUNS)
    assert level_text("iqm", FEW_RUNS - 1) == ""
    assert level_text("iqm", FEW_RUNS) == "93 % "
    assert level_text("mean", 10) == "85 % "
    assert level_text("cvar(0.3)", 10) == "", "not measured"
