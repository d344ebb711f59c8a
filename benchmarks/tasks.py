"""One configuration for several tasks: tuned on several, or on each alone, judged on tasks that nobody tuned on.

    python benchmarks/tasks.py --data ../shared/data/arlbench      # 2 CPU-minutes; writes results/tasks.md

Random search on the final scores of ARLBench's 256 configurations x 10 seeds (13 tasks of DQN, 6 of PPO). Scores of a
task are normalised by the quantiles of its own table, as `tasks` of a study file does with landscapes: 0.5 is the
median of all recorded runs. For each held-out task, and in each repeat: K tuning tasks are drawn from the others, five
seeds tune and five judge, and both ways spend the same runs on the same number of configurations.

    several    a configuration is trained with one seed on each of the K tasks; the best mean is chosen
    alone      a configuration is trained with K seeds on one of the K tasks; mean over these K studies
    itself     as alone, on the held-out task: what a search there would have found

Intervals are 95 % t intervals over held-out tasks, paired by task. "Same suite" draws tuning tasks from the held-out
task's own suite, whose tables have equal configurations; between suites the i-th configuration is the same point of
the unit cube, and the bounds of batch size, buffer, learning starts and target interval differ.

SAC's tables are the examination of `benchmarks/search.py`: they are never read here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from comparisons import Summary, over_tasks
from numpy.typing import NDArray

from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.evaluation import normalised

ALGORITHMS = ("dqn", "ppo")
TUNING = 5  # seeds; the other five judge
RUNS = 96
WAYS = ("several", "alone", "itself")
Scores = NDArray[np.float64]


def read(folder: Path, algorithm: str) -> dict[str, Scores]:
    """Read final scores by task on the scale of its quantiles, of shape (configurations, seeds)."""
    tasks = {}
    for path in sorted((folder / "landscapes").glob(f"*_{algorithm}.csv.gz")):
        data = pd.read_csv(path, usecols=["run_id", "budget", "performance", "seed"])
        last = data[data.budget == data.budget.max()]
        table = last.pivot_table(index="run_id", columns="seed", values="performance", dropna=False)
        scores = table.to_numpy()
        scores = np.where(np.isnan(scores), np.nanmin(scores), scores)  # a crash is the worst
        tasks[path.name.removesuffix(f"_{algorithm}.csv.gz")] = normalised(
            scores, np.quantile(scores, np.linspace(0, 1, 21)).tolist()
        )
    return tasks


def suite(task: str) -> str:
    """Name the suite of a task; Box2D and classic control have one space."""
    return task.split("_")[0].replace("box2d", "cc")


def repeat(
    tables: Sequence[Scores], held_out: Scores, aggregate: str, rng: np.random.Generator
) -> dict[str, list[float]]:
    """Search once in each way: held-out score, tuning score, and score on new seeds of the tuning tasks."""
    k = len(tables)
    count = RUNS // k
    configs = rng.permutation(len(held_out))[:count]
    seeds = rng.permutation(held_out.shape[1])
    tune, judge = seeds[:TUNING], seeds[TUNING:]
    by = parse_aggregate(aggregate)
    rows = np.array([table[configs, rng.choice(tune)] for table in tables])
    chosen = {"several": [(configs[int(np.argmax([by(row) for row in rows.T]))], rows, tables)]}
    for way, sources in (("alone", tables), ("itself", [held_out])):
        chosen[way] = []
        for table in sources:
            runs = table[configs][:, tune[: min(k, TUNING)]].T
            chosen[way].append((configs[int(runs.mean(axis=0).argmax())], runs, [table]))
    scores = {}
    for way, picks in chosen.items():
        parts = []
        for config, runs, sources in picks:
            new_seeds = np.mean([table[config, judge].mean() for table in sources])
            tuning = runs[:, configs == config].mean()
            parts.append((held_out[config, judge].mean(), tuning, new_seeds))
        scores[way] = [float(value) for value in np.mean(parts, axis=0)]
    return scores


def by_task(
    tasks: Mapping[str, Scores], k: int, aggregate: str, repeats: int, *, same: bool
) -> dict[str, Scores]:
    """Average repeats by held-out task: (tasks, 3) for each way."""
    rows: dict[str, list[Scores]] = {way: [] for way in WAYS}
    for number, (name, held_out) in enumerate(tasks.items()):
        allowed = [other for other in tasks if not same or suite(other) == suite(name)]
        others = [tasks[other] for other in allowed if other != name]
        if len(others) < k:
            continue
        rng = np.random.default_rng([number, k])
        drawn = (
            [others[place] for place in rng.permutation(len(others))[:k]] for _ in range(repeats)
        )
        searches = [repeat(tables, held_out, aggregate, rng) for tables in drawn]
        for way in WAYS:
            rows[way].append(np.mean([scores[way] for scores in searches], axis=0))
    return {way: np.array(values) for way, values in rows.items()}


def text(summary: Summary) -> str:
    return f"{summary.value:.3f} [{summary.low:.3f}, {summary.high:.3f}]"


def report(folder: Path, repeats: int) -> str:
    """Write results/tasks.md."""
    about = (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip()
    lines = ["# Tuned on several tasks, or on each alone", "", about, ""]
    lines += [f"{RUNS} runs for each search, {repeats} repeats for each held-out task.", ""]
    lines += [
        "| algorithm | tuning tasks | K | chosen by | held-out tasks | several | alone | itself "
        "| several - alone | gap of seeds, several | gap of tasks, several | gap of tasks, alone |",
        "| --- " * 12 + "|",
    ]
    settings = [
        (k, by, same) for same in (False, True) for k in (2, 3, 5) for by in ("mean", "worst")
    ]
    for algorithm in ALGORITHMS:
        tasks = read(folder, algorithm)
        for k, aggregate, same in settings:
            several, alone, itself = by_task(tasks, k, aggregate, repeats, same=same).values()
            if len(several) < 3:
                continue
            cells = [
                algorithm.upper(), "same suite" if same else "any other", str(k), aggregate,
                str(len(several)), *(text(over_tasks(way[:, 0])) for way in (several, alone, itself)),
                f"**{text(over_tasks(several[:, 0] - alone[:, 0]))}**",
                text(over_tasks(several[:, 1] - several[:, 2])),
                *(text(over_tasks(way[:, 2] - way[:, 0])) for way in (several, alone)),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of ARLBench's tables")
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "tasks.md")
    arguments = parser.parse_args()
    arguments.out.write_text(report(arguments.data, arguments.repeats), encoding="utf-8")
