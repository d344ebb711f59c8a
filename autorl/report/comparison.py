"""Optimizers side by side: the same study under each, at equal budgets.

The unit is a study: its value is the interquartile mean of its incumbent over test seeds, which is
what a study reports. Ranks are averaged over study seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted, number
from autorl.core.plain_values import json_value
from autorl.optimizers.model_share import ModelShare, share_caution, share_dict
from autorl.report.table import columns, one_line, table_of
from autorl.report.text import interval_text
from autorl.statistics import Interval, average_ranks, bootstrap_interval, iqm
from autorl.study import Result

# An IQM's interval covers 0.89 with five runs, 0.73 with three
# (`benchmarks/results/error_rates.md`).
FEW_REPEATS = 5
EQUAL = 0.05
"""Share by which the steps charged may differ without a caution."""


@dataclass(frozen=True)
class Row:
    """One optimizer over all study seeds.

    Attributes:
        tests: test score of each study's incumbent, by study seed; studies without a result are
            missing.
        test: their interquartile mean, and `interval`: its 95 % percentile bootstrap interval over
            studies; None with fewer than two.
        share: new configurations of all its studies, and who made them.
        learns: whether the optimizer has a model.
        tuning: mean tuning score; rank: mean rank, 1 = best; None where some optimizer has no
            result.
        steps: tuning steps the budget was charged, mean over studies; None without a result.
    """

    optimizer: str
    tests: Mapping[int, float]
    test: float | None
    interval: Interval | None
    tuning: float | None
    rank: float | None
    share: ModelShare
    learns: bool
    steps: float | None


@dataclass(frozen=True)
class Comparison:
    """The table of a comparison, best average rank first, and its caveats."""

    objective: str
    rows: tuple[Row, ...]
    repeats: int
    caveats: tuple[str, ...]


def compare_results(
    results: Mapping[str, Mapping[int, Result]],
    charged: Mapping[str, Mapping[int, int]],
    seed: int,
    repeats: int,
) -> Comparison:
    """Compare results by optimizer and study seed.

    Args:
        results: by optimizer and study seed.
        charged: the tuning steps each of these studies was charged.
        seed: of the bootstrap.
        repeats: studies asked for, for each optimizer.
    """
    first = next((result for by_seed in results.values() for result in by_seed.values()), None)
    objective = "" if first is None else first.objective
    sign = -1.0 if first is not None and first.direction == "minimize" else 1.0
    tests = {
        name: {
            study_seed: result.test.iqm
            for study_seed, result in by_seed.items()
            if result.test is not None
        }
        for name, by_seed in results.items()
    }
    ranks = _ranks(tests, sign, repeats)
    rows = [
        _row(name, by_seed, tests[name], ranks.get(name), charged[name], seed)
        for name, by_seed in results.items()
    ]
    caveats = []
    if repeats < FEW_REPEATS:
        caveats.append(
            f"{counted(repeats, 'study')} for each optimizer: "
            f"fewer than {FEW_REPEATS} say little about which is better"
        )
    cautions = (share_caution(row.optimizer, row.share, learns=row.learns) for row in rows)
    caveats += [caution for caution in cautions if caution is not None]
    for name, by_seed in results.items():
        caveats += [f"{name}: {text}" for text in _missing(by_seed, tests[name], repeats)]

    def place(row: Row) -> tuple[bool, float | None, float]:
        # Last without a score, whichever way the objective is better.
        loss = np.inf if row.test is None else -sign * row.test
        return row.rank is None, row.rank, loss

    # By the score alone if there are no ranks.
    rows.sort(key=place)
    return Comparison(objective, tuple(rows), repeats, (*_unequal_budgets(rows), *caveats))


def comparison_text(comparison: Comparison) -> str:
    """Write the comparison as a screen of text."""
    rows = [
        {
            "optimizer": row.optimizer,
            "average rank": number(row.rank),
            "test (IQM)": number(row.test),
            "interval": interval_text(row.interval),
            "tuning": number(row.tuning),
            "by the model": f"{row.share.modelled} of {row.share.new}"
            if row.learns and row.share.new
            else "-",
            "steps charged": "-" if row.steps is None else f"{row.steps:,.0f}",
            "test (IQM) of each study": " ".join(map(number, row.tests.values())),
        }
        for row in comparison.rows
    ]
    lines = [one_line(comparison.objective), "", columns(*table_of(rows)), ""]
    lines += [one_line(f"  caution: {text}") for text in comparison.caveats]
    return "\n".join(lines).rstrip()


def comparison_dict(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON types."""
    document: dict[str, Any] = json_value(
        {
            "objective": comparison.objective,
            "repeats": comparison.repeats,
            "optimizers": [
                {
                    "optimizer": row.optimizer,
                    "average_rank": row.rank,
                    "test": row.test,
                    "interval": row.interval and vars(row.interval),
                    "tuning": row.tuning,
                    "new_configurations": share_dict(row.share, learns=row.learns),
                    "charged_steps": row.steps,
                    "tests": row.tests,
                }
                for row in comparison.rows
            ],
            "caveats": comparison.caveats,
        }
    )
    return document


