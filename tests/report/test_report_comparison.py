"""Comparison tables from results made by hand."""

import dataclasses

import pytest
from report_support import entry, interval, result

from autorl.report.comparison import compare_results, comparison_dict, comparison_text


def compared(results, *rest, charged=None):
    """A comparison of studies that were charged 100 steps each, but for those of `charged`."""
    steps = {
        name: dict.fromkeys(by_seed, (charged or {}).get(name, 100))
        for name, by_seed in results.items()
    }
    return compare_results(results, steps, *rest)


def scored(test, tuning=95.0, direction="maximize"):
    span = (test - 1.0, test + 1.0)
    tested = entry("incumbent", 7, tuning, [span[0], test, span[1]], interval(*span))
    return result(entries=(tested,), tuning=tuning, direction=direction, difference=None)


def test_ranks_means_and_order():
    results = {
        "one": {0: scored(10.0), 1: scored(20.0), 2: scored(30.0)},
        "two": {0: scored(40.0), 1: scored(50.0), 2: scored(5.0)},
        "three": {0: scored(1.0), 1: scored(2.0), 2: scored(3.0)},
    }
    found = compared(results, 0, 3)
    assert [row.optimizer for row in found.rows] == ["two", "one", "three"]
    assert [row.rank for row in found.rows] == pytest.approx([4 / 3, 5 / 3, 3.0])
    assert [row.test for row in found.rows] == pytest.approx([95 / 3, 20.0, 2.0])
    assert found.rows[1].interval.low < 20.0 < found.rows[1].interval.high


def test_smaller_is_better_when_minimising():
    results = {
        "one": {0: scored(10.0, direction="minimize")},
        "two": {0: scored(40.0, direction="minimize")},
    }
    found = compared(results, 0, 1)
    assert [(row.optimizer, row.rank) for row in found.rows] == [("one", 1.0), ("two", 2.0)]


def test_a_missing_study_takes_the_ranks_away_and_is_named():
    results = {"one": {0: scored(10.0), 1: scored(20.0)}, "two": {0: scored(40.0)}, "none": {}}
    found = compared(results, 0, 2)
    assert [row.rank for row in found.rows] == [None, None, None]
    assert [row.optimizer for row in found.rows] == ["two", "one", "none"]
    assert found.rows[0].interval is None
    assert any(text.startswith("two: 1 study ended") for text in found.caveats)
    assert any(text.startswith("none: 2 studies") for text in found.caveats)
    assert comparison_dict(found)["optimizers"][2]["test"] is None


def test_an_optimizer_without_a_score_is_last_whichever_way_is_better():
    results = {
        "none": {},
        "large": {0: scored(40.0, direction="minimize")},
        "small": {0: scored(10.0, direction="minimize")},
    }
    found = compared(results, 0, 1)
    assert [row.optimizer for row in found.rows] == ["small", "large", "none"]


def test_without_test_seeds_there_is_nothing_to_compare():
    untested = dataclasses.replace(scored(1.0), entries=())
    found = compared({"one": {0: untested}, "two": {0: scored(2.0)}}, 0, 1)
    assert {row.optimizer: row.test for row in found.rows} == {"one": None, "two": 2.0}
    assert "one: no test seeds" in comparison_text(found)


def test_the_interval_is_the_same_again_and_few_repeats_are_a_caution():
    results = {"one": {0: scored(10.0), 1: scored(20.0)}, "two": {0: scored(40.0), 1: scored(41.0)}}
    assert compared(results, 3, 2) == compared(results, 3, 2)
    assert "2 studies for each optimizer" in comparison_text(compared(results, 3, 2))
    many = {name: {seed: scored(10.0 + seed) for seed in range(5)} for name in ("one", "two")}
    assert compared(many, 0, 5).caveats == ()


def test_unequal_budgets_are_shown_and_a_caution():
    results = {
        name: {seed: scored(10.0 + seed) for seed in range(5)} for name in ("one", "two", "three")
    }
    charged = {"one": 3200, "two": 1984, "three": 3100}
    found = compared(results, 0, 5, charged=charged)
    (caution,) = found.caveats
    assert caution.startswith("unequal budgets: of 3,200 tuning steps, two 1,984 (62%) only")
    assert {row.optimizer: row.steps for row in found.rows} == charged
    assert "1,984 " in comparison_text(found)
    rows = comparison_dict(found)["optimizers"]
    assert {row["optimizer"]: row["charged_steps"] for row in rows} == charged
    assert compared(results, 0, 5).caveats == ()
