"""The page of `search.py`: scores, losses, budget multipliers, and the comparisons a reader asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cells import Cell, Raw, installed
from comparisons import HALF, Share, Summary, header, label, model_text, over_tasks, paragraph, row
from numpy.typing import NDArray
from search_rows import CURVE, PLAIN, REFERENCE, RUNS, at_runs, curve_of
from search_tasks import algorithm

RESAMPLES = 2000
BINS = 5  # of stated probabilities
CALIBRATED = ", adaptive"  # rows whose stated probabilities are compared with what was right
ENGINES = ("tpe", "smac", "gp")
TRANSFER = "transfer"
TITLES = ("multiplier", "multiplier, plain")  # over the reference row, and over `PLAIN`
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """Finished cells of one part and algorithm.

    Attributes:
        part: `table`, `surrogate` or `drawn`.
        tasks: names.
        raw: all cells.
        repeats: by what was measured (`at_runs`, `curve_of`) on every task, those all have.
    """

    part: str
    tasks: tuple[str, ...]
    raw: Raw
    repeats: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, raw: Raw, cells: Sequence[Cell], part: str, name: str) -> Measured:
        """Take the cells of a part and an algorithm."""
        chosen = [cell for cell in cells if cell.part == part and algorithm(cell.task) == name]
        tasks = tuple(dict.fromkeys(cell.task for cell in chosen))
        done: dict[str, dict[str, set[int]]] = {}
        for cell in chosen:
            done.setdefault(cell.method, {}).setdefault(cell.task, set()).add(cell.repeat)
        repeats = {
            measurement: tuple(sorted(set.intersection(*by_task.values())))
            for measurement, by_task in done.items()
            if set(by_task) == set(tasks)
        }
        whole = {measurement: common for measurement, common in repeats.items() if common}
        return cls(part, tasks, raw, whole)

    def methods(self, runs: int) -> list[str]:
        """Those that were measured with so many runs, in the order of the rows."""
        ends = at_runs("", runs)
        return [name.removesuffix(ends) for name in self.repeats if name.endswith(ends)]

    def values(self, method: str, runs: int, name: str, repeats: Sequence[int] = ()) -> Array:
        """A figure of a method: (tasks, repeats), of all its repeats where none are named."""
        measurement = at_runs(method, runs)
        return np.array(
            [
                [
                    float(self.cell(measurement, task, repeat)[name])
                    for repeat in repeats or self.repeats[measurement]
                ]
                for task in self.tasks
            ]
        )

    def mean(self, method: str, runs: int, name: str = "judged") -> float:
        return float(self.values(method, runs, name).mean())

    def share(self, method: str, runs: int) -> Share:
        return Share(self.mean(method, runs, "informed"), self.mean(method, runs, "new"))

    def curve(self, reference: str) -> Array:
        """Held-out scores of a reference row, (tasks, lengths of `CURVE`), mean over repeats."""
        return np.array(
            [
                np.mean(
                    [
                        self.cell(curve_of(reference), task, repeat)["curve"]
                        for repeat in self.repeats[curve_of(reference)]
                    ],
                    axis=0,
                )
                for task in self.tasks
            ]
        )

    def stated(self, method: str, runs: int) -> Array:
        """Stated probabilities of a right choice and whether it was, (choices, 2)."""
        measurement = at_runs(method, runs)
        pairs = []
        for task in self.tasks:
            for repeat in self.repeats.get(measurement, ()):
                figures = self.cell(measurement, task, repeat)
                # A study has not confirmed anything where its budget left nothing to.
                if "stated" in figures:
                    pairs.append((figures["stated"], figures["right"]))
        return np.array(pairs, dtype=float).reshape(-1, 2)

    def cell(self, measurement: str, task: str, repeat: int) -> Mapping[str, Any]:
        figures: Mapping[str, Any]
        figures = self.raw.cells[Cell(self.part, task, measurement, repeat).key]
        return figures


# -- figures -----------------------------------------------------------------------------------------------------------


def difference(measured: Measured, first: str, second: str, runs: int) -> Array:
    """First minus second, one per task, over the repeats that both have."""
    repeats = [set(measured.repeats[at_runs(method, runs)]) for method in (first, second)]
    common = sorted(set.intersection(*repeats))
    return np.asarray(
        (
            measured.values(first, runs, "judged", common)
            - measured.values(second, runs, "judged", common)
        ).mean(axis=1)
    )


def runs_needed(curve: Array, score: float) -> float:
    """Runs after which the reference row reaches a score; infinite where it does not.

    Args:
        curve: its scores after the runs of `CURVE`.
        score: to be reached.
    """
    reached = np.maximum.accumulate(curve)  # more runs are never taken to be worse
    if score > reached[-1]:
        return math.inf
    place = int(np.searchsorted(reached, score))
    if place == 0:
        return float(CURVE[0])
    low, high = reached[place - 1], reached[place]
    part = (score - low) / (high - low)
    return float(CURVE[place - 1] + part * (CURVE[place] - CURVE[place - 1]))


def multiplier(curves: Array, scores: Array, runs: int) -> Summary:
    """The budget multiplier with its 95 % bootstrap interval over tasks.

    Args:
        curves: of the reference row, (tasks, lengths of `CURVE`).
        scores: of a row, one per task.
        runs: of the row.
    """
    drawn = np.random.default_rng(0).integers(len(scores), size=(RESAMPLES, len(scores)))
    needed = [runs_needed(curves[tasks].mean(axis=0), scores[tasks].mean()) for tasks in drawn]
    low, high = np.quantile(needed, [0.025, 0.975], method="nearest")
    value = runs_needed(curves.mean(axis=0), float(scores.mean()))
    return Summary(value / runs, float(low) / runs, float(high) / runs)


def multiplier_text(found: Summary, runs: int) -> str:
    """A multiplier as a table says it, with what lies outside the curve as a bound."""
    least, most = CURVE[0] / runs, CURVE[-1] / runs

    def said(value: float) -> str:
        if math.isinf(value):
            return f"> {most:.3g}"
        return f"<= {least:.3g}" if value <= least else f"{value:.2g}"

    return f"{said(found.value)} [{said(found.low)}, {said(found.high)}]"


# -- the page ----------------------------------------------------------------------------------------------------------


def report(raw: Raw, cells: Sequence[Cell], missing: int, command: str) -> str:
    """The whole page."""
    lines = ["# Search on ARLBench's tables", ""]
    lines += paragraph(
        "What was run and how it is judged: the heads of `benchmarks/search.py`, which writes this, and of",
        "`search_tasks.py` and `search_rows.py`. Scores are of held-out seeds: 0 and 1 are the worst and the best",
        "recorded configuration. `search` and `choice`: what was lost to the best configuration not being tried, and",
        "to another one being chosen. `by the model`: of the configurations tried, how many came from scores; `met`:",
        "how many different recorded configurations answered for them; `moved`: how many of the proposed ones are not",
        "recorded, and how far away the nearest recorded one is in the median (a category counts 1).",
        "Intervals are 95 %, over tasks: t intervals of differences paired by repeat, bootstrap intervals of",
        "multipliers. They are not corrected for the number of rows.",
    )
    lines += ["", f"Made by `python benchmarks/search.py {command}`.", ""]
    if missing:
        lines += [f"**Not finished: {missing} cells are missing.**", ""]
    for part in dict.fromkeys(cell.part for cell in cells):
        for name in dict.fromkeys(algorithm(cell.task) for cell in cells if cell.part == part):
            measured = Measured.of(raw, cells, part, name)
            lines += [f"## {name.upper()}, {part}", "", *section(measured)]
    packages = ("numpy", "scikit-learn", "optuna", "smac")
    versions = ", ".join(f"{name} {installed(name) or 'not installed'}" for name in packages)
    return "\n".join([*lines, f"Packages: {versions}. Code: {raw.code}.", ""])


def section(measured: Measured) -> list[str]:
    """The tables of one part and algorithm."""
    if measured.part == "drawn":
        return [line for runs in RUNS for line in calibration(measured, runs)]
    measured_runs = [runs for runs in RUNS if REFERENCE in measured.methods(runs)]
    if not measured_runs:
        return [f"Nothing to compare with: {REFERENCE} is not finished.", ""]
    repeats = [len(common) for common in measured.repeats.values()]
    lines = [f"{len(measured.tasks)} tasks, {min(repeats)} to {max(repeats)} repeats of a row.", ""]
    if measured.part == "surrogate" and curve_of(REFERENCE) in measured.repeats:
        lines += [*trust(measured), ""]
    for runs in measured_runs:
        lines += [f"### {runs} runs", "", *overview(measured, runs), ""]
    asked = [*comparisons_of(measured)]
    if asked:
        lines += ["### Comparisons", "", *header("difference", "runs", "mean", "95 %", "")]
        lines += [*asked, ""]
    for runs in measured_runs:
        lines += calibration(measured, runs)
    return lines


def trust(measured: Measured) -> list[str]:
    """How well each surrogate ranks configurations it has not seen."""
    curve = curve_of(REFERENCE)
    first = measured.repeats[curve][0]
    words = [
        f"{task} {measured.cell(curve, task, first)['correlation']:.2f}" for task in measured.tasks
    ]
    return paragraph("Out-of-bag rank correlation of the surrogates:", ", ".join(words) + ".")


def overview(measured: Measured, runs: int) -> list[str]:
    """A row for each method, the best first."""
    references = [name for name in (REFERENCE, PLAIN) if curve_of(name) in measured.repeats]
    curves = [measured.curve(name) for name in references]
    heads = ("", "score", f"minus {REFERENCE}", "95 %", "search", "choice")
    lines = header(*heads, *TITLES[: len(curves)], "by the model", "met", "moved")
    for method in sorted(measured.methods(runs), key=lambda name: -measured.mean(name, runs)):
        gap = over_tasks(difference(measured, method, REFERENCE, runs))
        scores = measured.values(method, runs, "judged").mean(axis=1)
        multipliers = [multiplier(curve, scores, runs) for curve in curves]
        share = measured.share(method, runs)
        lines.append(
            row(
                titled(method, share),
                f"{scores.mean():.3f}",
                gap.text(3, "+"),
                f"{measured.mean(method, runs, 'search_loss'):.3f}",
                f"{measured.mean(method, runs, 'choice_loss'):.3f}",
                *(multiplier_text(found, runs) for found in multipliers),
                model_text(method, share),
                f"{measured.mean(method, runs, 'met'):.3g}",
                moved_text(measured, method, runs),
            )
        )
    return lines


def moved_text(measured: Measured, method: str, runs: int) -> str:
    """How many proposed configurations were not recorded, and how far away; the baseline's all are."""
    place = measured.repeats[at_runs(method, runs)][0]
    if "moved" not in measured.cell(at_runs(method, runs), measured.tasks[0], place):
        return "-"
    share, far = (measured.mean(method, runs, name) for name in ("moved", "far"))
    return f"{share:.0%} by {far:.2f}"


