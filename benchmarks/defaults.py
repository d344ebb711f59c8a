"""What the defaults of our optimizers rest on: variants of one optimizer side by side, the present default among them.

    python benchmarks/defaults.py --data ../shared/data/arlbench --raw raw.json     # all; writes results/defaults.md
    python benchmarks/defaults.py --parts tables --data DIR --repeats 2 --tasks cc_cartpole_ppo

*tables*: searches on forests fitted to ARLBench's tables of DQN and PPO, judged by a forest of held-out seeds (0 and 1
are the worst and the best configuration recorded): see `arlbench_replay.py`. Where to start `cmaes` and with which
sigma; the start-up and the lag of `tpe`; `dehb` beside `hyperband`; what the median rule compares. Scores are told with
the lag a study has: `parallelism` outcomes late.

*moving*: populations on a task in closed form whose optimum moves by `drift` of the range of two learning rates (1e-5
to 0.1, on the logarithm), as a share of what the best fixed configuration reaches.

*live*: populations on the engine (`optimizers_live.py`), explore by a step of the range and by the factor of the paper.

Intervals are 95 % t intervals of the mean over tasks of differences paired by repeat; their variance within a task is
pooled over tasks, because there are few repeats of each. There is no correction for the number of rows.
Finished cells are kept in `--raw`; `--partial` reports on those that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import optimizers_live as live
from arlbench_replay import Task

HERE = Path(__file__).parent
Variant = tuple[str, dict[str, Any], int]  # optimizer, options, proposals in flight

STARTS = [("default", 0.25), ("middle", 0.25), ("default", 1 / 6), ("middle", 1 / 6)]
CMAES: Mapping[str, Variant] = {
    f"cmaes, {start}, sigma {sigma:.3g}": ("cmaes", {"start": start, "sigma": sigma}, 4)
    for start, sigma in STARTS
}
CMAES_LARGER: Variant = ("cmaes", {"start": "middle", "sigma": 1 / 6, "population_size": 10}, 4)
# by full runs of the budget: what a study of that size has by default, and what it had
TABLES: Mapping[int, Mapping[str, Variant]] = {
    16: {
        "random": ("random", {}, 8),
        "tpe": ("tpe", {}, 2),
        "bohb": ("bohb", {}, 2),
        "hyperband": ("hyperband", {}, 2),
        "dehb": ("dehb", {}, 2),
    },
    32: {
        "random": ("random", {}, 8),
        "tpe": ("tpe", {}, 4),
        "tpe, startup 16": ("tpe", {"startup": 16}, 4),
        "tpe, 8 in flight": ("tpe", {}, 8),
        **CMAES,
        "cmaes, middle, sigma 0.167, population 10": CMAES_LARGER,
        "hyperband": ("hyperband", {}, 4),
        "dehb": ("dehb", {}, 4),
        "random, stop: median": ("random", {"stop": "median"}, 4),
        "random, stop: median, against: scores": (
            "random",
            {"stop": "median", "against": "scores"},
            4,
        ),
    },
    96: {"random": ("random", {}, 8), "hyperband": ("hyperband", {}, 8), "dehb": ("dehb", {}, 8)},
}
LIVE: Mapping[str, Mapping[str, Any]] = {
    "pbt, explore: step 0.2": {"name": "pbt", "explore": "step"},
    "pbt, explore: factor 1.2": {"name": "pbt", "explore": "factor"},
}
LIVE_TASKS = ("PPO CartPole-v1", "DQN CartPole-v1", "SAC Pendulum-v1")
MOVING_TASKS: Mapping[str, float] = {"drift 0": 0.0, "drift 0.3": 0.3, "drift 0.7": 0.7}
RATE = {
    "type": "float",
    "lower": 1e-5,
    "upper": 0.1,
    "scale": "log",
    "default": 1e-3,
    "changeable": True,
}
MEMBERS, STEPS, MANY = 16, 1000, 10_000
PAIRS: Sequence[tuple[str, str]] = (
    ("tpe", "random"),
    ("tpe", "tpe, startup 16"),
    ("tpe", "tpe, 8 in flight"),
    ("bohb", "hyperband"),
    ("dehb", "hyperband"),
    ("hyperband", "random"),
    ("dehb", "random"),
    *(
        (f"cmaes, {start}, sigma {sigma:.3g}", "cmaes, default, sigma 0.25")
        for start, sigma in STARTS[1:]
    ),
    ("cmaes, middle, sigma 0.167", "cmaes, middle, sigma 0.167, population 10"),
    ("cmaes, middle, sigma 0.167", "random"),
    ("random, stop: median", "random"),
    ("random, stop: median", "random, stop: median, against: scores"),
    ("pbt, explore: factor 1.2", "pbt, explore: step 0.2"),
)
PARTS = ("tables", "moving", "live")


def search(task: Any, variant: Variant, runs: int, repeat: int) -> dict[str, Any]:
    """A search of `runs` full-length runs: the judged incumbent, and how much was the model's."""
    from autorl.core import seeds
    from autorl.core.types import Done, Proposal, Proposed, Scored, Wait
    from autorl.optimizers import find, make
    from autorl.optimizers.model_share import model_share

    name, options, lag = variant
    if name in ("sobol", "smac", "cmaes"):
        options = {**options, "seed": repeat}
    optimizer = make(name, task.space, horizon=task.horizon, budget=runs, **options)
    made, waiting, spent = list[Proposal](), list[int](), 0.0
    best: tuple[int, float, int] = (-1, -np.inf, 0)

    def tell() -> None:
        nonlocal best
        number = waiting.pop(0)
        until = made[number].until
        value = task.tuning_score(made[number].config, until)
        best = max(best, (until, value, -number))
        optimizer.observe(Scored(number, (value,), reached=until))

    while True:
        while waiting and waiting[0] <= len(made) - lag:
            tell()
        answer = optimizer.ask(seeds.generator(repeat, "ask", len(made)))
        while isinstance(answer, Wait):
            tell()
            answer = optimizer.ask(seeds.generator(repeat, "ask", len(made)))
        if isinstance(answer, Done):
            break
        spent += (
            answer.until - (0 if answer.resume_from is None else made[answer.resume_from].until)
        ) / task.horizon
        if spent > runs * (1 + 1e-9):
            break
        optimizer.observe(Proposed(len(made), answer))
        waiting.append(len(made))
        made.append(answer)
    while waiting:
        tell()
    share = model_share(made)
    by_model = share.share if find(name).learns else None
    return {"judged": task.judged(made[-best[2]].config), "by_model": by_model, "new": share.new}


