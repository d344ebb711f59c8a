"""How the cost of a study, of what reads it, and of a landscape grows with its size.

    python benchmarks/growth.py                     # all of it, some 30 minutes of CPU; writes results/growth.md
    python benchmarks/growth.py --scale 0.05        # the same at a twentieth of the sizes, to try it

Every measurement is a process of its own, with one thread for each library but DuckDB. CPU seconds, of user and system
and all threads, because the machine may do other things; from after the imports to the end of the work. All sizes are
gone through `--repeats` times, and the median of a size counts: one measurement scatters by a tenth, and so does an
exponent made of two. Peak memory is of the whole process, imports included. The exponent is the slope of log CPU over
log size between the smallest of the last three sizes and the largest: 1 is linear, 2 quadratic.

Trainers here do nothing, so a study's cost is the tuner's: store, optimizer, ranking, checkpoints where there are any.
Studies lie in a temporary folder (`TMPDIR`; a memory disk keeps the waiting of a disk out, not its CPU seconds).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROPOSALS = (1_250, 2_500, 5_000, 10_000, 20_000)
RUNS = (500, 1_000, 2_000, 4_000)
REPORTS = (1_000, 2_000, 4_000, 8_000)
LANDSCAPE = (125_000, 250_000, 500_000, 1_000_000)
SEEDS, STEPS = 10, 10  # of a configuration, of a run of the landscape
SPACE = {name: {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5} for name in ("x", "y")}


def quadratic_bowl(
    config: Mapping[str, Any], *, seed: int, until: int, checkpoint: Any = None, folder: Any = None
) -> float:
    """A score that grows with training; a resumable trainer, so that rungs have checkpoints."""
    if folder is not None:
        (Path(folder) / "state").write_text("1", encoding="utf-8")
    return float(until / 100 - (config["x"] - 0.3) ** 2)


def plain_bowl(config: Mapping[str, Any], *, seed: int) -> float:
    return -float((config["x"] - 0.3) ** 2)


def reporting(
    config: Mapping[str, Any], *, seed: int, until: int, report: Callable[..., None]
) -> None:
    for step in range(1, until + 1):
        report(step, float(step))


def run_study(function: Callable[..., Any], folder: Path, **changes: Any) -> None:
    from autorl.core.types import TrainerSpec
    from autorl.executors import InProcess
    from autorl.study import Study
    from autorl.study.spec import load_spec
    from autorl.trainers.function import FunctionTrainer

    def load(_: TrainerSpec) -> FunctionTrainer:
        return FunctionTrainer(function, {})

    document = {
        "name": "growth",
        "trainer": f"python:growth:{function.__name__}",
        "space": {"hyperparameters": SPACE},
        "fidelity": {"steps": 100, "evaluations": 4},
        "optimizer": "random",
        "seeds": {"tuning": 1, "test": 0},
        **changes,
    }
    with closing(Study.create(load_spec(document), folder, load)) as study:
        study.run(executor=InProcess(load))


# -- what is measured: each takes a folder and a size ------------------------------------------------------------------


def study(folder: Path, size: int) -> None:
    run_study(plain_bowl, folder / f"study-{size}", budget={"configurations": size})


def status(folder: Path, size: int) -> None:
    from autorl.report.reading import open_view
    from autorl.report.status import status_text

    with closing(open_view(folder / f"study-{size}")) as view:
        status_text(view)


def best(folder: Path, size: int) -> None:
    from autorl.report.formats import candidates, render
    from autorl.report.reading import open_view

    with closing(open_view(folder / f"study-{size}")) as view:
        render(candidates(view, 1), "yaml")


def report(folder: Path, size: int) -> None:
    from autorl.report.html import report_html
    from autorl.report.reading import open_view

    with closing(open_view(folder / f"study-{size}")) as view:
        report_html(view)


def reports(folder: Path, size: int) -> None:
    fidelity = {"steps": size, "evaluations": size}
    run_study(
        reporting, folder / f"reports-{size}", budget={"configurations": 1}, fidelity=fidelity
    )


def median(folder: Path, size: int) -> None:
    optimizer = {"name": "random", "stop": "median", "rungs": 4}
    run_study(
        quadratic_bowl,
        folder / f"median-{size}",
        budget={"configurations": size},
        optimizer=optimizer,
    )


def asha(folder: Path, size: int) -> None:
    changes = {"optimizer": "asha", "keep": {"checkpoints": "lineage"}}
    run_study(quadratic_bowl, folder / f"asha-{size}", budget={"configurations": size}, **changes)


def landscape(folder: Path, size: int) -> None:
    """Write a landscape of so many runs: a tenth as many configurations, ten evaluations a run."""
    import numpy as np
    import pandas as pd

    from autorl.core.types import FrozenMap
    from autorl.landscapes import Manifest, Tables, write_landscape
    from autorl.space import load_space

    space, rng = load_space({"hyperparameters": SPACE}), np.random.default_rng(0)
    configurations = size // SEEDS
    points = np.round(rng.random((configurations, 2)), 12)
    hashes = [space.config_hash({"x": x, "y": y}) for x, y in points.tolist()]
    numbers, runs = np.arange(configurations), np.arange(configurations * SEEDS)
    seeds = runs % SEEDS
    configs = pd.DataFrame({"config_id": numbers, "config_hash": hashes, "origin": "random"})
    configs["x"], configs["y"] = points.T
    table = pd.DataFrame(
        {"run_id": runs, "config_id": runs // SEEDS, "seed": np.where(seeds < 5, seeds, seeds + 95)}
    )
    table["seed_role"] = np.where(seeds < 5, "tuning", "test")
    table["algorithm"], table["environment"], table["parent_run"], table["start_step"] = (
        "dqn",
        "Bowl-v0",
        None,
        0,
    )
    table["member"], table["status"], table["environment_steps"], table["wall_seconds"] = (
        None,
        "done",
        STEPS,
        1.0,
    )
    level = np.repeat(points.sum(axis=1), SEEDS * STEPS) + np.tile(
        np.arange(1, STEPS + 1) / STEPS, len(runs)
    )
    evals = pd.DataFrame(
        {"run_id": np.repeat(runs, STEPS), "step": np.tile(np.arange(1, STEPS + 1), len(runs))}
    )
    evals["eval_return"] = level + rng.normal(0.0, 0.1, len(level))
    names = ("segment", "run_id", "seed", "parent", "member", "from_step", "to_step", "config_id")
    segments = pd.DataFrame({name: [] for name in names})
    manifest = Manifest(
        id="growth/dqn/Bowl-v0",
        description="Synthetic.",
        algorithm="dqn",
        environment="Bowl-v0",
        steps=tuple(range(1, STEPS + 1)),
        seeds=FrozenMap(tuning=tuple(range(5)), test=tuple(range(100, 105))),
        licence="https://opensource.org/license/apache-2-0",
        packages=FrozenMap(autorl={"version": "0", "commit": "0"}),
    )
    write_landscape(
        folder / f"landscape-{size}", Tables(configs, table, evals, segments), manifest, space
    )


def command(*arguments: str) -> Callable[[Path, int], None]:
    """A command of `autorl landscape` on the landscape of a size; exit codes are its own affair."""

    def measured(folder: Path, size: int) -> None:
        from typer.testing import CliRunner

        from autorl.cli import app

        line = ["landscape", arguments[0], str(folder / f"landscape-{size}"), *arguments[1:]]
        done = CliRunner().invoke(app, line)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception

    return measured


EVERYTHING = ("query", "select * from evals", "--limit", "5")
MEASURED: Mapping[str, tuple[str, Callable[[Path, int], None], Sequence[int]]] = {
    "study": ("a study, `random`: proposals", study, PROPOSALS),
    "status": ("`status` of it", status, PROPOSALS),
    "best": ("`best` of it", best, PROPOSALS),
    "report": ("`report` of it", report, PROPOSALS),
    "reports": ("a segment: reports", reports, REPORTS),
    "median": ("a study, `stop: median`, 4 rungs: runs", median, RUNS),
    "asha": ("a study, `asha`, lineage kept: runs", asha, RUNS),
    "landscape": ("writing a landscape: runs", landscape, LANDSCAPE),
    "query": ("`query 'select * from evals' --limit 5` of it", command(*EVERYTHING), LANDSCAPE),
    "query_json": ("the same with `--json`", command(*EVERYTHING, "--json"), LANDSCAPE),
    "landscape_best": ("`landscape best`", command("best"), LANDSCAPE),
    "top": ("`landscape top`", command("top"), LANDSCAPE),
    "curve": ("`landscape curve`", command("curve", "7"), LANDSCAPE),
    "validate": ("`landscape validate`", command("validate"), LANDSCAPE),
}


OF_STUDY = ("status", "best", "report")
OF_LANDSCAPE = ("query", "query_json", "landscape_best", "top", "curve", "validate")


def child(name: str, folder: str, size: int) -> None:
    """Measure one call and print it as JSON."""
    _, call, _ = MEASURED[name]
    with tempfile.TemporaryDirectory() as warm, redirect_stdout(sys.stderr):
        if name in OF_STUDY or name in OF_LANDSCAPE:
            MEASURED["study" if name in OF_STUDY else "landscape"][1](Path(warm), 200)
        call(Path(warm), 200)  # imports
    begun = seconds()
    with redirect_stdout(sys.stderr):
        call(Path(folder), size)
    print(
        json.dumps(
            {
                "cpu": seconds() - begun,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


def seconds() -> float:
    """CPU seconds of this process, all threads."""
    return time.process_time()


def measure(name: str, folder: Path, size: int) -> dict[str, float]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            f"import growth; growth.child({name!r}, {str(folder)!r}, {size})",
        ],
        cwd=HERE,
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} at {size} failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Slope of log cost over log size between the smallest of the last three sizes and the largest."""
    first = max(0, len(sizes) - 3)
    return math.log(costs[-1] / costs[first]) / math.log(sizes[-1] / sizes[first])


