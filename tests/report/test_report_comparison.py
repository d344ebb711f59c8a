"""Comparison tables from results made by hand."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats
from report_support import entry, interval, result

from autorl.report.comparison import (
    compare_results,
    comparison_dict,
    comparison_latex,
    comparison_text,
    methods_html,
)
from autorl.study.spec.comparison import Cell


def compared(scores, seed=0, charged=None, **options):
    """A comparison of studies charged 100 steps each, but for methods of `charged`.

    `scores` has a list of results, one a study, by method or by (task, method).
    """
    studies = {}
    for name, results in scores.items():
        task, method = name if isinstance(name, tuple) else ("", name)
        for number, found in enumerate(results):
            steps = (charged or {}).get(method, 100)
            studies[Cell(task, method, number)] = None if found is None else (found, steps)
    return compare_results(studies, seed, **options)


def scored(test, tuning=95.0, direction="maximize"):
    span = (test - 1.0, test + 1.0)
    tested = entry("incumbent", 7, tuning, [span[0], test, span[1]], interval(*span))
    return result(entries=(tested,), tuning=tuning, direction=direction, difference=None)


def ranks(comparison):
    return {it.method: it.rank for it in comparison.overall.standings}


def test_ranks_means_and_order():
    found = compared(
        {
            "one": [scored(10.0), scored(20.0), scored(30.0)],
            "two": [scored(40.0), scored(50.0), scored(5.0)],
            "three": [scored(1.0), scored(2.0), scored(3.0)],
        }
    )
    assert [row.method for row in found.rows] == ["two", "one", "three"]
    assert ranks(found) == pytest.approx({"two": 4 / 3, "one": 5 / 3, "three": 3.0})
    assert [row.test for row in found.rows] == pytest.approx([95 / 3, 20.0, 2.0])
    assert found.rows[1].interval.low < 20.0 < found.rows[1].interval.high


def test_smaller_is_better_when_minimising():
    found = compared(
        {
            "one": [scored(10.0, direction="minimize")],
            "two": [scored(40.0, direction="minimize")],
            "none": [None],
        }
    )
    assert ranks(found) == {"one": 1.0, "two": 2.5, "none": 2.5}
    assert found.rows[0].method == "one"
    assert found.overall.scales == {"": (40.0, 10.0)}
    assert r"one & \textbf{10} & 1" in comparison_latex(found)


def test_a_missing_study_counts_as_the_lowest_score_and_is_named():
    found = compared(
        {"one": [scored(10.0), scored(20.0)], "two": [scored(40.0), None], "none": [None, None]}
    )
    assert ranks(found) == {"one": 1.75, "two": 1.75, "none": 2.5}
    texts = "\n".join(found.caveats)
    assert "3 studies without a test score: in ranks and tests the lowest seen" in texts
    assert "two: 1 study ended without a result (seed 1)" in texts
    assert "none: 2 studies ended without a result (seeds 0, 1)" in texts
    assert {row["method"]: row["test"] for row in comparison_dict(found)["rows"]}["none"] is None
    nothing = compared({"one": [None], "two": [None]})
    assert nothing.overall is None
    assert "no study has a test score" in comparison_text(nothing)


def test_without_test_seeds_there_is_nothing_to_compare():
    untested = dataclasses.replace(scored(1.0), entries=())
    found = compared({"one": [untested], "two": [scored(2.0)]})
    assert {row.method: row.test for row in found.rows} == {"one": None, "two": 2.0}
    assert "one: no test seeds" in comparison_text(found)


def test_the_interval_is_the_same_again_and_few_repeats_are_a_caution():
    scores = {"one": [scored(10.0), scored(20.0)], "two": [scored(40.0), scored(41.0)]}
    assert compared(scores, 3) == compared(scores, 3)
    assert "2 studies for each method" in comparison_text(compared(scores, 3))
    many = {name: [scored(10.0 + seed) for seed in range(5)] for name in ("one", "two")}
    assert compared(many).caveats == ()


def test_unequal_budgets_are_shown_and_a_caution():
    results = {name: [scored(10.0 + seed) for seed in range(5)] for name in ("one", "two", "three")}
    charged = {"one": 3200, "two": 1984, "three": 3100}
    found = compared(results, charged=charged)
    (caution,) = found.caveats
    assert caution.startswith("unequal budgets: of 3,200 tuning steps, two 1,984 (62%) only")
    assert {row.method: row.steps for row in found.rows} == charged
    assert "1,984 " in comparison_text(found)
    assert compared(results).caveats == ()


METHODS = ("a", "b_c", "d")
TABLES = {  # by task: methods x studies
    "Pole-v1": [[200.0, 180.0, 500.0], [150.0, 190.0, 400.0], [100.0, 90.0, 120.0]],
    "Walker": [[-3.0, -2.0, -1.0], [-4.0, -2.5, -1.5], [-1.0, -5.0, -6.0]],
    "solved": [[7.0] * 3] * 3,
}


def test_tasks_are_put_on_one_scale_and_tested_together():
    """Every number anew from the scaled table, by SciPy and by pairs."""
    found = compared(
        {
            (task, method): [scored(value) for value in values]
            for task, table in TABLES.items()
            for method, values in zip(METHODS, table, strict=True)
        },
        scales={"Pole-v1": (0.0, 500.0)},
    )
    overall = found.overall
    assert overall.scales == {"Pole-v1": (0.0, 500.0), "Walker": (-6.0, -1.0), "solved": (7.0, 7.0)}
    assert "every study on solved has the score 7" in found.caveats
    scaled = np.array(
        [np.array(TABLES["Pole-v1"]) / 500, (np.array(TABLES["Walker"]) + 6) / 5, np.ones((3, 3))]
    )
    cases = scaled.transpose(0, 2, 1).reshape(9, 3)
    assert overall.cases == 9
    expected = dict(zip(METHODS, scipy.stats.rankdata(-cases, axis=1).mean(axis=0), strict=True))
    assert ranks(found) == pytest.approx(expected)
    assert overall.friedman == pytest.approx(scipy.stats.friedmanchisquare(*cases.T))
    raw = {}
    for pair in overall.pairs:
        first, second = (METHODS.index(name) for name in (pair.first, pair.second))
        differences = cases[:, first] - cases[:, second]
        raw[pair] = scipy.stats.wilcoxon(differences, zero_method="pratt").pvalue
        better = [
            np.mean(np.sign(task[first][:, None] - task[second][None, :]) + 1) / 2
            for task in scaled
        ]
        assert pair.improvement == pytest.approx(np.mean(better))
    least, middle, most = sorted(raw, key=raw.get)
    assert least.p == pytest.approx(min(1.0, 3 * raw[least]))
    assert middle.p == pytest.approx(max(least.p, min(1.0, 2 * raw[middle])))
    assert most.p == pytest.approx(max(middle.p, raw[most]))
    for it in overall.standings:
        values = scaled[:, METHODS.index(it.method)].ravel()
        assert it.gap == pytest.approx(np.mean(1 - values))
        share = [np.mean(values > threshold) for threshold in overall.thresholds]
        assert it.profile == pytest.approx(share)
        assert np.all(np.array(it.band[0]) <= np.array(it.band[1]))
    assert [row.task for row in found.rows] == [task for task in TABLES for _ in METHODS]


def test_every_form_of_a_comparison_says_the_same():
    scores = {
        (task, method): [scored(value) for value in values]
        for task, table in TABLES.items()
        for method, values in zip(METHODS, table, strict=True)
    }
    found = compared(scores)
    text = comparison_text(found)
    assert "over 9 cases" in text
    assert "not told apart: a, b_c, d" in text
    document = json.loads(json.dumps(comparison_dict(found), allow_nan=False))
    assert document["overall"]["groups"] == [["a", "b_c", "d"]]
    latex = comparison_latex(found)
    assert r"b\_c & " in latex
    assert latex.count(r"\\") == 4
    assert r"a & \textbf{293.3} [180, 500]" in latex
    page = methods_html(found)
    assert "Performance profiles" in page
    assert "a has the best rank" in page


def test_groups_are_the_largest_that_the_critical_difference_spans():
    results = {
        name: [scored(float(place)) for _ in range(10)] for place, name in enumerate("edcba")
    }
    found = compared(results)
    assert ranks(found) == dict(zip("abcde", [1.0, 2.0, 3.0, 4.0, 5.0], strict=True))
    assert 1 < found.overall.difference < 2
    assert found.overall.groups == [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"]]
