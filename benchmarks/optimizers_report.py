"""What `optimizers.py` measured, as Markdown: tables with intervals and the sentences that follow from them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

import numpy as np
import optimizers_live as live
import optimizers_tables as tables
from cells import Cell, Raw
from comparisons import (
    Share,
    Summary,
    corrected,
    difference,
    header,
    label,
    model_text,
    paragraph,
    ranked,
    row,
    share,
    summary,
)
from numpy.typing import NDArray

PARTS = ("live", "ray", "moving", "tables")
POPULATIONS, RAY = ("pbt", "pb2"), ("Ray PBT", "Ray PB2")
FEWEST = 3  # whole repeats of a method that is shown
MARGIN = 5.0  # per cent of the range that pbt and pb2 may be below random search
DEFAULT = "default configuration, not tuned"


def complete(raw: Raw, cells: Sequence[Cell], part: str) -> tuple[list[str], dict[str, int]]:
    """Tasks of a part, and how many whole repeats there are of each method on all of them; fewer are not shown."""
    mine = [cell for cell in cells if cell.part == part]
    whole = {}
    for method in dict.fromkeys(cell.method for cell in mine):
        numbers = [cell.repeat for cell in mine if cell.method == method]
        absent = [cell.repeat for cell in mine if cell.method == method and cell not in raw]
        whole[method] = min(absent, default=max(numbers) + 1)
    return list(dict.fromkeys(cell.task for cell in mine)), {
        name: n for name, n in whole.items() if n >= FEWEST
    }


def shares(
    raw: Raw, part: str, tasks: Sequence[str], methods: Mapping[str, int]
) -> dict[str, Share]:
    """How many new configurations of each method came from its model, over tasks and repeats."""
    return {
        method: share(
            [
                raw.cells[Cell(part, task, method, number).key]
                for task in tasks
                for number in range(repeats)
            ]
        )
        for method, repeats in methods.items()
    }


def mean_ranks(
    scores: Mapping[str, NDArray[np.float64]], found: Mapping[str, Share]
) -> dict[str, float]:
    """Mean rank over cases, 1 = best, of the methods that are ranked; scores by method, in the same order of cases."""
    from autorl.statistics import average_ranks

    names = [method for method in scores if ranked(method, found[method])]
    if len(names) < 2:
        return dict.fromkeys(names, 1.0)
    table = np.column_stack([scores[method].ravel() for method in names])
    return dict(zip(names, average_ranks(table).tolist(), strict=True))


def in_order(methods: Sequence[str], ranks: Mapping[str, float]) -> list[str]:
    """Ranked methods by rank, then those that are not ranked."""
    return sorted(methods, key=lambda method: ranks.get(method, np.inf))


RANKING = (
    "`by the model`: of the configurations a search tried, how many were made from scores; means per search, and a "
    "promotion is no new configuration. A method that is meant to have a model and never left its start-up is named by "
    "what it was, and not ranked (-)."
)


def live_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    tasks, methods = complete(raw, cells, "live")
    if "random" not in methods:
        return []
    common = min(methods.values())
    text = ["## Live training", ""]
    text += paragraph(
        f"{live.TUNING} tuning and {live.TESTS} test seeds a study. The range of a task goes from the worst "
        "tuning score "
        "of any full-length configuration of random search to the best test score of any study. Ranks are within a "
        f"repeat, 1 = best, over the {common} repeats that all optimizers have. Intervals: 95 % over repeats "
        "(other study, "
        "tuning and test seeds of the same task), each for itself, differences paired by repeat; they say nothing of "
        f"other tasks. `p`: Wilcoxon's signed-rank test against random search over {common} repeats, "
        "Holm-corrected over "
        f"the {len(methods) - 1} comparisons of a table.",
        RANKING,
    )
    text += [""]
    verdict, cases, of_tasks = (
        list[tuple[Summary, str, str]](),
        dict[str, list[NDArray[np.float64]]](),
        [],
    )
    for task in tasks:
        table, gaps, found = live_table(raw, task, methods, common)
        text += table
        of_tasks.append(found)
        verdict += [
            (gap, label(method, found[method]), task)
            for method, gap in gaps.items()
            if method in POPULATIONS
        ]
        for method in methods:
            cases.setdefault(method, []).append(raw.values("live", task, method, common, "test"))
    everywhere = [
        method for method in methods if all(ranked(method, found[method]) for found in of_tasks)
    ]
    overall = shares(raw, "live", tasks, methods)
    ranks = mean_ranks({method: np.concatenate(cases[method]) for method in everywhere}, overall)
    text += ["### All tasks", "", *header("optimizer", "repeats", "by the model", "mean rank")]
    for method in in_order(list(methods), ranks):
        shown = f"{ranks[method]:.2f}" if method in ranks else "-"
        text += [
            row(
                label(method, overall[method]),
                methods[method],
                model_text(method, overall[method]),
                shown,
            )
        ]
    text += ["", "Ranked are the methods that are ranked on every task."]
    return [*text, "", *population_verdict(verdict), ""]


def live_table(
    raw: Raw, task: str, methods: Mapping[str, int], common: int
) -> tuple[list[str], dict[str, Summary], dict[str, Share]]:
    """The table of a task; by method its difference to random search in per cent of the range, and its share."""
    tests = {
        method: raw.values("live", task, method, repeats, "test")
        for method, repeats in methods.items()
    }
    found = shares(raw, "live", [task], methods)
    low = float(min(raw.values("live", task, "random", methods["random"], "worst")))
    high, one = float(max(map(max, tests.values()))), live.TASKS[task]
    alike = {method: values[:common] for method, values in tests.items()}
    ranks, p_values = mean_ranks(alike, found), corrected(alike, "random")
    text = [
        f"### {task}",
        "",
        f"{one.steps:,} steps a run, {one.runs} full runs x {live.TUNING} seeds. {one.note}".rstrip(),
    ]
    text += [f"Range: {low:.1f} to {high:.1f}.", ""]
    text += header(
        "optimizer", "repeats", "by the model", "test, IQM", "95 %", "tuning", "minus random, % of range", "95 %",
        "p, Holm", "mean rank", "steps",
    )  # fmt: skip
    gaps = {}
    for method in in_order(list(tests), ranks):
        repeats = min(methods[method], methods["random"])
        gaps[method] = difference(
            tests[method][:repeats], tests["random"][:repeats], (high - low) / 100
        )
        shown = (
            "- | - | -"
            if method == "random"
            else f"{gaps[method].text(sign='+')} | {p_values[method]:.3f}"
        )
        tuning = summary(raw.values("live", task, method, methods[method], "tuning")).value
        steps = f"{raw.values('live', task, method, methods[method], 'steps').mean() / 1e6:.3f} M"
        rank = f"{ranks[method]:.2f}" if method in ranks else "-"
        name, model = label(method, found[method]), model_text(method, found[method])
        text += [
            row(
                name,
                methods[method],
                model,
                summary(tests[method]).text(),
                f"{tuning:.1f}",
                shown,
                rank,
                steps,
            )
        ]
    text += [default_row(raw, task, tests["random"], high - low)]
    return [*text, ""], gaps, found


def default_row(raw: Raw, task: str, random: NDArray[np.float64], spread: float) -> str:
    """The default configuration on the test seeds of random search's studies."""
    scores = raw.values("live", task, "random", len(random), "default")
    gap = difference(scores, random, spread / 100).text(sign="+")
    return row(DEFAULT, len(random), "-", summary(scores).text(), "-", gap, "-", "-", "-")


