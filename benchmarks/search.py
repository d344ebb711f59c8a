"""Searches on ARLBench's tables: what a prior, a search and a seed rule are worth at 24, 32 and 96 runs.

    python benchmarks/search.py --data ../shared/data/arlbench --raw raw.jsonl   # all; writes results/search.md
    python benchmarks/search.py --data DIR --rows "random, fixed 3" "tpe, adaptive" --tasks cc_cartpole_ppo --repeats 2
    python benchmarks/search.py --data DIR --rows "gp, fixed 3" --runs 32 --raw raw.jsonl   # dear rows at one budget
    python benchmarks/search.py --data DIR --raw raw.jsonl --estimate            # CPU time of what is missing

*Tasks*: ARLBench's public tables of DQN and PPO, 256 configurations with ten seeds each (Becktepe et al. 2024). In each
repeat five seeds tune and the other five judge: see `search_tasks.py`. *table*: the nearest recorded configuration that
answers for no other one of the study answers, with what was recorded. *surrogate*: a forest of each table answers, with
the recorded seed noise. *drawn*: the tuning seeds are drawn with replacement from the ten, whose mean is then the truth:
how sure studies are of their choice, beside how often they are right.

*Rows*: a study file each, run as a study by the real optimizers and seed rules, one proposal at a time; only the
training is left out: see `search_rows.py`. The plain baseline is no study: a greedy portfolio in numpy whose tasks
weigh by family, and successive rejects. Priors are named by what they lack: the task, all of its family, or the truth (ranks
reversed). With `own places` the tables of the prior stand at the task's own configurations, as the portfolio has them.

*Budget multiplier*: how many runs random search with three fixed seeds needs for the same held-out score, in the mean
over tasks, divided by the runs of the row. It is given for random search as a study does it, which begins with the
default configuration, and for plain draws of recorded configurations.

The tables of SAC are the examination. They are opened with `--exam` alone, which nobody uses to choose anything.

Finished cells are kept in `--raw` by the version of the code that measured them; `--partial` reports on those.
"""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cells import Cell, Raw, code_version, timed
from search_report import CALIBRATED, report
from search_rows import (
    CURVE,
    PLAIN,
    REFERENCE,
    RUNS,
    Row,
    at_runs,
    baseline_names,
    curve_of,
    rows,
    run_baseline,
    run_plain,
    run_row,
)
from search_tasks import (
    ALGORITHMS,
    EXAMINATION,
    Answers,
    Folders,
    HeldOut,
    Task,
    algorithm,
    import_tasks,
    loaded_task,
    prior_tasks,
    task_names,
)

HERE = Path(__file__).parent
PARTS: tuple[Answers, ...] = ("table", "surrogate", "drawn")
BASELINE_LACKS: tuple[HeldOut, ...] = ("task", "family")
MEASURING = ("search_tasks", "search_rows")  # modules that decide a figure
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def wanted(given: argparse.Namespace) -> list[Cell]:
    """Every cell asked for, repeat by repeat, so that an interrupted run has whole repeats."""
    return [
        Cell(part, task, measurement, repeat)
        for part in given.parts
        for repeat in range(given.repeats)
        for task in given.tasks
        for measurement in measurements(given, part)
    ]


def measurements(given: argparse.Namespace, part: Answers) -> list[str]:
    """Names of what is measured on a task: the curves of the references, and methods by runs."""
    names = methods(given, part)
    curves = [curve_of(name) for name in (REFERENCE, PLAIN) if name in names]
    return curves + [at_runs(name, runs) for name in names for runs in given.runs]


def methods(given: argparse.Namespace, part: Answers) -> list[str]:
    """Names of what is measured: the rows, and in the part of tables the lines of the baseline."""
    names = list(given.rows)
    if part == "drawn":
        return [name for name in names if name.endswith(CALIBRATED)]
    if part == "table" and given.baseline:
        names.append(PLAIN)
        for held_out in BASELINE_LACKS:
            names += baseline_names(held_out)
    return list(dict.fromkeys(names))


def measure(cell: Cell, folders: Folders) -> dict[str, Any]:
    """One cell: what a method chose in a repeat, or the curve of a reference row."""
    part = next(part for part in PARTS if part == cell.part)
    task = loaded_task(cell.task, folders.whole[cell.task], part)
    method, _, measured = cell.method.rpartition("; ")
    if cell.method == curve_of(PLAIN):
        return {"curve": [run_plain(task, runs, cell.repeat)["judged"] for runs in CURVE]}
    if cell.method == curve_of(REFERENCE):
        whole = run_row(rows()[REFERENCE], task, folders, CURVE[-1], cell.repeat)
        return {"curve": whole["curve"], "correlation": task.correlation}
    runs = int(measured.removesuffix(" runs"))
    if method == PLAIN:
        return dict(run_plain(task, runs, cell.repeat))
    row = rows().get(method)
    if row is None:
        return dict(baseline(method, task, folders, runs, cell.repeat))
    return run_row(row, task, folders, runs, cell.repeat)


