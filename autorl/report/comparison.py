"""Methods side by side, on every task, at equal budgets.

The unit is a study: its value is the interquartile mean of its incumbent over test seeds, which is
what a study reports. A case is a task with a study seed. Over all cases stand mean ranks,
performance profiles and probabilities of improvement [Agarwal2021], Friedman's test, Wilcoxon's
with Holm's correction, and Nemenyi's critical difference [Demsar2006]. They speak of these tasks,
not of further ones.

References:
    [Agarwal2021] Agarwal et al., "Deep reinforcement learning at the edge of the statistical
        precipice", NeurIPS 2021.
    [Demsar2006] Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7,
        2006.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted, listed, number
from autorl.core.plain_values import json_value
from autorl.optimizers.model_share import ModelShare, share_caution
from autorl.report.pages.chart import Axis, Chart, Line
from autorl.report.pages.document import Block, Figure, Headline, Row, Section, Table, Text, page
from autorl.report.table import columns, one_line, table_of
from autorl.report.text import interval_text
from autorl.statistics import (
    Interval,
    average_ranks,
    bootstrap_interval,
    critical_difference,
    friedman,
    holm,
    improvement_interval,
    iqm,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    profile_band,
    signed_rank,
)
from autorl.statistics.arrays import Array
from autorl.study import Result
from autorl.study.spec.comparison import Cell

# An IQM's interval covers 0.89 with five runs, 0.73 with three
# (`benchmarks/results/error_rates.md`).
FEW_REPEATS = 5
EQUAL = 0.05
"""Share by which the steps charged may differ without a caution."""
POINTS = 101
"""Scores at which a performance profile is drawn."""

Finished: TypeAlias = tuple[Result, int]
"""The result of a study, and the tuning steps it was charged."""
Scale: TypeAlias = tuple[float, float]
"""The scores of a task that count as 0 and as 1."""


@dataclass(frozen=True)
class MethodRow:
    """One method on one task over all study seeds.

    Attributes:
        tests: test score of each study's incumbent, by study seed; studies without a result are
            missing.
        test: their interquartile mean, and `interval`: its 95 % percentile bootstrap interval over
            studies; None with fewer than two.
        share: new configurations of all its studies, and who made them.
        learns: whether the optimizer has a model.
        tuning: mean tuning score; None without a result.
        steps: tuning steps the budget was charged, mean over studies; None without a result.
    """

    task: str
    method: str
    tests: Mapping[int, float]
    test: float | None
    interval: Interval | None
    tuning: float | None
    share: ModelShare
    learns: bool
    steps: float | None


@dataclass(frozen=True)
class Standing:
    """One method over all cases.

    Attributes:
        rank: mean rank, 1 = best.
        score: interquartile mean of its scores on the tasks' scales, with its stratified interval
            over studies; None with one study a task.
        gap: mean amount by which these fall short of 1, the optimality gap.
        profile: share of its scores above each threshold, and `band`: its low and high.
    """

    method: str
    rank: float
    score: float
    interval: Interval | None
    gap: float
    profile: tuple[float, ...]
    band: tuple[tuple[float, ...], tuple[float, ...]] | None


@dataclass(frozen=True)
class Versus:
    """Two methods over all cases.

    Attributes:
        improvement: probability that a study of the first is better than one of the second.
        p: of Wilcoxon's signed-rank test, Holm-corrected over all pairs.
    """

    first: str
    second: str
    improvement: float
    interval: Interval | None
    p: float


@dataclass(frozen=True)
class Overall:
    """Statistics over all cases.

    Attributes:
        cases: their number.
        scales: of each task.
        standings: best mean rank first.
        friedman: statistic and p-value; None with two methods.
        difference: Nemenyi's critical difference of mean ranks at 5 %.
        thresholds: at which profiles are taken.
    """

    cases: int
    scales: Mapping[str, Scale]
    standings: tuple[Standing, ...]
    pairs: tuple[Versus, ...]
    friedman: tuple[float, float] | None
    difference: float
    thresholds: tuple[float, ...]

    @property
    def groups(self) -> list[list[str]]:
        """Methods that Nemenyi's test does not tell apart, in largest groups."""
        groups: list[list[str]] = []
        for place, first in enumerate(self.standings):
            near = [
                second.method
                for second in self.standings[place:]
                if second.rank - first.rank < self.difference
            ]
            if not groups or near[-1] != groups[-1][-1]:
                groups.append(near)
        return groups


