"""What `optimizers.py` measured, as Markdown: tables with intervals and the sentences that follow from them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import optimizers_live as live
import optimizers_tables as tables
from numpy.typing import NDArray

PARTS = ("live", "ray", "moving", "tables")
POPULATIONS, RAY = ("pbt", "pb2"), ("Ray PBT", "Ray PB2")
FEWEST = 3  # whole repeats of a method that is shown
MARGIN = 5.0  # per cent of the range that pbt and pb2 may be below random search


@dataclass(frozen=True, order=True)
class Cell:
    """One number to be measured: a method on a task in a repeat."""

    part: str
    task: str
    method: str
    repeat: int

    @property
    def key(self) -> str:
        return f"{self.part}|{self.task}|{self.method}|{self.repeat}"


class Raw:
    """Finished cells by key, kept in a file after each."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.cells: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def keep(self, cell: Cell, found: Mapping[str, Any]) -> None:
        self.cells[cell.key] = dict(found)
        if self.path is not None:
            aside = self.path.with_suffix(".tmp")
            aside.write_text(json.dumps(self.cells))
            aside.replace(self.path)

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self.cells

    def value(self, cell: Cell, name: str) -> float:
        return float(np.mean(self.cells[cell.key][name]))

    def values(self, part: str, task: str, method: str, repeats: int, name: str) -> NDArray[np.float64]:
        return np.array([self.value(Cell(part, task, method, number), name) for number in range(repeats)])


