"""Answers about a landscape of 100 million evaluations, beside DuckDB and polars asked directly.

    python benchmarks/landscapes_large.py                  # 5 minutes, 1 GB of scratch; writes results/landscapes_large.md
    python benchmarks/landscapes_large.py --configurations 500 --steps 100 --output /tmp/large.md

10,000 configurations of `population/ppo-small` x 10 seeds x 1,000 evaluations, made up: curves rise to a level of their
configuration, with noise of the seed and of the evaluation. Every question is asked in a process of its own, start-up
included, of one folder that is written once; the least of `--rounds` rounds counts, of CPU seconds (user and system, all
threads) and of peak memory. Files are in the page cache. DuckDB runs on one thread. `polars` need not be installed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from autorl.core.types import FrozenMap
from autorl.landscapes import Manifest, Tables, config_rows, write_landscape
from autorl.landscapes.croissant import write_croissant
from autorl.landscapes.manifest import file_sha256
from autorl.space import load_space

HERE = Path(__file__).parent
SEEDS = {"tuning": tuple(range(5)), "test": tuple(range(100, 105))}
AUTORL = [sys.executable, "-m", "autorl", "landscape"]
LIMITS = {  # CPU seconds and MB
    "best": (3, 300),
    "curve": (1.5, 150),
    "importance": (6, 500),
    "validate": (30, 500),
}
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
IN_DUCKDB = """
import duckdb
db = duckdb.connect(config=dict(threads=1))
print(db.sql('''{query}''').fetchall()[:3])
"""
BEST = """
SELECT config_id, avg(eval_return) AS score FROM (
  SELECT config_id, eval_return, row_number() OVER (PARTITION BY config_id ORDER BY eval_return) AS place
  FROM '{folder}/evals/*.parquet' JOIN '{folder}/runs.parquet' USING (run_id)
  WHERE step = {last} AND seed_role = 'tuning')
WHERE place BETWEEN 2 AND 4 GROUP BY config_id ORDER BY score DESC LIMIT 1
"""
CURVE = """
SELECT seed, step, eval_return FROM '{folder}/evals/*.parquet' JOIN '{folder}/runs.parquet' USING (run_id)
WHERE run_id BETWEEN 50 AND 59 ORDER BY seed, step
"""
IN_POLARS = """
import polars as pl
rows = pl.scan_parquet('{folder}/evals/*.parquet').filter({condition})
print(rows.join(pl.scan_parquet('{folder}/runs.parquet'), on='run_id').{answer}.collect(engine='streaming'))
"""
POLARS_BEST = (
    "filter(pl.col('seed_role') == 'tuning').group_by('config_id')"
    ".agg(pl.col('eval_return').sort().slice(1, 3).mean()).sort('eval_return').last()"
)


def write(folder: Path, configurations: int, steps: int) -> None:
    """Write the landscape; its evaluations are made by DuckDB, so that they need no memory."""
    space = load_space("population/ppo-small")
    rng = np.random.default_rng(0)
    configs = {number: space.sample(rng) for number in range(configurations)}
    seeds = [seed for role in SEEDS for seed in SEEDS[role]]
    n = configurations * len(seeds)
    runs = pd.DataFrame({"run_id": np.arange(n), "config_id": np.repeat(list(configs), len(seeds))})
    runs = runs.assign(
        seed=seeds * configurations,
        seed_role=[role for role in SEEDS for _ in SEEDS[role]] * configurations,
        algorithm="ppo",
        environment="Task-v0",
        parent_run=None,
        start_step=0,
        member=None,
        status="done",
        environment_steps=float(steps),
        wall_seconds=rng.uniform(1, 2, n),
    )
    segments = runs[["run_id", "seed", "member", "config_id"]].assign(
        segment=runs["run_id"].astype(str), parent=None, from_step=0, to_step=steps
    )
    manifest = Manifest(
        id="benchmark/ppo/Task-v0",
        description="Made-up curves.",
        algorithm="ppo",
        environment="Task-v0",
        steps=tuple(range(1, steps + 1)),
        seeds=FrozenMap(SEEDS),
        licence="CC0-1.0",
        commit="0" * 40,
    )
    none = pd.DataFrame({"run_id": [0], "step": [1], "eval_return": [0.0]})
    tables = Tables(config_rows(space, configs, "sobol"), runs, none, segments)
    written = write_landscape(folder, tables, manifest, space)
    part = folder / "evals" / "part-00000.parquet"
    # The level is a function of a hyperparameter, so that there is something to explain.
    rates = np.log10([float(configs[number]["learning_rate"]) for number in configs])
    levels = 400 * np.exp(-((rates - rates.mean()) ** 2)) + rng.uniform(0, 20, configurations)
    database = duckdb.connect()
    database.register(
        "levels", pd.DataFrame({"config_id": np.arange(configurations), "level": levels})
    )
    database.execute(
        "COPY (SELECT CAST(i // $steps AS INTEGER) AS run_id, i % $steps + 1 AS step, "
        "CAST(level * (i % $steps + 1) / $steps + hash(i // $steps) % 1000 / 50 "
        "+ hash(i) % 100000 / 10000 AS FLOAT) AS eval_return FROM range($rows) AS t(i) "
        f"JOIN levels ON config_id = i // ($steps * {len(seeds)}) ORDER BY i) "
        f"TO '{part}' (FORMAT parquet, COMPRESSION zstd)",
        {"steps": steps, "rows": n * steps},
    )
    counts = FrozenMap({**written.rows, "evals": n * steps})
    hashes = FrozenMap({**written.files, "evals/part-00000.parquet": file_sha256(part)})
    finished = replace(written, rows=counts, files=hashes)
    write_croissant(folder, finished)
    finished.write(folder)


def cost(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of a process."""
    # Started by a small process: a child has at least the peak memory of the one it is forked from.
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]}: {done.stderr[-500:]}")
    seconds, kilobytes = done.stdout.split()
    return float(seconds), float(kilobytes) / 1024


