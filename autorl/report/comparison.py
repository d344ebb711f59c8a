"""Optimizers side by side: the same study under each, at equal budgets.

The unit is a study: its value is the interquartile mean of its incumbent over test seeds, which is
what a study reports. Ranks are averaged over study seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted, number
from autorl.optimizers.model_share import ModelShare, share_caution, share_dict
from autorl.report.table import columns, one_line
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
        _row(name, results[name], values, ranks.get(name), charged[name], seed)
        for name, values in tests.items()
    ]

    def place(row: Row) -> tuple[bool, float | None, float]:
        # Last without a score, whichever way the objective is better.
        loss = np.inf if row.test is None else -sign * row.test
        return row.rank is None, row.rank, loss

    # By the score alone if there are no ranks.
    rows.sort(key=place)
    caveats = (*_unequal_budgets(rows), *_caveats(tests, repeats, results))
    return Comparison(objective, tuple(rows), repeats, caveats)


def comparison_text(comparison: Comparison) -> str:
    """Write the comparison as a screen of text."""
    rows = [
        (
            row.optimizer,
            number(row.rank),
            number(row.test),
            interval_text(row.interval),
            number(row.tuning),
            _share_text(row),
            "-" if row.steps is None else f"{row.steps:,.0f}",
            " ".join(number(value) for value in row.tests.values()),
        )
        for row in comparison.rows
    ]
    header = (
        "optimizer",
        "average rank",
        "test (IQM)",
        "interval",
        "tuning",
        "by the model",
        "steps charged",
        "test (IQM) of each study",
    )
    lines = [one_line(comparison.objective), "", columns(header, rows), ""]
    return "\n".join(
        [*lines, *(one_line(f"  caution: {text}") for text in comparison.caveats)]
    ).rstrip()


def comparison_dict(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON types."""
    return {
        "objective": comparison.objective,
        "repeats": comparison.repeats,
        "optimizers": [
            {
                "optimizer": row.optimizer,
                "average_rank": row.rank,
                "test": row.test,
                "interval": None
                if row.interval is None
                else {"low": row.interval.low, "high": row.interval.high},
                "tuning": row.tuning,
                "new_configurations": share_dict(row.share, learns=row.learns),
                "charged_steps": row.steps,
                "tests": {str(seed): value for seed, value in row.tests.items()},
            }
            for row in comparison.rows
        ],
        "caveats": list(comparison.caveats),
    }


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
    tuning = float(np.mean([result.tuning for result in results.values()])) if results else None
    test = iqm(values) if len(values) else None
    learns = any(result.learns for result in results.values())
    steps = float(np.mean(list(charged.values()))) if charged else None
    return Row(name, tests, test, interval, tuning, rank, _share(results), learns, steps)


def _share(results: Mapping[int, Result]) -> ModelShare:
    shares = [result.share for result in results.values()]
    return ModelShare(
        sum(share.new for share in shares),
        sum(share.modelled for share in shares),
        sum(share.continued for share in shares),
    )


def _share_text(row: Row) -> str:
    """Write how many of the new configurations are by the model.

    Returns:
        A dash for an optimizer without a model.
    """
    if not row.learns or not row.share.new:
        return "-"
    return f"{row.share.modelled} of {row.share.new}"


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


def _caveats(
    tests: Mapping[str, Mapping[int, float]],
    repeats: int,
    results: Mapping[str, Mapping[int, Result]],
) -> tuple[str, ...]:
    caveats = []
    if repeats < FEW_REPEATS:
        caveats.append(
            f"{counted(repeats, 'study')} for each optimizer: "
            f"fewer than {FEW_REPEATS} say little about which is better"
        )
    for name, by_seed in results.items():
        share = _share(by_seed)
        learns = any(result.learns for result in by_seed.values())
        caution = share_caution(name, share, learns=learns)
        caveats += [] if caution is None else [caution]
    for name, values in tests.items():
        if len(results[name]) < repeats:
            caveats.append(
                f"{name}: {counted(repeats - len(results[name]), 'study')} ended without a result"
            )
        elif problems := [result for result in results[name].values() if result.problem]:
            caveats.append(
                f"{name}: in {counted(len(problems), 'study')} "
                "every test run of the incumbent failed: no test score"
            )
        elif len(values) < repeats:
            caveats.append(f"{name}: no test seeds, so there is nothing to compare")
        caveats += _failed_tests(name, results[name].values())
    return tuple(caveats)


def _failed_tests(name: str, results: Iterable[Result]) -> list[str]:
    """Caution where scores are of fewer test runs than were made."""
    tests = [result.test for result in results if result.test is not None]
    failed = sum(test.failed for test in tests)
    if not failed:
        return []
    runs = sum(test.runs for test in tests)
    stated = next((test.failed_value for test in tests if test.failed_value is not None), None)
    how = (
        "the scores are of the others, which flatters them"
        if stated is None
        else f"each counts as {number(stated)}"
    )
    return [f"{name}: {failed} of {runs} test runs failed: {how}"]