def baseline(method: str, task: Task, folders: Folders, runs: int, repeat: int) -> dict[str, float]:
    """What a line of the plain baseline chose in a repeat."""
    held_out: HeldOut = "task" if method in baseline_names("task") else "family"
    line = baseline_names(held_out)[method]
    names = prior_tasks(task.name, list(folders.whole), held_out)
    others = [loaded_task(name, folders.whole[name], "table") for name in names]
    return run_baseline(line, task, others, runs, repeat)


def run(cells: Sequence[Cell], raw: Raw, folders: Folders, given: argparse.Namespace) -> None:
    """Measure what is not in `raw` yet, a cell per process at a time."""
    todo = [cell for cell in cells if cell not in raw]
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        pending = {pool.submit(timed, partial(measure, cell, folders)): cell for cell in todo}
        for number, done in enumerate(as_completed(pending), 1):
            # A cell that failed is measured again by the next call, and the others are kept.
            error = done.exception()
            if error is None:
                raw.keep(pending[done], done.result())
            outcome = "" if error is None else f" failed: {type(error).__name__}: {error}"
            moment = time.strftime("%H:%M:%S")
            print(f"{moment} {number}/{len(todo)} {pending[done].key}{outcome}", flush=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = rows()
    parser.add_argument("--data", type=Path, required=True, help="folder with landscapes/")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="ROW",
        help=f"with the reference; default: all. There are: {'; '.join(known)}",
    )
    parser.add_argument("--runs", nargs="+", type=int, choices=RUNS, default=list(RUNS))
    parser.add_argument("--no-baseline", dest="baseline", action="store_false")
    parser.add_argument("--tasks", nargs="+", help="default: every file of these algorithms")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--exam", action="store_true", help="the tables of SAC, and no others")
    parser.add_argument(
        "--raw", type=Path, help="JSON lines of finished cells: read, and appended to"
    )
    parser.add_argument("--partial", action="store_true", help="only report on what --raw has")
    parser.add_argument("--estimate", action="store_true", help="only print the CPU time missing")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "search.md")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.rows or () if name not in known]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; there are: {'; '.join(known)}")
    given.rows = list(dict.fromkeys([REFERENCE, *(given.rows or known)]))
    given.pool = task_names(given.data, EXAMINATION if given.exam else ALGORITHMS)
    if not given.pool:
        parser.error(f"no tables of these algorithms in {given.data / 'landscapes'}")
    given.tasks = given.tasks or given.pool
    foreign = [name for name in given.tasks if name not in given.pool]
    if foreign:
        parser.error(f"no task {foreign[0]!r}; there are: {' '.join(given.pool)}")
    return given


def command_of(given: argparse.Namespace) -> str:
    """The arguments that decide what is on the page, folders of this machine left out."""
    said = ["--data", "DIR", "--repeats", str(given.repeats)]
    if given.exam:
        said.append("--exam")
    choices = {"parts": PARTS, "rows": rows(), "tasks": given.pool, "runs": RUNS}
    for name, whole in choices.items():
        chosen = getattr(given, name)
        if set(chosen) != set(whole):
            said += [f"--{name}", *map(str, chosen)]
    return shlex.join(said if given.baseline else [*said, "--no-baseline"])


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    os.environ |= dict.fromkeys(ONE_THREAD, "1")  # of the processes that measure
    cells = wanted(given)
    raw = Raw(given.raw, code_version(*MEASURING))
    print(f"code {raw.code}: {raw.estimate(cells)}", flush=True)
    if given.estimate:
        return
    if not given.partial:
        chosen: list[Row] = [rows()[name] for name in given.rows]
        needed = {row.held_out for row in chosen}
        with tempfile.TemporaryDirectory(prefix="search-") as folder:
            # Those of the priors too: more than what is searched.
            searched = {algorithm(name) for name in given.tasks}
            pool = [name for name in given.pool if algorithm(name) in searched]
            folders = import_tasks(
                given.data,
                pool,
                Path(folder),
                misleading="reversed" in needed,
                moved="moved" in needed,
            )
            run(cells, raw, folders, given)
    missing = [cell for cell in cells if cell not in raw]
    text = report(raw, [cell for cell in cells if cell in raw], len(missing), command_of(given))
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