@dataclass(frozen=True)
class Summary:
    """An interquartile mean over repeats with its interval."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 1, sign: str = "") -> str:
        form = f"{{:{sign}.{digits}f}}"
        return f"{form.format(self.value)} | [{form.format(self.low)}, {form.format(self.high)}]"


def summary(values: NDArray[np.float64]) -> Summary:
    from autorl.statistics import bootstrap_interval, iqm

    interval = bootstrap_interval(values, "iqm", rng=np.random.default_rng(0))
    return Summary(float(iqm(values)), interval.low, interval.high)


def difference(first: NDArray[np.float64], second: NDArray[np.float64], scale: float = 1.0) -> Summary:
    """IQM of the first minus IQM of the second, paired by repeat, in units of `scale`."""
    from autorl.statistics import difference_interval, iqm

    interval = difference_interval(first, second, "iqm", rng=np.random.default_rng(0), paired=True)
    return Summary(float(iqm(first) - iqm(second)) / scale, float(interval.low) / scale, float(interval.high) / scale)


def complete(raw: Raw, cells: Sequence[Cell], part: str) -> tuple[list[str], dict[str, int]]:
    """Tasks of a part, and how many whole repeats there are of each method on all of them; fewer are not shown."""
    mine = [cell for cell in cells if cell.part == part]
    whole = {}
    for method in dict.fromkeys(cell.method for cell in mine):
        numbers = [cell.repeat for cell in mine if cell.method == method]
        absent = [cell.repeat for cell in mine if cell.method == method and cell not in raw]
        whole[method] = min(absent, default=max(numbers) + 1)
    return list(dict.fromkeys(cell.task for cell in mine)), {name: n for name, n in whole.items() if n >= FEWEST}


def row(*parts: object) -> str:
    return f"| {' | '.join(map(str, parts))} |"


def header(*names: str) -> list[str]:
    return [row(*names), row(*("---" for _ in names))]


def live_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    from autorl.statistics import average_ranks

    tasks, methods = complete(raw, cells, "live")
    if "random" not in methods:
        return []
    common = min(methods.values())
    text = [
        "## Live training",
        "",
        f"{live.TUNING} tuning and {live.TESTS} test seeds a study. The range of a task goes",
    ]
    text += [
        "from the worst tuning score of any full-length configuration of random search to the best test score of any"
    ]
    text += [f"study. Ranks are within a repeat, 1 = best, over the {common} repeats that all optimizers have.", ""]
    verdict, ranked = list[tuple[Summary, str, str]](), []
    for task in tasks:
        table, gaps = live_table(raw, task, methods, common)
        text += table
        verdict += [(gap, method, task) for method, gap in gaps.items() if method in POPULATIONS]
        ranked.append(np.column_stack([raw.values("live", task, method, common, "test") for method in methods]))
    overall, names = average_ranks(np.concatenate(ranked)), list(methods)
    text += ["### All tasks", "", *header("optimizer", "repeats", "mean rank")]
    text += [row(names[at], methods[names[at]], f"{overall[at]:.2f}") for at in np.argsort(overall, kind="stable")]
    return [*text, "", *population_verdict(verdict), ""]


def live_table(raw: Raw, task: str, methods: Mapping[str, int], common: int) -> tuple[list[str], dict[str, Summary]]:
    """The table of a task, and by method its difference to random search in per cent of the range."""
    from autorl.statistics import average_ranks

    tests = {method: raw.values("live", task, method, repeats, "test") for method, repeats in methods.items()}
    low = float(min(raw.values("live", task, "random", methods["random"], "worst")))
    high, one = float(max(map(max, tests.values()))), live.TASKS[task]
    ranks = average_ranks(np.column_stack([values[:common] for values in tests.values()]))
    text = [f"### {task}", "", f"{one.steps:,} steps a run, {one.runs} full runs x {live.TUNING} seeds. {one.note}"]
    text += [f"Range: {low:.1f} to {high:.1f}.", ""]
    text += header(
        "optimizer", "repeats", "test, IQM", "95 %", "tuning", "minus random, % of range", "95 %", "mean rank", "steps"
    )
    gaps = {}
    for method, rank in sorted(zip(tests, ranks, strict=True), key=lambda pair: pair[1]):
        repeats = min(methods[method], methods["random"])
        gaps[method] = difference(tests[method][:repeats], tests["random"][:repeats], (high - low) / 100)
        shown = "- | -" if method == "random" else gaps[method].text(sign="+")
        tuning = summary(raw.values("live", task, method, methods[method], "tuning")).value
        steps = f"{raw.values('live', task, method, methods[method], 'steps').mean() / 1e6:.3f} M"
        score = summary(tests[method]).text()
        text += [row(method, methods[method], score, f"{tuning:.1f}", shown, f"{rank:.2f}", steps)]
    return [*text, ""], gaps


def population_verdict(gaps: Sequence[tuple[Summary, str, str]]) -> list[str]:
    if not gaps:
        return []
    worst = min(gaps, key=lambda gap: gap[0].value)
    holds = worst[0].value >= -MARGIN
    sure = all(gap.low >= -MARGIN for gap, _, _ in gaps)
    lines = [
        f"pbt and pb2 are {'' if holds else '**not** '}within {MARGIN:g} % of the range of random search, or above"
    ]
    lines += [f"it, on all tasks: the lowest is {worst[1]} on {worst[2]} with {worst[0].value:+.1f} %, interval"]
    lines += [f"[{worst[0].low:+.1f}, {worst[0].high:+.1f}]. That all intervals lie above -{MARGIN:g} %: {sure}."]
    return lines


def ray_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    tasks, methods = complete(raw, cells, "ray")
    repeats = min(methods.values(), default=0)
    if repeats < 2 or "Ray PBT" not in methods:
        return []
    text = [
        "## Beside Ray Tune",
        "",
        f"{repeats} repeats, population {live.POPULATION}, {live.GENERATIONS} generations,",
    ]
    text += ["`synch=True`, four hyperparameters; both sides begin with the same configurations.", ""]
    for task in tasks:
        tests = {method: raw.values("ray", task, method, repeats, "test") for method in methods}
        text += [f"### {task}", "", *header("method", "test, IQM", "95 %", "tuning, IQM", "changes", "steps")]
        for method, values in tests.items():
            others = {n: raw.values("ray", task, method, repeats, n) for n in ("tuning", "changes", "steps")}
            tuning, steps = summary(others["tuning"]).value, steps_text(others["steps"])
            text += [row(method, summary(values).text(), f"{tuning:.1f}", f"{others['changes'].mean():.1f}", steps)]
        text += [""]
        for ours, theirs in zip(POPULATIONS, RAY, strict=True):
            if theirs not in methods:
                text += [f"- {theirs}: fewer than {FEWEST} repeats were run."]
                continue
            gap = difference(tests[ours], tests[theirs])
            word = "not below" if gap.high >= 0 else "**below**"
            text += [f"- {ours} minus {theirs}: {gap.value:+.1f}, [{gap.low:+.1f}, {gap.high:+.1f}]: {word} it."]
        text += [""]
    return text


def steps_text(steps: NDArray[np.float64]) -> str:
    return "not counted" if np.isnan(steps).any() else f"{steps.mean() / 1e6:.3f} M"


def moving_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    tasks, methods = complete(raw, cells, "moving")
    repeats = min(methods.values(), default=0)
    if repeats < 2:
        return []
    text = [
        "## An optimum that moves",
        "",
        f"{repeats} repeats, {live.MEMBERS} members. The best fixed configuration is",
    ]
    text += ["that of a dense grid, computed without noise; no search for one can do better.", ""]
    text += header("task", "optimizer", "score / best fixed, IQM", "95 %", "lowest", "above it")
    for task in tasks:
        for method in methods:
            found, fixed = (raw.values("moving", task, method, repeats, name) for name in ("found", "fixed"))
            share = found / fixed
            better = f"{(share > 1).sum()} of {repeats}"
            text += [row(task, method, summary(share).text(3), f"{share.min():.3f}", better)]
    return [*text, ""]


def tables_report(raw: Raw, cells: Sequence[Cell], folders: Mapping[str, str]) -> list[str]:
    from autorl.statistics import average_ranks

    tasks, methods = complete(raw, cells, "tables")
    repeats = min(methods.values(), default=0)
    if repeats < 2:
        return []
    scores = {m: np.array([raw.values("tables", t, m, repeats, "judged") for t in tasks]) for m in methods}
    ranks = average_ranks(np.column_stack([scores[method].ravel() for method in methods]))
    text = [
        "## Landscapes",
        "",
        f"{len(tasks)} landscapes, {repeats} repeats, {tables.RUNS} full runs. 0 and 1 are the",
    ]
    text += [
        "worst and best recorded configuration. pbt and pb2 cannot be run: a table does not know what an agent that"
    ]
    text += ["was trained with one configuration does with another.", ""]
    text += header("optimizer", "score, IQM", "95 %", "minus random", "95 %", "mean rank")
    for place in np.argsort(ranks, kind="stable"):
        method = list(methods)[place]
        gap = difference(scores[method].T, scores["random"].T)
        shown = "- | -" if method == "random" else gap.text(3, "+")
        text += [row(method, summary(scores[method].T).text(3), shown, f"{ranks[place]:.2f}")]
    absent = tables.missing()
    if absent:
        text += ["", "Not installed, left out: " + ", ".join(absent) + "."]
    text += ["", *header("landscape", "answered by", *methods)]
    for number, task in enumerate(tasks):
        means = [f"{scores[method][number].mean():.3f}" for method in methods]
        text += [row(task, tables.Table(folders[task]).kind, *means)]
    return [*text, ""]


def report(raw: Raw, cells: Sequence[Cell], parts: Sequence[str], folders: Mapping[str, str], ray: bool) -> str:
    """The whole of results/optimizers.md."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "optuna", "scikit-learn"))
    text = ["# Optimizers: measured", "", "What was run and how it is judged: the head of `benchmarks/optimizers.py`,"]
    text += [f"which writes this. Python {platform.python_version()}, {packages}, {os.cpu_count()} cores.", ""]
    written: dict[str, Callable[[], list[str]]] = {
        "live": lambda: live_report(raw, cells),
        "ray": lambda: ray_report(raw, cells),
        "moving": lambda: moving_report(raw, cells),
        "tables": lambda: tables_report(raw, cells, folders),
    }
    for part in parts:
        text += written[part]()
    absent = [cell for cell in cells if cell not in raw]
    if absent:
        text += [
            "## Missing",
            "",
            f"{len(absent)} cells were not run; methods with fewer than {FEWEST} whole repeats are",
        ]
        text += ["not in the tables above. `--raw` takes up what is there.", ""]
    for part in PARTS:
        methods = [cell.method for cell in absent if cell.part == part]
        if methods:
            counts = ", ".join(f"{name} {methods.count(name)}" for name in dict.fromkeys(methods))
            text += [f"- {part}: {counts}"]
    if "ray" in parts and not ray:
        text += ["Ray Tune was left out: `--ray-python` names an interpreter that has it."]
    return "\n".join(text).rstrip() + "\n"