def moving(drift: float, variant: Mapping[str, Any], repeat: int) -> dict[str, Any]:
    """The true skill of the agent a population chose, in units of the best fixed configuration's."""
    from autorl.optimizers import make
    from autorl.space import load_space
    from autorl.testing.simulation import MovingOptimum, simulate

    space = load_space({"hyperparameters": {"actor": RATE, "critic": RATE}})
    task = MovingOptimum(space, STEPS, drift=drift, width=0.3, noise=0.01, seed=repeat)
    options = {key: value for key, value in variant.items() if key != "name"}

    def factory() -> Any:
        return make(
            variant["name"],
            space,
            horizon=STEPS,
            budget=MEMBERS,
            changeable=space.changeable,
            **options,
        )

    played = simulate(factory, task, MANY, lag=8, seed=repeat)
    ends = [one for one in played.scored if played.proposals[one.proposal].until == STEPS]
    best = max(
        ends, key=lambda one: (not played.proposals[one.proposal].provisional, one.values[0])
    )
    # The best fixed configuration lies in the middle of the optimum's path.
    fixed = task.gained(np.full(len(task.space.names), 0.5), 0, task.horizon)
    return {"judged": task.skill[best.proposal] / fixed}


@cache
def table(name: str, data: Path) -> Any:
    return Task(name, data, Path(tempfile.mkdtemp(prefix="defaults-")))


def measure(key: str, data: Path | None) -> dict[str, Any]:
    """One cell, by its key `part|task|runs|variant|repeat`."""
    warnings.filterwarnings("ignore")
    part, task, runs, variant, repeat = key.split("|")
    if part == "live":
        return live.run_cell(live.study(live.TASKS[task], LIVE[variant], int(repeat)))
    if part == "moving":
        return moving(MOVING_TASKS[task], LIVE[variant], int(repeat))
    assert data is not None
    loaded = table(task, data)
    return search(loaded, TABLES[int(runs)][variant], int(runs), int(repeat)) | {
        "judge": loaded.correlation
    }


def wanted(given: argparse.Namespace) -> list[str]:
    """The keys of all cells, repeat by repeat, so that an interrupted run has whole repeats."""
    cells = []
    if "live" in given.parts:
        cells += [
            f"live|{task}|{live.TASKS[task].runs}|{variant}|{repeat}"
            for repeat in range(given.live_repeats)
            for task in given.live_tasks
            for variant in LIVE
        ]
    if "moving" in given.parts:
        cells += [
            f"moving|{task}|{MEMBERS}|{variant}|{repeat}"
            for repeat in range(given.moving_repeats)
            for task in MOVING_TASKS
            for variant in LIVE
        ]
    if "tables" in given.parts:
        cells += [
            f"tables|{task}|{runs}|{variant}|{repeat}"
            for repeat in range(given.repeats)
            for task in given.tasks
            for runs, variants in TABLES.items()
            for variant in variants
        ]
    return cells


def value(part: str, cell: Mapping[str, Any]) -> float:
    return float(np.mean(cell["test"])) if part == "live" else float(cell["judged"])


def collected(
    cells: Sequence[str], raw: Mapping[str, Any]
) -> dict[tuple[str, str], dict[str, dict[str, list[float]]]]:
    """Values by (part, runs), then variant, then task."""
    found: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = {}
    for key in cells:
        part, task, runs, variant, _ = key.split("|")
        if key in raw:
            by_task = found.setdefault((part, runs if part == "tables" else task), {}).setdefault(
                variant, {}
            )
            by_task.setdefault(task, []).append(value(part, raw[key]))
    return found