def population_verdict(gaps: Sequence[tuple[Summary, str, str]]) -> list[str]:
    if not gaps:
        return []
    lowest = min(gaps, key=lambda gap: gap[0].value)
    holds = lowest[0].value >= -MARGIN
    sure = all(gap.low >= -MARGIN for gap, _, _ in gaps)
    lines = [
        f"pbt and pb2 are {'' if holds else '**not** '}within {MARGIN:g} % of the range of random search, or above"
    ]
    lines += [
        f"it, on all tasks: the lowest is {lowest[1]} on {lowest[2]} with {lowest[0].value:+.1f} %, interval"
    ]
    lines += [
        f"[{lowest[0].low:+.1f}, {lowest[0].high:+.1f}]. That all intervals lie above -{MARGIN:g} %: {sure}."
    ]
    return lines


def ray_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    tasks, methods = complete(raw, cells, "ray")
    repeats = min(methods.values(), default=0)
    if repeats < 2 or "Ray PBT" not in methods:
        return []
    text = ["## Beside Ray Tune", ""]
    text += paragraph(
        f"{repeats} repeats, population {live.POPULATION}, {live.GENERATIONS} generations, `synch=True`, four "
        "hyperparameters; both sides begin with the same configurations. Intervals: 95 % over repeats, "
        "differences paired "
        "by repeat, not corrected for their number."
    )
    text += [""]
    for task in tasks:
        tests = {method: raw.values("ray", task, method, repeats, "test") for method in methods}
        text += [
            f"### {task}",
            "",
            *header("method", "test, IQM", "95 %", "tuning, IQM", "changes", "steps"),
        ]
        for method, values in tests.items():
            others = {
                n: raw.values("ray", task, method, repeats, n)
                for n in ("tuning", "changes", "steps")
            }
            tuning, steps = summary(others["tuning"]).value, steps_text(others["steps"])
            text += [
                row(
                    method,
                    summary(values).text(),
                    f"{tuning:.1f}",
                    f"{others['changes'].mean():.1f}",
                    steps,
                )
            ]
        text += [""]
        for ours, theirs in zip(POPULATIONS, RAY, strict=True):
            if theirs not in methods:
                text += [f"- {theirs}: fewer than {FEWEST} repeats were run."]
                continue
            gap = difference(tests[ours], tests[theirs])
            text += [
                f"- {ours} minus {theirs}: {gap.value:+.1f}, [{gap.low:+.1f}, {gap.high:+.1f}]: {gap.verdict}."
            ]
        text += [""]
    return text