def row(name: str, sizes: Sequence[int], rounds: Sequence[Sequence[Mapping[str, float]]]) -> str:
    """A line of the table, from the measurements of each size in each round."""
    costs = [
        statistics.median(entry["cpu"] for entry in of_size)
        for of_size in zip(*rounds, strict=True)
    ]
    cells = "; ".join(f"{size:,}: {cost:.3g} s" for size, cost in zip(sizes, costs, strict=True))
    peak = max(entry["peak"] for entries in rounds for entry in entries) / 2**20
    return f"| {MEASURED[name][0]} | {cells} | {peak:,.0f} | {exponent(sizes, costs):.2f} |"


def page(rows: Sequence[str], load: float, repeats: int) -> str:
    """The whole of results/growth.md."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pandas", "duckdb"))
    lines = [
        "# How costs grow",
        "",
        "How it is measured: the head of `benchmarks/growth.py`, which writes this. CPU seconds at each size (median",
        f"of {repeats}), peak memory of the process at any of them (MiB), and the exponent over the last three sizes:",
        "1 is linear.",
        "",
        f"{os.cpu_count()} cores that did other things too, load average {load:.1f} at the start: only CPU seconds and",
        f"their growth mean anything. Python {platform.python_version()}, {packages}.",
        "",
        "| what: its size | CPU seconds by size | peak MiB | exponent |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(MEASURED), default=list(MEASURED))
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "growth.md")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        rounds = [Path(folder, str(number)) for number in range(options.repeats)]
        for path in rounds:
            path.mkdir()
        for name in options.only:
            scaled = (max(200, round(size * options.scale)) for size in MEASURED[name][2])
            sizes = list(dict.fromkeys(scaled))
            if len(sizes) == 1:
                parser.error(f"--scale {options.scale:g}: all sizes of {name} would be {sizes[0]}")
            measured = [[measure(name, path, size) for size in sizes] for path in rounds]
            rows.append(row(name, sizes, measured))
            print(rows[-1], file=sys.stderr, flush=True)
            options.out.write_text(page(rows, load, options.repeats), encoding="utf-8")


if __name__ == "__main__":
    main()