def _ranks(tests: Mapping[str, Mapping[int, float]], sign: float, repeats: int) -> dict[str, float]:
    """Average the rank of each optimizer over study seeds.

    Returns:
        Empty unless every study has a test score.
    """
    # With a study missing, mean ranks would be against different rivals.
    if len(tests) < 2 or any(len(values) < repeats for values in tests.values()):
        return {}
    table = np.array(
        # By study seed: what is ranked together has the same seed.
        [[sign * value for _, value in sorted(values.items())] for values in tests.values()]
    ).T
    return dict(zip(tests, map(float, average_ranks(table)), strict=True))


def _row(
    name: str,
    results: Mapping[int, Result],
    tests: Mapping[int, float],
    rank: float | None,
    charged: Mapping[int, int],
    seed: int,
) -> Row:
    values = np.array(list(tests.values()))
    interval = None
    if len(values) > 1:
        # From a stream of its own, so that another optimizer in the table changes no interval.
        interval = bootstrap_interval(values, "iqm", rng=streams.generator(seed, "test", name))
    shares = [result.share for result in results.values()]
    return Row(
        optimizer=name,
        tests=tests,
        test=iqm(values) if len(values) else None,
        interval=interval,
        tuning=float(np.mean([result.tuning for result in results.values()])) if results else None,
        rank=rank,
        share=ModelShare(
            sum(share.new for share in shares),
            sum(share.modelled for share in shares),
            sum(share.continued for share in shares),
        ),
        learns=any(result.learns for result in results.values()),
        steps=float(np.mean(list(charged.values()))) if charged else None,
    )


def _unequal_budgets(rows: Sequence[Row]) -> list[str]:
    """Caution where optimizers were charged for different amounts of training.

    Differences up to the share `EQUAL` of the most are passed over.
    """
    steps = {row.optimizer: row.steps for row in rows if row.steps is not None}
    most = max(steps.values(), default=0.0)
    # A population trains whole generations: what is left may pay for no further one.
    less = {name: charged for name, charged in steps.items() if charged < (1.0 - EQUAL) * most}
    if not less:
        return []
    shares = ", ".join(
        f"{name} {charged:,.0f} ({charged / most:.0%})" for name, charged in less.items()
    )
    return [
        f"unequal budgets: of {most:,.0f} tuning steps, {shares} only; "
        "scores and ranks are not of equal cost"
    ]


def _missing(
    results: Mapping[int, Result], tests: Mapping[int, float], repeats: int
) -> Iterator[str]:
    """Caution where an optimizer lacks scores or test runs."""
    if len(results) < repeats:
        yield f"{counted(repeats - len(results), 'study')} ended without a result"
    elif problems := [result for result in results.values() if result.problem]:
        yield (
            f"in {counted(len(problems), 'study')} "
            "every test run of the incumbent failed: no test score"
        )
    elif len(tests) < repeats:
        yield "no test seeds, so there is nothing to compare"
    scored = [result.test for result in results.values() if result.test is not None]
    failed = sum(test.failed for test in scored)
    if failed:
        stated = [test.failed_value for test in scored if test.failed_value is not None]
        how = "the scores are of the others, which flatters them"
        how = f"each counts as {number(stated[0])}" if stated else how
        yield f"{failed} of {sum(test.runs for test in scored)} test runs failed: {how}"