def titled(method: str, share: Share) -> str:
    """The row's name with what really ran."""
    # The best row of transfer is its portfolio, in which no score has a part by design.
    if method.startswith(TRANSFER) and share.informed < HALF * share.new:
        return f"{method} ({share.text} by the model: mostly its prior or its start-up)"
    return label(method, share)


def comparisons_of(measured: Measured) -> Iterator[str]:
    """The comparisons of the rows that were run."""
    for first, second, runs in questions(measured):
        differences = difference(measured, first, second, runs)
        gap = over_tasks(differences)
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        name = f"{first} - {second}"
        yield row(
            name, runs, gap.text(3, "+"), f"better on {better}, worse on {worse}; {gap.verdict}"
        )


PAIRS: tuple[tuple[str, str], ...] = (
    ("transfer, leave-task-out, adaptive", "plain portfolio, rejects, leave-task-out"),
    ("transfer, leave-task-out, adaptive", "transfer, no prior, adaptive"),
    ("transfer, leave-family-out, adaptive", "transfer, no prior, adaptive"),
    ("transfer, misleading prior, adaptive", "transfer, no prior, adaptive"),
    *(("transfer, no prior, adaptive", f"{name}, adaptive") for name in ("random", *ENGINES)),
    *((f"{name}, adaptive", "random, adaptive") for name in ENGINES),
    ("random, adaptive", REFERENCE),
)
"""Which rows are compared with each other. `random, adaptive` is the reference of the search, the other of the whole."""