@dataclass(frozen=True)
class Comparison:
    """The tables of a comparison, and its caveats.

    Attributes:
        rows: task by task, the methods by mean rank.
        overall: None where no task has a score.
        repeats: studies asked for, of each method on each task.
    """

    objective: str
    rows: tuple[MethodRow, ...]
    overall: Overall | None
    repeats: int
    caveats: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))


def compare_results(
    studies: Mapping[Cell, Finished | None], seed: int, scales: Mapping[str, Scale] | None = None
) -> Comparison:
    """Compare the studies of methods on tasks.

    Args:
        studies: tasks, methods and seeds in order; None: it ended without a result.
        seed: of the bootstrap.
        scales: of tasks; default: the worst and best score there.
    """
    # By task and method: the studies in the order of their seeds.
    cells: dict[str, dict[str, dict[int, Finished | None]]] = {}
    for (task, method, study_seed), study in studies.items():
        cells.setdefault(task, {}).setdefault(method, {})[study_seed] = study
    repeats = len(studies) // sum(map(len, cells.values()))
    results = [study[0] for study in studies.values() if study is not None]
    signs = {
        cell.task: -1.0 if study[0].direction == "minimize" else 1.0
        for cell, study in studies.items()
        if study is not None
    }
    rows = [
        _row(task, method, by_seed, seed)
        for task, methods in cells.items()
        for method, by_seed in methods.items()
    ]
    tables = {}
    for task, methods in cells.items():
        part = [row for row in rows if row.task == task]
        table = [[row.tests.get(key, np.nan) for key in methods[row.method]] for row in part]
        if any(row.tests for row in part):
            tables[task] = np.array(table)
    overall = None
    if tables:
        overall = _overall(list(next(iter(cells.values()))), tables, signs, scales or {}, seed)
        places = [standing.method for standing in overall.standings]
        rows.sort(key=lambda row: (list(cells).index(row.task), places.index(row.method)))
    return Comparison(
        "; ".join(dict.fromkeys(result.objective for result in results)),
        tuple(rows),
        overall,
        repeats,
        tuple(_caveats(rows, cells, tables, repeats)),
    )


def comparison_text(comparison: Comparison) -> str:
    """Write the comparison as a screen of text."""
    blocks = [one_line(comparison.objective)]
    blocks += [columns(*table) for table in comparison_tables(comparison).values()]
    blocks.append("\n".join(one_line(f"  {text}") for text in tests_text(comparison)))
    blocks.append("\n".join(one_line(f"  caution: {text}") for text in comparison.caveats))
    return "\n\n".join(block for block in blocks if block)


