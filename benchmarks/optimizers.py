"""Every optimizer against random search and beside the originals: landscapes, live training, a moving optimum.

    python benchmarks/optimizers.py --raw raw.jsonl --ray-python /path/to/python     # all; writes results/optimizers.md
    python benchmarks/optimizers.py --parts live --optimizers random pbt pb2 --repeats 3
    python benchmarks/optimizers.py --raw raw.jsonl --estimate                       # CPU time of what is missing

*live*: studies on the population engine, all with the same counted environment steps, chosen by tuning seeds and judged
on test seeds: see `optimizers_live.py`. *ray*: pbt and pb2 beside Ray Tune's with the same population, steps, space,
first generation, tuning seeds and judge: see `ray_pbt.py`; left out without `--ray-python`. *moving*: a task whose
optimum moves, against the best of a dense grid of fixed configurations. *tables*: searches on shipped landscapes,
beside Optuna's TPE, SMAC3 and DEHB where they are installed: see `optimizers_tables.py`; a table for each judge.

The unit is a study (a repeat of one optimizer on one task); its value is the mean test score of its incumbent. Values
are summarised over repeats by the interquartile mean; intervals are 95 % bootstrap intervals over repeats, those of
differences paired by repeat, because all optimizers of a repeat share tuning and test seeds. Every row says how many
of the configurations came from its method's model: see `comparisons.py`. Finished cells are kept in `--raw` by the
version of the code that measured them and taken up again by that version alone; `--partial` reports on those that are
there and names how many are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import optimizers_live as live
import optimizers_tables as tables
from cells import Cell, Raw, code_version, timed
from optimizers_report import PARTS, POPULATIONS, RAY, report

HERE = Path(__file__).parent
LIVE = (
    "random",
    "tpe",
    "smac",
    "de",
    "cost_aware",
    "hyperband",
    "asha",
    "dehb",
    "bohb",
    "pbt",
    "pb2",
)
LIVE_TASKS = ("PPO CartPole-v1", "DQN CartPole-v1", "SAC Pendulum-v1")
RAY_REPEATS = 5
MEASURING = (
    "asking",
    "optimizers_live",
    "optimizers_tables",
    "ray_pbt",
)  # modules that decide a figure
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def wanted(given: argparse.Namespace) -> list[Cell]:
    """Every cell of the parts asked for, repeat by repeat, so that an interrupted run has whole repeats."""
    plan: list[tuple[str, Iterable[str], Iterable[str], int]] = []
    if "live" in given.parts:
        plan.append(("live", given.tasks, given.optimizers, given.repeats))
    if "moving" in given.parts:
        plan.append(("moving", live.MOVING, POPULATIONS, given.repeats))
    if "ray" in given.parts:
        methods = (*POPULATIONS, *RAY) if given.ray_python else POPULATIONS
        plan.append(("ray", live.SHARED, methods, RAY_REPEATS))
    if "tables" in given.parts:
        plan.append(
            ("tables", given.landscapes, given.engines, min(given.repeats, given.table_repeats))
        )
    cells = [
        Cell(part, task, method, repeat)
        for part, tasks, methods, repeats in plan
        for repeat in range(repeats)
        for task in tasks
        for method in methods
    ]
    return sorted(cells, key=lambda cell: (PARTS.index(cell.part), cell.repeat))


def measure(cell: Cell, folder: str = "") -> dict[str, Any]:
    """One cell, in this process. Those of Ray are not measured here: `run_ray`."""
    if cell.part == "live":
        return live.run_cell(live.study(live.TASKS[cell.task], {"name": cell.method}, cell.repeat))
    if cell.part == "ray":
        return live.run_cell(live.shared_study(live.SHARED[cell.task], cell.method, cell.repeat))
    if cell.part == "moving":
        return live.run_moving(cell.task, cell.method, cell.repeat)
    return tables.run_table(folder, cell.method, cell.repeat)


def run(cells: Sequence[Cell], raw: Raw, folders: Mapping[str, str], workers: int) -> None:
    """Measure what is not in `raw` yet, a cell per process at a time."""
    todo = [cell for cell in cells if cell not in raw and cell.method not in RAY]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        pending = {
            pool.submit(timed, partial(measure, cell, folders.get(cell.task, ""))): cell
            for cell in todo
        }
        for number, done in enumerate(as_completed(pending), 1):
            error = (
                done.exception()
            )  # of one cell: it is run again by the next call, and the others are kept
            if error is None:
                raw.keep(pending[done], done.result())
            outcome = "" if error is None else f" failed: {type(error).__name__}: {error}"
            print(
                f"{time.strftime('%H:%M:%S')} {number}/{len(todo)} {pending[done].key}{outcome}",
                flush=True,
            )


def run_ray(cells: Sequence[Cell], raw: Raw, python: str) -> None:
    """Ray's searches in an interpreter of their own, then their schedules on the test seeds, here.

    What it brought is kept beside `raw` (`.ray.jsonl`), so a search is not repeated when judging it was interrupted.
    """
    todo = {
        f"{raw.code}|{cell.key}": cell for cell in cells if cell not in raw and cell.method in RAY
    }
    if not todo:
        return
    with tempfile.TemporaryDirectory() as folder:
        file, results = Path(folder) / "jobs.json", Path(folder) / "results.jsonl"
        if raw.path is not None:
            results = raw.path.with_suffix(".ray.jsonl")
        known = [json.loads(line)["key"] for line in lines(results)]
        ordered = sorted(todo.items(), key=lambda item: (RAY.index(item[1].method), item[1].repeat))
        jobs = [
            live.ray_job(key, live.SHARED[cell.task], cell.method, cell.repeat)
            for key, cell in ordered
            if key not in known
        ]
        file.write_text(json.dumps(jobs))
        command = [python, "-W", "ignore", str(HERE / "ray_pbt.py"), str(file), str(results)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None or todo.keys() & {
                json.loads(line)["key"] for line in lines(results)
            }:
                for found in map(json.loads, lines(results)):
                    if (cell := todo.pop(found["key"], None)) is not None:
                        raw.keep(
                            cell,
                            timed(
                                partial(
                                    live.judge_schedule, live.SHARED[cell.task], cell.repeat, found
                                )
                            ),
                        )
                time.sleep(0.5)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")


def lines(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--optimizers", nargs="+", default=list(LIVE), help="of the live part; random is always run"
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=list(live.TASKS), default=list(LIVE_TASKS), help="live"
    )
    parser.add_argument(
        "--landscapes", nargs="+", help="ids; default: all shipped that can be searched"
    )
    installed = [name for name in tables.ORIGINALS if name not in tables.missing()]
    parser.add_argument(
        "--engines",
        nargs="+",
        default=[*tables.OURS, *installed],
        help="of the tables; with random",
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument(
        "--table-repeats", type=int, default=5, help="on each landscape, at most --repeats"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--ray-python", help="an interpreter with Ray Tune, scikit-learn and autorl"
    )
    parser.add_argument(
        "--raw", type=Path, help="JSON file of finished cells: read, and written after each"
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="only report on what --raw has; cells are named missing",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="only print the CPU time of the cells that are missing",
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "optimizers.md")
    given = parser.parse_args(arguments)
    given.optimizers = list(dict.fromkeys(["random", *given.optimizers]))
    given.engines = list(dict.fromkeys(["random", *given.engines]))
    given.folders = tables.landscapes() if "tables" in given.parts else {}
    given.landscapes = given.landscapes or list(given.folders)
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    os.environ |= dict.fromkeys(ONE_THREAD, "1")  # of the processes that measure
    raw, cells = Raw(given.raw, code_version(*MEASURING)), wanted(given)
    print(
        f"code {raw.code}: {raw.estimate(cells)}; {len(raw.stale)} cells of other versions are not taken up",
        flush=True,
    )
    if given.estimate:
        return
    if not given.partial:
        run(cells, raw, given.folders, given.workers)
        if "ray" in given.parts and given.ray_python:
            run_ray(cells, raw, given.ray_python)
    text = report(raw, cells, given.parts, bool(given.ray_python))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
