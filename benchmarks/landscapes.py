"""Speed and size of a landscape of two million evaluations, beside the same rows as CSV read with pandas.

    python benchmarks/landscapes.py            # a few minutes, 1 GB of scratch; writes results/landscapes.md
    python benchmarks/landscapes.py --environments 2 --rounds 3 --output /tmp/landscapes.md

20 environments x 256 configurations of `population/ppo` x 5 + 5 seeds x 40 evaluations = 2,048,000 rows, made up:
returns are means of 32 whole numbers, as evaluations are. Systems take turns; medians of wall time and of CPU time.
"Warm" is asked of a landscape that was asked before, "first" of one just opened; files are in the page cache for both.
pandas reads the CSV once for each question ("cold"), as a script does; its time on rows already in memory is shown too.
Every answer is compared with the other system's.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from autorl.core.types import Config, FrozenMap, Segment, SegmentId, TrainerSpec
from autorl.landscapes import Landscape, Manifest, Tables, config_rows, write_landscape
from autorl.space import Space, load_space
from autorl.trainers import load

HERE = Path(__file__).parent
SEEDS = {"tuning": tuple(range(5)), "test": tuple(range(100, 105))}
CONFIGS, EVALUATIONS, EPISODES = 256, 40, 32
STEPS = tuple(2_500 * number for number in range(1, EVALUATIONS + 1))
SINGLES, RUNS = 200_000, 1_000  # look-ups one by one, and runs through the trainer, of each repeat
KEYS = ["environment", "config_id", "seed", "seed_role", "step"]


@dataclass
class Timing:
    """Wall and CPU seconds of each repeat."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, action: Callable[[], Any]) -> Any:
        """What the action returns; its time is added."""
        wall, cpu = time.perf_counter(), time.process_time()
        answer = action()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        return answer

    @property
    def median(self) -> float:
        """Of CPU seconds: they do not depend on what else the machine does, and are no less than a quiet wall time."""
        return statistics.median(self.cpu)

    def text(self) -> str:
        """Median wall and CPU milliseconds."""
        return f"{1e3 * statistics.median(self.wall):,.2f} ({1e3 * self.median:,.2f})"


def name(number: int) -> str:
    return f"Task{number:02d}-v0"


def made_up(number: int, configs: dict[int, Config], space: Space) -> tuple[Manifest, Tables]:
    """Manifest and rows of one environment: curves that rise to a level of their configuration, with seed noise."""
    rng = np.random.default_rng(number)
    seeds, roles = (
        [seed for role in SEEDS for seed in SEEDS[role]],
        [role for role in SEEDS for _ in SEEDS[role]],
    )
    n = len(configs) * len(seeds)
    levels = np.repeat(rng.uniform(20, 500, len(configs)), len(seeds)) + rng.normal(0, 20, n)
    curves = levels[:, None] * np.linspace(0.1, 1.0, EVALUATIONS) + rng.normal(
        0, 5, (n, EVALUATIONS)
    )
    runs = pd.DataFrame({"run_id": np.arange(n), "config_id": np.repeat(list(configs), len(seeds))})
    runs = runs.assign(seed=seeds * len(configs), seed_role=roles * len(configs), algorithm="ppo")
    runs = runs.assign(
        environment=name(number), parent_run=None, start_step=0, member=None, status="done"
    )
    runs = runs.assign(environment_steps=float(STEPS[-1]), wall_seconds=rng.uniform(1, 2, n))
    evals = pd.DataFrame(
        {"run_id": np.repeat(runs["run_id"], EVALUATIONS), "step": np.tile(STEPS, n)}
    )
    evals["eval_return"] = (
        (np.round(np.clip(curves, 0, 500) * EPISODES) / EPISODES).ravel().astype(np.float32)
    )
    evals["eval_return_std"] = rng.uniform(0, 50, n * EVALUATIONS).astype(np.float32)
    segments = runs[["run_id", "seed", "member", "config_id"]].assign(
        segment=runs["run_id"].astype(str), parent=None, from_step=0, to_step=STEPS[-1]
    )
    manifest = Manifest(
        id=f"benchmark/ppo/{name(number)}",
        description="Made-up curves.",
        algorithm="ppo",
        environment=name(number),
        steps=STEPS,
        seeds=FrozenMap(SEEDS),
        licence="CC0-1.0",
    )
    return manifest, Tables(config_rows(space, configs, "sobol"), runs, evals, segments)


def write(root: Path, environments: int) -> tuple[list[Path], Path]:
    """The landscapes' folders, and one CSV file with a row per evaluation and everything known about it."""
    space, rng = load_space("population/ppo"), np.random.default_rng(0)
    configs = {number: space.sample(rng) for number in range(CONFIGS)}
    folders, csv = [], root / "all.csv"
    for number in range(environments):
        manifest, tables = made_up(number, configs, space)
        folders.append(root / "landscapes" / manifest.id)
        write_landscape(folders[-1], tables, manifest, space)
        flat = tables.evals.merge(
            tables.runs[["run_id", "config_id", "seed", "seed_role", "environment"]], on="run_id"
        )
        flat = flat.drop(columns="run_id").merge(
            tables.configs.drop(columns=["config_hash", "origin"]), on="config_id"
        )
        ordered = flat[KEYS + [column for column in flat if column not in KEYS]]
        ordered.to_csv(csv, mode="a", header=number == 0, index=False)
    return folders, csv