def steps_text(steps: NDArray[np.float64]) -> str:
    return "not counted" if np.isnan(steps).any() else f"{steps.mean() / 1e6:.3f} M"


def moving_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    tasks, methods = complete(raw, cells, "moving")
    repeats = min(methods.values(), default=0)
    if repeats < 2:
        return []
    text = ["## An optimum that moves", ""]
    text += paragraph(
        f"{repeats} repeats, {live.MEMBERS} members. The best fixed configuration is that of a dense grid, computed "
        "without noise; no search for one can do better. Intervals: 95 % over repeats."
    )
    heads = (
        "task",
        "optimizer",
        "by the model",
        "score / best fixed, IQM",
        "95 %",
        "lowest",
        "above it",
    )
    text += ["", *header(*heads)]
    for task in tasks:
        found = shares(raw, "moving", [task], methods)
        for method in methods:
            scores, fixed = (
                raw.values("moving", task, method, repeats, name) for name in ("found", "fixed")
            )
            ratio = scores / fixed
            better = f"{(ratio > 1).sum()} of {repeats}"
            name, model = label(method, found[method]), model_text(method, found[method])
            text += [row(task, name, model, summary(ratio).text(3), f"{ratio.min():.3f}", better)]
    return [*text, ""]


JUDGES = {
    "nearest": "the nearest recorded configuration",
    "forest": "a random forest fitted to the recorded runs",
}
CAUTIONS = {
    "nearest": "This judge favours search that spreads out: what is proposed near a good configuration is answered "
    "by the "
    "same recorded run and teaches nothing new, so a model that closes in on the good ones is punished. Ranks of this "
    "table are not those of training.",
    "forest": "The forest is fitted to tuning and test seeds of a landscape together, and it is smooth where "
    "training is "
    "not.",
}