def commands(folder: Path, steps: int) -> dict[tuple[str, str], list[str]]:
    """Every question by what it asks and whom it asks."""
    names = {"folder": folder, "last": steps}
    found = {
        (what, "autorl"): [*AUTORL, what, str(folder), *more]
        for what, more in {
            "best": [],
            "top": [],
            "curve": ["5"],
            "importance": [],
            "validate": [],
        }.items()
    }
    found["best by auc", "autorl"] = [*AUTORL, "best", str(folder), "--reduce", "auc"]
    python = [sys.executable, "-c"]
    for what, query in (("best", BEST), ("curve", CURVE)):
        found[what, "DuckDB"] = [*python, IN_DUCKDB.format(query=query.format(**names))]
    try:
        version("polars")
    except PackageNotFoundError:
        return found
    last = f"pl.col('step') == {steps}"
    of_runs = "pl.col('run_id').is_between(50, 59)"
    found["best", "polars"] = [
        *python,
        IN_POLARS.format(condition=last, answer=POLARS_BEST, **names),
    ]
    found["curve", "polars"] = [
        *python,
        IN_POLARS.format(condition=of_runs, answer="sort('seed', 'step')", **names),
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configurations", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1_000, help="evaluations of a run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", help="one question: best, curve, ...")
    parser.add_argument("--folder", type=Path, help="keep the landscape here, and use it again")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "landscapes_large.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "landscape"
        if not folder.exists():
            write(folder, options.configurations, options.steps)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
        asked = commands(folder, options.steps)
        costs: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for key, command in asked.items():
                if options.only in (None, key[0]):
                    costs.setdefault(key, []).append(cost(command))
    least = {
        key: [min(figures) for figures in zip(*found, strict=True)] for key, found in costs.items()
    }
    systems = list(dict.fromkeys(system for _, system in asked))
    lines = [
        "# Landscapes: answers about 100 million evaluations",
        "",
        f"How it is measured: the head of `benchmarks/landscapes_large.py`, which writes this. {options.configurations:,} "
        f"configurations x 10 seeds x {options.steps:,} evaluations, {size:,.0f} MB on disk. Machine: {os.cpu_count()} "
        f"cores, load average {os.getloadavg()[0]:.1f} at the end; Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in map(str.lower, systems[1:]))
        + ".",
        "",
        f"| question | {' | '.join(f'{name}: CPU s, MB' for name in systems)} | target | met |",
        "| --- " * (len(systems) + 3) + "|",
    ]
    for what in dict.fromkeys(name for name, _ in least):
        cells = [
            "{:.2f}, {:,.0f}".format(*least[what, name]) if (what, name) in least else ""
            for name in systems
        ]
        limit = LIMITS.get(what)
        met = limit and all(a <= b for a, b in zip(least[what, "autorl"], limit, strict=True))
        target = "{} s, {} MB".format(*limit) if limit else ""
        lines.append(
            f"| `{what}` | {' | '.join(cells)} | {target} | {('yes' if met else '**no**') if limit else ''} |"
        )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