def questions(measured: Measured) -> Iterator[tuple[str, str, int]]:
    """Which row is compared with which, at how many runs."""
    here = {runs: set(measured.methods(runs)) for runs in RUNS}
    for pair in PAIRS:
        yield from ((*pair, runs) for runs in RUNS if here[runs].issuperset(pair))


def calibration(measured: Measured, runs: int) -> list[str]:
    """Stated probabilities of a right choice in bins, beside how often it was."""
    methods = [name for name in measured.methods(runs) if name.endswith(CALIBRATED)]
    if not methods:
        return []
    lines = [f"### How sure the choice is, {runs} runs", ""]
    judges = (
        "all ten seeds, of which the tuning seeds are drawn with replacement."
        if measured.part == "drawn"
        else "the held-out seeds, which is noisy itself, and low where the tuning seeds were lucky."
    )
    lines += paragraph(
        "Stated / right (choices). Right: no other confirmed configuration has a better mean over",
        judges,
    )
    heads = [f"up to {(number + 1) / BINS:.1f}" for number in range(BINS)]
    lines += ["", *header("", *heads)]
    said = {method: measured.stated(method, runs) for method in methods}
    for method, pairs in [*said.items(), ("all", np.concatenate([*said.values()]))]:
        bins = np.minimum((pairs[:, 0] * BINS).astype(int), BINS - 1)
        words = [""] * BINS
        for number in np.unique(bins).tolist():
            chosen = pairs[bins == number]
            stated, right = chosen.mean(axis=0)
            words[number] = f"{stated:.2f} / {right:.2f} ({len(chosen)})"
        lines.append(row(method, *words))
    return [*lines, ""]