def iqm_by_config(frame: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Interquartile mean over tuning seeds at the last step, of each group; vectorised."""
    last = frame[(frame["seed_role"] == "tuning") & (frame["step"] == STEPS[-1])]
    table = last.set_index([*keys, "seed"])["eval_return"].unstack("seed")
    cut = int(0.25 * table.shape[1])
    return pd.Series(
        np.sort(table.to_numpy(np.float64), axis=1)[:, cut : table.shape[1] - cut].mean(axis=1),
        table.index,
    )


def pandas_best(frame: pd.DataFrame, environment: str) -> int:
    scores = iqm_by_config(frame[frame["environment"] == environment], ["config_id"])
    return int(scores.index[int(scores.to_numpy().argmax())])


def pandas_curves(frame: pd.DataFrame, environment: str, config_id: int) -> list[float]:
    rows = frame[(frame["environment"] == environment) & (frame["config_id"] == config_id)]
    return [float(value) for value in rows.sort_values(["seed", "step"])["eval_return"]]


def pandas_top(frame: pd.DataFrame) -> list[list[int]]:
    scores = iqm_by_config(frame, ["environment", "config_id"])
    groups = scores.groupby(level="environment", sort=True)
    return [group.nlargest(10).index.get_level_values("config_id").tolist() for _, group in groups]


def our_curves(data: Landscape, config_id: int) -> list[float]:
    return [float(value) for value in data.curves(config_id)["eval_return"]]


def our_top(landscapes: list[Landscape]) -> list[list[int]]:
    return [[int(number) for number in data.top(10)["config_id"]] for data in landscapes]


def reopened(ours: Callable[[list[Landscape]], Any], folders: list[Path]) -> Any:
    return ours([Landscape(folder) for folder in folders])


def questions(
    folders: list[Path], rounds: int, csv: Path, csv_rounds: int
) -> dict[str, dict[str, Timing]]:
    """Each question asked of both, in turns; the answers must agree."""
    middle = len(folders) // 2
    environment, config_id = name(middle), 17
    warm = [Landscape(folder) for folder in folders]
    asked: dict[str, tuple[Callable[[list[Landscape]], Any], Callable[[pd.DataFrame], Any]]] = {
        "best": (
            lambda data: data[middle].best().config_id,
            lambda rows: pandas_best(rows, environment),
        ),
        "curves": (
            lambda data: our_curves(data[middle], config_id),
            lambda rows: pandas_curves(rows, environment, config_id),
        ),
        "top": (our_top, pandas_top),
    }
    times = {
        each: {kind: Timing() for kind in ("warm", "first", "cold", "loaded")} for each in asked
    }
    for ours, _ in asked.values():
        ours(warm)
    for _ in range(rounds):
        for each, (ours, _) in asked.items():
            times[each]["warm"].take(partial(ours, warm))
            times[each]["first"].take(partial(reopened, ours, folders))
    for _ in range(csv_rounds):
        reading = Timing()
        rows = reading.take(lambda: pd.read_csv(csv))
        for each, (ours, theirs) in asked.items():
            loaded = times[each]["loaded"]
            answer = loaded.take(partial(theirs, rows))
            times[each]["cold"].wall.append(reading.wall[-1] + loaded.wall[-1])
            times[each]["cold"].cpu.append(reading.cpu[-1] + loaded.cpu[-1])
            if answer != ours(warm):
                raise SystemExit(f"the answers to {each!r} differ")
        del rows
    return times


def look_ups(folder: Path, rounds: int) -> dict[str, Timing]:
    """10,000 random look-ups at once; many one by one; whole runs through the trainer `tabular`."""
    data, rng = Landscape(folder), np.random.default_rng(0)
    objective, grid = data.objective(), data.grid
    configs = [data.config(int(number)) for number in grid.config_ids]
    wanted = [rng.choice(axis, 10_000) for axis in (grid.config_ids, grid.seeds, grid.steps)]
    chosen = [configs[number] for number in rng.integers(len(configs), size=SINGLES)]
    seeds, untils = rng.integers(5, size=SINGLES).tolist(), rng.choice(STEPS, SINGLES).tolist()
    spec = TrainerSpec("tabular", FrozenMap(landscape=str(folder)))
    trainer = load(spec)
    common: dict[str, Any] = {
        "trainer": spec,
        "role": "tuning",
        "until": STEPS[-1],
        "horizon": STEPS[-1],
    }
    segments = [
        Segment(
            id=SegmentId(number, seeds[number]),
            config=chosen[number],
            seed=seeds[number],
            evaluate_at=STEPS,
            **common,
        )
        for number in range(RUNS)
    ]

    def singly() -> None:
        for config, seed, until in zip(chosen, seeds, untils, strict=True):
            objective(config, seed=seed, until=until)

    def trained() -> None:
        for segment in segments:
            trainer.train(segment, lambda report: None)

    times = {"at once": Timing(), "one by one": Timing(), "trainer": Timing()}
    singly()
    for _ in range(rounds):
        times["at once"].take(lambda: grid.lookup(*wanted))
        times["one by one"].take(singly)
        times["trainer"].take(trained)
    return times


def row(
    what: str, ours: Timing, theirs: dict[str, Timing], limit: str, met: bool, ratio: str
) -> str:
    speed = f"{theirs['cold'].median / ours.median:,.0f}x"
    cells = [what, ours.text(), theirs["cold"].text(), theirs["loaded"].text(), speed, limit, ratio]
    return "| " + " | ".join([*cells, "yes" if met else "**no**"]) + " |"


def report(
    sizes: tuple[float, float],
    times: dict[str, dict[str, Timing]],
    singles: dict[str, Timing],
    about: str,
) -> str:
    """The result as Markdown."""
    header = [
        "question",
        "landscape, ms (CPU)",
        "CSV + pandas, ms (CPU)",
        "pandas, rows in memory",
        "faster",
    ]
    lines = ["# Landscapes: measured size and speed", "", about, ""]
    lines += [
        "| " + " | ".join([*header, "target, ms", "target, ratio", "met"]) + " |",
        "| --- " * 8 + "|",
    ]
    asked = {
        "best": ("best configuration by IQM, one environment", 15, 100),
        "curves": ("learning curves of one configuration", 5, 300),
        "top": ("top 10 of each environment", 100, 20),
    }
    for each, (what, limit, ratio) in asked.items():
        peer, warm, first = times[each], times[each]["warm"], times[each]["first"]
        met = 1e3 * warm.median <= limit and peer["cold"].median / warm.median >= ratio
        lines.append(row(f"{what}: warm", warm, peer, f"<= {limit}", met, f">= {ratio}x"))
        speed = f"{peer['cold'].median / first.median:,.0f}x"
        lines.append(f"| {what}: first | {first.text()} | | | {speed} | | | |")
    lines += ["", "| | measured (by CPU time) | target | met |", "| --- | --- | --- | --- |"]
    lines.append(
        f"| on disk, MB; the CSV: {sizes[1]:,.0f} | {sizes[0]:.1f} | <= 40 | {_met(sizes[0] <= 40)} |"
    )
    at_once = singles["at once"]
    lines.append(
        f"| 10,000 random look-ups at once, ms | {at_once.text()} | <= 20 | {_met(at_once.median <= 0.02)} |"
    )
    enough = _met(SINGLES / singles["one by one"].median >= 500_000)
    rate = per_second(singles["one by one"], SINGLES)
    lines.append(
        f"| look-ups one by one, `data.objective()`, per second | {rate} | >= 500,000 | {enough} |"
    )
    rate = per_second(singles["trainer"], RUNS * EVALUATIONS)
    lines += [
        f"| evaluations of whole runs by the trainer `tabular`, two metrics each, per second | {rate} | | |",
        "",
    ]
    return "\n".join(lines)


def per_second(timing: Timing, count: int) -> str:
    return f"{count / statistics.median(timing.wall):,.0f} ({count / timing.median:,.0f})"


def _met(holds: bool) -> str:
    return "yes" if holds else "**no**"


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def machine() -> str:
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    )
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=31, help="of each question to the landscapes")
    parser.add_argument("--csv-rounds", type=int, default=5, help="of reading the CSV")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "landscapes.md")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folders, csv = write(Path(scratch), options.environments)
        sizes = megabytes(Path(scratch) / "landscapes"), csv.stat().st_size / 1e6
        times = questions(folders, options.rounds, csv, options.csv_rounds)
        singles = look_ups(folders[0], options.rounds)
    rows = options.environments * CONFIGS * 10 * EVALUATIONS
    packages = ", ".join(
        f"{package} {version(package)}" for package in ("duckdb", "pandas", "numpy")
    )
    about = (
        f"{rows:,} evaluations: {options.environments} environments x {CONFIGS} configurations x 10 seeds x "
        f"{EVALUATIONS} evaluations. Machine: {os.cpu_count()} cores, {machine()}; Python {platform.python_version()}; "
        f"{packages}; load average {load_before:.1f} at the start, {os.getloadavg()[0]:.1f} at the end. Medians of "
        f"{options.rounds} repeats, {options.csv_rounds} for the CSV; targets and ratios are of CPU times, since wall "
        "times count other work of the machine too. Warm: of a landscape asked before; first: of one just opened. CSV "
        "+ pandas: the file is read for the question. Written by `python benchmarks/landscapes.py`."
    )
    text = report(sizes, times, singles, about)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