def comparison_tables(comparison: Comparison) -> dict[str, tuple[list[str], list[list[object]]]]:
    """Make header and rows of each table, by title."""
    several = len(comparison.tasks) > 1
    overall = comparison.overall
    ranks = {} if overall is None else {it.method: it.rank for it in overall.standings}
    tables = {}
    if overall is not None and several:
        tables["All tasks"] = table_of(
            {
                "method": standing.method,
                "average rank": number(standing.rank),
                "scaled (IQM)": number(standing.score),
                "interval": interval_text(standing.interval),
                "optimality gap": number(standing.gap),
            }
            for standing in overall.standings
        )
    tables["Studies"] = table_of(
        {
            **({"task": row.task} if several else {}),
            "method": row.method,
            **({} if several else {"average rank": number(ranks.get(row.method))}),
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
    )
    if overall is not None:
        tables["In pairs"] = table_of(
            {
                "first": pair.first,
                "second": pair.second,
                "a study of the first is better": f"{pair.improvement:.0%}",
                "interval": "-"
                if pair.interval is None
                else f"[{pair.interval.low:.0%}, {pair.interval.high:.0%}]",
                "p (Wilcoxon, Holm)": f"{pair.p:.3g}",
            }
            for pair in overall.pairs
        )
    return tables


def tests_text(comparison: Comparison) -> list[str]:
    """Say what the tests over all cases found."""
    overall = comparison.overall
    if overall is None:
        return []
    cases = counted(overall.cases, "case")
    lines = [f"over {cases}, a task with a study seed each; they speak of no other tasks"]
    if len(comparison.tasks) > 1:
        spans = [f"{task} {number(a)} to {number(b)}" for task, (a, b) in overall.scales.items()]
        lines.append(f"scaled scores: 0 to 1 is {listed(spans)}")
    if overall.friedman is not None:
        statistic, p_value = overall.friedman
        alike = "; ".join(listed(group) for group in overall.groups if len(group) > 1)
        lines += [
            f"Friedman's test of equal ranks: chi-squared {number(statistic)}, p {p_value:.3g}",
            f"critical difference of average ranks (Nemenyi, 5 %) {number(overall.difference)}; "
            f"not told apart: {alike or 'none'}",
        ]
    return lines


def comparison_dict(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON types."""
    document: dict[str, Any] = json_value(asdict(comparison))
    if comparison.overall is not None:
        document["overall"]["groups"] = comparison.overall.groups
    return document


def comparison_latex(comparison: Comparison) -> str:
    """Write the test scores as a table for LaTeX with `booktabs`.

    The best of each task is bold.
    """
    overall = comparison.overall
    methods = list(dict.fromkeys(row.method for row in comparison.rows))
    tasks = comparison.tasks
    cells = {(row.task, row.method): row for row in comparison.rows}
    lines = [
        f"% {comparison.objective}; interquartile mean over studies and its 95 % interval",
        f"\\begin{{tabular}}{{l{'r' * (len(tasks) + 1)}}}",
        "\\toprule",
        " & ".join(["Method", *(_tex(task or "Test score") for task in tasks), "Rank"]) + r" \\",
        "\\midrule",
    ]
    best = {}
    for task, (low, high) in (overall.scales if overall else {}).items():
        scores = [row.test for row in comparison.rows if row.task == task and row.test is not None]
        best[task] = max(scores) if high >= low else min(scores)
    for method in methods:
        texts = [_tex(method)]
        for task in tasks:
            row = cells[task, method]
            score = number(row.test)
            bold = row.test is not None and row.test == best.get(task)
            texts.append(f"\\textbf{{{score}}}" if bold else score)
            if row.interval is not None:
                texts[-1] += f" {interval_text(row.interval)}"
        ranks = [it.rank for it in overall.standings if it.method == method] if overall else []
        lines.append(" & ".join([*texts, number(ranks[0] if ranks else None)]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    """Escape the characters that LaTeX reads as commands."""
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(
        named.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text
    )


def _row(task: str, method: str, studies: Mapping[int, Finished | None], seed: int) -> MethodRow:
    finished = {study_seed: study for study_seed, study in studies.items() if study is not None}
    results = [result for result, _ in finished.values()]
    tests = {
        study_seed: result.test.iqm
        for study_seed, (result, _) in finished.items()
        if result.test is not None
    }
    values = np.array(list(tests.values()))
    interval = None
    if len(values) > 1:
        # From a stream of its own, so that another method in the table changes no interval.
        keys = (task, method) if task else (method,)
        interval = bootstrap_interval(values, "iqm", rng=streams.generator(seed, "test", *keys))
    shares = [result.share for result in results]
    return MethodRow(
        task=task,
        method=method,
        tests=tests,
        test=iqm(values) if len(values) else None,
        interval=interval,
        tuning=float(np.mean([result.tuning for result in results])) if results else None,
        share=ModelShare(
            sum(share.new for share in shares),
            sum(share.modelled for share in shares),
            sum(share.continued for share in shares),
        ),
        learns=any(result.learns for result in results),
        steps=float(np.mean([charged for _, charged in finished.values()])) if finished else None,
    )


def _overall(
    methods: Sequence[str],
    tables: Mapping[str, Array],
    signs: Mapping[str, float],
    scales: Mapping[str, Scale],
    seed: int,
) -> Overall:
    """Compare methods over all cases.

    Args:
        methods: by name.
        tables: by task, scores (methods, studies); NaN where there is none.
        signs: by task, 1 where larger is better, else -1.
        scales: of tasks, where they are stated.
        seed: of the bootstrap.
    """
    used = {}
    parts = []
    for task, table in tables.items():
        extremes = (float(np.nanmin(table)), float(np.nanmax(table)))
        worst, best = sorted(extremes, reverse=signs[task] < 0)
        used[task] = low, high = scales.get(task, (worst, best))
        # A task on which every study has one score tells nobody apart.
        part = np.where(table == high, 1.0, np.nan)
        if high != low:
            part = (table - low) / (high - low)
        # As a crash would be: in every number, at the lowest score seen.
        parts.append(np.where(np.isnan(part), np.nanmin(part), part))
    scores = np.stack(parts, axis=-1)  # (methods, studies, tasks)
    cases = scores.transpose(2, 1, 0).reshape(-1, len(methods))
    several = scores.shape[1] > 1
    thresholds = np.linspace(min(0.0, scores.min()), max(1.0, scores.max()), POINTS)
    standings = []
    for method, rank, part in zip(methods, average_ranks(cases), scores, strict=True):
        rng = streams.generator(seed, "test", "scaled", method)
        interval = bootstrap_interval(part, "iqm", rng=rng) if several else None
        band = profile_band(part, thresholds, rng=rng) if several else None
        profile = tuple(performance_profile(part, thresholds).tolist())
        edges = None if band is None else (tuple(band[0].tolist()), tuple(band[1].tolist()))
        gap = optimality_gap(part)
        standings.append(Standing(method, float(rank), iqm(part), interval, gap, profile, edges))
    standings.sort(key=lambda it: (it.rank, -it.score))
    places = {method: place for place, method in enumerate(methods)}
    pairs = list(combinations([places[it.method] for it in standings], 2))
    p_values = holm([signed_rank(cases[:, a] - cases[:, b]) for a, b in pairs])
    return Overall(
        cases=len(cases),
        scales=used,
        standings=tuple(standings),
        pairs=tuple(
            Versus(
                methods[a],
                methods[b],
                probability_of_improvement(scores[a], scores[b]),
                improvement_interval(
                    scores[a],
                    scores[b],
                    rng=streams.generator(seed, "test", "improvement", methods[a], methods[b]),
                )
                if several
                else None,
                float(p),
            )
            for (a, b), p in zip(pairs, p_values, strict=True)
        ),
        friedman=friedman(cases) if len(methods) > 2 else None,
        difference=critical_difference(len(methods), len(cases)),
        thresholds=tuple(thresholds.tolist()),
    )


def _caveats(
    rows: Sequence[MethodRow],
    cells: Mapping[str, Mapping[str, Mapping[int, Finished | None]]],
    tables: Mapping[str, Array],
    repeats: int,
) -> Iterator[str]:
    for task in cells:
        yield from unequal_budgets(
            {row.method: row.steps for row in rows if row.task == task}, task
        )
    if repeats < FEW_REPEATS:
        yield (
            f"{counted(repeats, 'study')} for each method: "
            f"fewer than {FEW_REPEATS} say little about which is better"
        )
    for task, table in tables.items():
        if np.isnan(table).any() and len(table) > 1:
            missing = f"{counted(int(np.isnan(table).sum()), 'study')} without a test score"
            yield f"{missing}{f' on {task}' if task else ''}: in ranks and tests the lowest seen"
        elif np.ptp(table) == 0 and table.size > 1:
            where = f" on {task}" if task else ""
            yield f"every study{where} has the score {number(table.flat[0])}"
    for task in (task for task in cells if task not in tables):
        yield f"no study{f' on {task}' if task else ''} has a test score: it is in no rank or test"
    for row in rows:
        name = f"{row.method} on {row.task}" if row.task else row.method
        caution = share_caution(name, row.share, learns=row.learns)
        if caution is not None:
            yield caution
        for text in _missing(cells[row.task][row.method], row.tests):
            yield f"{name}: {text}"


def unequal_budgets(charged: Mapping[str, float | None], task: str = "") -> Iterator[str]:
    """Caution where methods were charged for different amounts of training.

    Differences up to the share `EQUAL` of the most are passed over.

    Args:
        charged: tuning steps by method; None without a result.
        task: that they are of, where there are several.
    """
    steps_of = {name: steps for name, steps in charged.items() if steps is not None}
    most = max(steps_of.values(), default=0.0)
    # A population trains whole generations: what is left may pay for no further one.
    less = ", ".join(
        f"{name} {steps:,.0f} ({steps / most:.0%})"
        for name, steps in steps_of.items()
        if steps < (1.0 - EQUAL) * most
    )
    if less:
        yield (
            f"unequal budgets{f' on {task}' if task else ''}: of {most:,.0f} tuning steps, "
            f"{less} only; scores are not of equal cost"
        )


def _missing(studies: Mapping[int, Finished | None], tests: Mapping[int, float]) -> Iterator[str]:
    """Caution where a method lacks scores or test runs on a task."""
    without = [str(seed) for seed, study in studies.items() if study is None]
    results = [study[0] for study in studies.values() if study is not None]
    if without:
        seeds = f"seed{'s' if len(without) > 1 else ''} {listed(without)}"
        yield f"{counted(len(without), 'study')} ended without a result ({seeds})"
    if problems := [result for result in results if result.problem]:
        yield (
            f"in {counted(len(problems), 'study')} "
            "every test run of the incumbent failed: no test score"
        )
    elif len(tests) < len(results):
        yield "no test seeds, so there is nothing to compare"
    scored = [result.test for result in results if result.test is not None]
    failed = sum(test.failed for test in scored)
    if failed:
        stated = [test.failed_value for test in scored if test.failed_value is not None]
        how = "the scores are of the others, which flatters them"
        how = f"each counts as {number(stated[0])}" if stated else how
        yield f"{failed} of {sum(test.runs for test in scored)} test runs failed: {how}"


def methods_html(comparison: Comparison) -> str:
    """Write the report of a comparison of methods."""
    overall = comparison.overall
    result: list[Block] = [Text(text, "caution") for text in comparison.caveats]
    charts: list[Block] = []
    if overall is not None:
        best = overall.standings[0]
        about = f"average rank over {overall.cases} cases, 1 is best"
        result = [Headline(number(best.rank), f"{best.method} has the best rank", about), *result]
        result += [Text(text) for text in tests_text(comparison)]
        charts = [Row([Figure(_ranks(overall), "ranks"), Figure(_profiles(overall), "profiles")])]
    sections = [
        Section("result", "Result", result),
        Section("charts", "Charts", charts),
        *(
            Section(title.lower().replace(" ", "-"), title, [Table(*table, sortable=True)])
            for title, table in comparison_tables(comparison).items()
        ),
    ]
    methods = dict.fromkeys(row.method for row in comparison.rows)
    return page(" against ".join(methods), comparison.objective, sections)


def _ranks(overall: Overall) -> Chart:
    """Draw the diagram of the critical difference."""
    names = tuple(it.method for it in overall.standings)
    ranks = np.array([it.rank for it in overall.standings])
    half = overall.difference / 2
    about = "Average ranks; two methods whose bars do not overlap differ (Nemenyi, 5 %)."
    marks = Line.dots("average rank", range(len(names)), ranks, names, (ranks - half, ranks + half))
    return Chart("Critical difference", about, Axis("", categories=names), Axis("rank"), (marks,))


def _profiles(overall: Overall) -> Chart:
    """Draw the share of studies above each scaled score."""
    x = np.array(overall.thresholds)
    marks = []
    for it in overall.standings:
        band = None if it.band is None else (np.array(it.band[0]), np.array(it.band[1]))
        marks.append(Line(it.method, x, np.array(it.profile), band))
    about = "Share of studies with a higher scaled score, and its 95 % band."
    y = Axis("share of studies", limits=(0.0, 1.0))
    return Chart("Performance profiles", about, Axis("scaled score"), y, tuple(marks))