def interval(
    one: Mapping[str, list[float]], other: Mapping[str, list[float]]
) -> tuple[float, float, float, int]:
    """Mean over tasks of the paired difference, its 95 % interval, and the number of pairs."""
    from scipy.stats import t as student

    pairs = [
        np.subtract(*zip(*zip(one[task], other[task], strict=False), strict=True))
        for task in one
        if task in other
    ]
    counts = np.array([len(row) for row in pairs])
    freedom = int((counts - 1).sum())
    variance = sum(float(((row - row.mean()) ** 2).sum()) for row in pairs) / max(1, freedom)
    mean = float(np.mean([row.mean() for row in pairs]))
    error = float(np.sqrt((variance / counts).sum()) / len(pairs))
    half = float(student.ppf(0.975, freedom)) * error if freedom else np.inf
    return mean, mean - half, mean + half, int(counts.sum())


def report(cells: Sequence[str], raw: Mapping[str, Any], arguments: Sequence[str]) -> str:
    """The results as Markdown."""
    lines = ["# Defaults", "", *(__doc__ or "").splitlines()[4:-1], ""]
    lines += [
        f"Made by `python benchmarks/defaults.py {' '.join(arguments)}`; {len(cells)} cells.",
        "",
    ]
    judges = sorted(
        {(key.split("|")[1], raw[key]["judge"]) for key in cells if "judge" in raw.get(key, {})}
    )
    if judges:
        text = ", ".join(f"{task} {correlation:.2f}" for task, correlation in judges)
        lines += [f"Tasks of the tables, and the judge's out-of-bag rank correlation: {text}.", ""]
    for (part, group), variants in collected(cells, raw).items():
        titles = {
            "tables": f"Tables: {group} full runs",
            "live": f"Live: {group}, mean test return",
        }
        title = titles.get(
            part, f"An optimum that moves: {group}, share of the best fixed configuration"
        )
        lines += [f"## {title}", "", "| variant | score | by the model |", "| --- | --- | --- |"]
        for variant, by_task in variants.items():
            mean = np.mean([np.mean(values) for values in by_task.values()])
            lines.append(f"| {variant} | {mean:.4g} | {_share(raw, part, group, variant)} |")
        lines += ["", "| difference | mean | 95 % interval | pairs |", "| --- | --- | --- | --- |"]
        for one, other in PAIRS:
            if one in variants and other in variants:
                mean, low, high, count = interval(variants[one], variants[other])
                told = "" if low > 0 or high < 0 else ", not told apart"
                lines.append(
                    f"| {one} - {other} | {mean:+.3g} | [{low:+.3g}, {high:+.3g}]{told} | {count} |"
                )
        lines.append("")
    return "\n".join(lines)


def _share(raw: Mapping[str, Any], part: str, group: str, variant: str) -> str:
    """Part of the new configurations that is the model's, over all cells of a row."""
    place = 2 if part == "tables" else 1
    named = {key: key.split("|") for key in raw}
    cells = [
        raw[key]
        for key, parts in named.items()
        if (parts[0], parts[place], parts[3]) == (part, group, variant)
    ]
    shares = [cell["by_model"] for cell in cells if cell.get("by_model") is not None]
    return f"{np.mean(shares):.0%}" if shares else "-"


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data", type=Path, help="ARLBench's folder, for the tables")
    parser.add_argument("--tasks", nargs="+", help="of the tables; default: all in --data")
    parser.add_argument("--repeats", type=int, default=4, help="of the tables")
    parser.add_argument("--moving-repeats", type=int, default=20)
    parser.add_argument(
        "--live-tasks", nargs="+", choices=list(live.TASKS), default=list(LIVE_TASKS)
    )
    parser.add_argument("--live-repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--raw", type=Path, help="JSON lines of finished cells: read, and appended to"
    )
    parser.add_argument("--partial", action="store_true", help="only report on what --raw has")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "defaults.md")
    given = parser.parse_args(arguments)
    if "tables" in given.parts and given.data is None:
        parser.error("the tables need --data")
    if given.tasks is None and given.data is not None:
        given.tasks = sorted(
            file.name.split(".")[0] for file in (given.data / "landscapes").glob("*.csv.gz")
        )
    return given


def main() -> None:
    arguments = sys.argv[1:]
    given = options(arguments)
    os.environ |= dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
    )
    cells, raw = wanted(given), dict[str, Any]()
    if given.raw is not None and given.raw.exists():
        raw = dict(json.loads(line) for line in given.raw.read_text().splitlines())
    todo = [] if given.partial else [key for key in cells if key not in raw]
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        pending = {pool.submit(measure, key, given.data): key for key in todo}
        for number, done in enumerate(as_completed(pending), 1):
            raw[pending[done]] = done.result()
            if given.raw is not None:
                with given.raw.open("a") as file:
                    file.write(json.dumps([pending[done], done.result()]) + "\n")
            print(f"{time.strftime('%H:%M:%S')} {number}/{len(todo)} {pending[done]}", flush=True)
    text = report(
        [key for key in cells if key in raw],
        raw,
        [word for word in arguments if word != "--partial"],
    )
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