def tables_report(raw: Raw, cells: Sequence[Cell]) -> list[str]:
    tasks, methods = complete(raw, cells, "tables")
    repeats = min(methods.values(), default=0)
    if repeats < 2:
        return []
    settings = "; ".join(tables.SETTINGS[name] for name in methods if name in tables.SETTINGS)
    text = ["## Landscapes", ""]
    text += paragraph(
        f"{repeats} repeats, {tables.RUNS} full runs. 0 and 1 are the worst and best recorded configuration. "
        "pbt and pb2 "
        "cannot be run: a table does not know what an agent that was trained with one configuration does with another. "
        f"Promotions continue and pay what they add, DEHB's too. The originals have their own defaults: {settings}. "
        "Intervals: 95 % over other searches of the same landscapes; they say nothing of other landscapes. `p`: "
        "Wilcoxon's signed-rank test against random search over landscapes and repeats, Holm-corrected over the "
        f"{len(methods) - 1} comparisons of a table.",
        RANKING,
    )
    text += [""]
    for judge, title in JUDGES.items():
        mine = [
            task
            for task in tasks
            if raw.cells[Cell("tables", task, "random", 0).key]["judge"] == judge
        ]
        if mine:
            text += [f"### Judged by {title}", "", *paragraph(CAUTIONS[judge]), ""]
            text += table_of_judge(raw, mine, methods, repeats)
    if absent := tables.missing():
        text += ["Not installed, left out: " + ", ".join(absent) + ".", ""]
    return text


def table_of_judge(
    raw: Raw, tasks: Sequence[str], methods: Mapping[str, int], repeats: int
) -> list[str]:
    """The methods on the landscapes of one judge, together and one by one."""
    scores = {
        m: np.array([raw.values("tables", t, m, repeats, "judged") for t in tasks]) for m in methods
    }
    found = shares(raw, "tables", tasks, dict.fromkeys(methods, repeats))
    ranks, p_values = mean_ranks(scores, found), corrected(scores, "random")
    text = header(
        "optimizer",
        "by the model",
        "score, IQM",
        "95 %",
        "minus random",
        "95 %",
        "p, Holm",
        "mean rank",
    )
    for method in in_order(list(methods), ranks):
        gap = difference(scores[method].T, scores["random"].T)
        shown = (
            "- | - | -" if method == "random" else f"{gap.text(3, '+')} | {p_values[method]:.3f}"
        )
        rank = f"{ranks[method]:.2f}" if method in ranks else "-"
        name, model = label(method, found[method]), model_text(method, found[method])
        text += [row(name, model, summary(scores[method].T).text(3), shown, rank)]
    text += ["", *header("landscape", "judge's rank correlation, out of bag", *methods)]
    for number, task in enumerate(tasks):
        means = [f"{scores[method][number].mean():.3f}" for method in methods]
        quality = raw.cells[Cell("tables", task, "random", 0).key]["correlation"]
        text += [row(task, "-" if quality is None else f"{quality:.2f}", *means)]
    return [*text, ""]


def report(raw: Raw, cells: Sequence[Cell], parts: Sequence[str], ray: bool) -> str:
    """The whole of results/optimizers.md."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "numba", "optuna", "scikit-learn")
    )
    text = [
        "# Optimizers: measured",
        "",
        "What was run and how it is judged: the head of `benchmarks/optimizers.py`,",
    ]
    text += [
        f"which writes this. Python {platform.python_version()}, {packages}, {os.cpu_count()} cores."
    ]
    text += [f"Code that was measured: {raw.code}.", ""]
    written: dict[str, Callable[[], list[str]]] = {
        "live": lambda: live_report(raw, cells),
        "ray": lambda: ray_report(raw, cells),
        "moving": lambda: moving_report(raw, cells),
        "tables": lambda: tables_report(raw, cells),
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
