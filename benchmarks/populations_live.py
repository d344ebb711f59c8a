"""Populations against random search, live: does evolving at several frequencies pay?

    python benchmarks/populations_live.py --raw populations.jsonl     # all; writes results/populations_live.md
    python benchmarks/populations_live.py --raw populations.jsonl --partial

*Tasks*: PPO on new variants of three environments, those of `search_live.py`; every repeat is another variant with
other seeds. *Rows*: a whole study each, with as many counted environment steps, one tuning seed, and an incumbent that
is trained anew on ten test seeds; that of a population is its schedule. `mf_pbt` has 40 generations instead of 100,
because rollouts are longer than a hundredth of these runs; with 12 members its parts evolve every 1, 10 and 25 of them.

*Scores*: 0 and 1 are the worst run to the end that any row trained on a variant, and the best mean over test seeds that
any row reached on it. Intervals are 95 % t intervals of differences paired by variant: they speak of new variants and
new seeds of these environments.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optimizers_live as live
import search_live as search
from cells import Cell, Raw, code_version, timed
from comparisons import header, paragraph, row
from numpy.typing import NDArray

HERE = Path(__file__).parent
MEASURING = ("asking", "optimizers_live", "populations_live", "search_live")
RUNS = 16
REFERENCE = "random"
ROWS: Mapping[str, Mapping[str, Any]] = {REFERENCE: {}, "pbt": {}, "mf_pbt": {"generations": 40}}
TASKS = {
    task.environment: task
    for task in (
        search.Task("ppo", "CartPole-v1", "population/ppo-small", 30_720),
        search.Task("ppo", "Acrobot-v1", "population/ppo-small", 40_960),
        search.Task("ppo", "Pendulum-v1", "population/ppo-continuous-small", 61_440),
    )
}


def study(cell: Cell) -> dict[str, Any]:
    """The study file of a row on the variant of a repeat."""
    document = search.without_search(TASKS[cell.task], cell.repeat, RUNS)
    first = search.FIRST_TEST_SEED + search.TESTS * cell.repeat
    return document | {
        "name": "populations-live",
        "fidelity": {"steps": TASKS[cell.task].steps, "evaluations": 1, "episodes": 10},
        "optimizer": {"name": cell.method, **ROWS[cell.method]},
        "seeds": {"tuning": [cell.repeat], "test": list(range(first, first + search.TESTS))},
    }


def report(raw: Raw, repeats: int) -> str:
    """The page, of the repeats that all rows have finished on all tasks."""
    done = [
        repeat
        for repeat in range(repeats)
        if all(Cell("live", task, name, repeat) in raw for task in TASKS for name in ROWS)
    ]
    lines = ["# Populations on new tasks, live", ""]
    lines += paragraph(
        "What was run and how it is judged: the head of `benchmarks/populations_live.py`, which writes this.",
        f"{RUNS} runs a study, {search.TESTS} test seeds, {len(done)} variants of each environment. `minus random`: of",
        "returns on test seeds, in the last table of scores. `schedules`: incumbents whose hyperparameters change.",
        "`steps`: really trained while searching; a segment ends where a rollout does, so short ones train more.",
    )
    gaps: dict[str, list[NDArray[np.float64]]] = {name: [] for name in ROWS}
    for task in TASKS:
        cells = {
            name: [raw.cells[Cell("live", task, name, repeat).key] for repeat in done]
            for name in ROWS
        }
        tests = {name: means(of_row, "test") for name, of_row in cells.items()}
        for name, gap in scaled(cells, tests).items():
            gaps[name].append(gap)
        lines += ["", f"## PPO {task}, {TASKS[task].steps:,} steps a run", ""]
        lines += header("", "test", "minus random", "95 %", "", "tuning", "schedules", "steps")
        for name, of_row in cells.items():
            figures = [
                f"{means(of_row, 'tuning').mean():.4g}",
                f"{sum(cell['changes'] > 0 for cell in of_row)} of {len(done)}",
                f"{means(of_row, 'steps').mean():,.0f}",
            ]
            difference = compared([tests[name] - tests[REFERENCE]], name, 2)
            lines.append(row(name, f"{tests[name].mean():.4g}", *difference, *figures))
    lines += ["", "## All three", "", *header("", "score minus random", "95 %", "")]
    lines += [row(name, *compared(gaps[name], name, 3)) for name in ROWS if name != REFERENCE]
    apart = [mine - plain for mine, plain in zip(gaps["mf_pbt"], gaps["pbt"], strict=True)]
    lines.append(row("mf_pbt minus pbt", *compared(apart, "", 3)))
    return "\n".join([*lines, "", f"Code: {raw.code}.", ""])


def scaled(
    cells: Mapping[str, Sequence[Mapping[str, Any]]], tests: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Differences to the reference in scores, as the head of this file says, by variant."""
    worst = [means(of_row, "worst") for of_row in cells.values()]
    low = np.min([*worst, *tests.values()], axis=0)
    width = np.max([*tests.values()], axis=0) - low
    # Where all are as bad as the worst run, none is better than another.
    width = np.where(width > 0, width, np.inf)
    return {name: (test - tests[REFERENCE]) / width for name, test in tests.items()}


def compared(gaps: Sequence[NDArray[np.float64]], name: str, digits: int) -> tuple[str, str]:
    """The cells of a difference, its interval and its verdict; none of the reference to itself."""
    if name == REFERENCE:
        return "- | -", ""
    found = search.over_variants(gaps)
    return found.text(digits, "+"), found.verdict


def means(cells: Sequence[Mapping[str, Any]], figure: str) -> NDArray[np.float64]:
    return np.array([np.mean(cell[figure]) for cell in cells])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="variants of each environment")
    parser.add_argument("--raw", type=Path, help="JSON lines of finished cells: read, appended to")
    parser.add_argument("--partial", action="store_true", help="only report on what --raw has")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "populations_live.md")
    given = parser.parse_args()
    os.environ |= dict.fromkeys(search.ONE_THREAD, "1")
    raw = Raw(given.raw, code_version(*MEASURING))
    cells = [
        Cell("live", task, name, repeat)
        for repeat in range(given.repeats)
        for task in TASKS
        for name in ROWS
    ]
    for cell in cells if not given.partial else ():
        if cell not in raw:
            raw.keep(cell, timed(partial(live.run_cell, study(cell))))
            print(cell.key, flush=True)
    text = report(raw, given.repeats)
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
