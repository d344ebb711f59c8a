"""The rule of adaptive seeds on recorded runs: which share confirms, and how true what it states is.

    python benchmarks/adaptive_seeds.py --data ../shared/data/arlbench      # prints the tables

Random search on the final scores of ARLBench's 256 configurations x 10 seeds, 0 and 1 the worst and best mean of a
task. Each repeat splits the seeds: five tune, the mean over the other five judges. Compared are three seeds for each
configuration, racing (`rule: mean`, 1 to 5 seeds) and adaptive seeds with several shares, all with the same number of
runs; intervals are 95 % t intervals over tasks.

Below, the probability that the choice is right and the over-tuning, as stated and as they are, in five bins with as
many choices each. Held-out seeds are noisy themselves, so the truth has to be known: there five tuning seeds are drawn
with replacement from a configuration's ten, and right is who has the best mean of the ten among those confirmed.

SAC's tables are the examination of `benchmarks/search.py`: they are never read here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from comparisons import over_tasks
from numpy.typing import NDArray

from autorl.core.types import Status
from autorl.statistics.confirmation import SHARE, confirmed_at, levels_of, runs_to_confirm
from autorl.statistics.evaluation import Racing, SeedValue
from autorl.statistics.noise import Posterior, posterior, probability_of_best

ALGORITHMS = ("dqn", "ppo")
SHARES = (0.1, SHARE, 0.2, 0.3, 0.5)
TUNING = 5
BINS = 5
FIXED, RACING = "fixed 3", "racing"
Scores = NDArray[np.float64]


class Draw(NamedTuple):
    """One repeat: configurations in random order, the scores of tuning seeds, and what judges."""

    tuning: Scores
    judge: Scores


class Choice(NamedTuple):
    """What a study with adaptive seeds has chosen, and what it states of that."""

    chosen: int
    confirmed: list[int]
    probability: float
    overtuning: float
    score: float


def read(folder: Path) -> dict[str, Scores]:
    """Read final scores by task, of shape (configurations, seeds), from ARLBench's folder."""
    tasks = {}
    for algorithm in ALGORITHMS:
        for path in sorted((folder / "landscapes").glob(f"*_{algorithm}.csv.gz")):
            data = pd.read_csv(path, usecols=["run_id", "budget", "performance", "seed"])
            last = data[data.budget == data.budget.max()]
            values = last.pivot_table(index="run_id", columns="seed", values="performance")
            # Box2D returns are clipped where a run crashed, as ARLBench does.
            scores = np.maximum(values.to_numpy(), -200 if "box2d" in path.name else -np.inf)
            mean = scores.mean(axis=1)
            tasks[path.name.removesuffix(".csv.gz")] = (scores - mean.min()) / np.ptp(mean)
    return tasks


def split(scores: Scores, rng: np.random.Generator) -> Draw:
    """Order the configurations and split the seeds at random."""
    ordered = scores[rng.permutation(len(scores))][:, rng.permutation(scores.shape[1])]
    return Draw(ordered[:, :TUNING], ordered[:, TUNING:].mean(axis=1))


def drawn_anew(scores: Scores, rng: np.random.Generator) -> Draw:
    """Draw tuning seeds from those recorded, whose mean is then the true score."""
    ordered = scores[rng.permutation(len(scores))]
    seeds = rng.integers(ordered.shape[1], size=(len(ordered), TUNING))
    return Draw(np.take_along_axis(ordered, seeds, axis=1), ordered.mean(axis=1))


def estimate(tuning: Scores, seeds: Mapping[int, int]) -> tuple[Posterior, Scores]:
    """Return what the seeds trained say of each configuration, and their means."""
    parts = [tuning[number, :count] for number, count in seeds.items()]
    means = np.array([part.mean() for part in parts])
    spreads = [part.std(ddof=1) if len(part) > 1 else 0.0 for part in parts]
    return posterior(means, spreads, list(seeds.values())), means


def adaptive(tuning: Scores, runs: int, share: float) -> Choice:
    """Explore and confirm with so many runs."""
    confirm = runs_to_confirm(runs, share)
    seeds = dict.fromkeys(range(runs - confirm), 1)
    left = list(seeds)
    for level, count in enumerate(levels_of(confirm, len(seeds), TUNING - 1)):
        expected = estimate(tuning, seeds)[0].mean
        ranked = sorted(left, key=lambda number: -expected[number])
        left = confirmed_at(ranked, seeds, level + 2, count)
        seeds.update(dict.fromkeys(left, level + 2))
    model, means = estimate(tuning, seeds)
    chosen = max(left, key=lambda number: means[number])
    confirmed = [number for number, count in seeds.items() if count > 1]
    overtuning = float(means[chosen] - model.mean[chosen])
    probability = probability_of_best(model, chosen, confirmed)
    return Choice(chosen, confirmed, probability, overtuning, float(means[chosen]))


def racing(tuning: Scores, runs: int) -> int:
    """Race one configuration after another against the incumbent until the runs are used up."""
    race = Racing(tuple(range(TUNING)), 1, TUNING)
    incumbent, spent = 0, TUNING
    for number in range(1, len(tuning)):
        if spent >= runs:
            break
        reference = _values(tuning[incumbent])
        count = 1
        while more := race.more(_values(tuning[number, :count]), reference):
            count += len(more)
        spent += count
        if count == TUNING and tuning[number].mean() > tuning[incumbent].mean():
            incumbent = number
    return incumbent


def _values(scores: Scores) -> list[SeedValue]:
    return [SeedValue(seed, Status.DONE, (float(score),)) for seed, score in enumerate(scores)]


def gains(tasks: Mapping[str, Scores], runs: int, repeats: int) -> str:
    """Compare the rules with one number of runs."""
    rng = np.random.default_rng(runs)
    scores: dict[str, list[float]] = {}
    for table in tasks.values():
        of_task: dict[str, list[float]] = {}
        for _ in range(repeats):
            drawn = split(table, rng)
            three = int(drawn.tuning[: runs // 3, :3].mean(axis=1).argmax())
            of_task.setdefault(FIXED, []).append(drawn.judge[three])
            of_task.setdefault(RACING, []).append(drawn.judge[racing(drawn.tuning, runs)])
            for share in SHARES:
                choice = adaptive(drawn.tuning, runs, share)
                of_task.setdefault(f"adaptive {share}", []).append(drawn.judge[choice.chosen])
        for rule, reached in of_task.items():
            scores.setdefault(rule, []).append(float(np.mean(reached)))
    lines = [f"{runs} runs, {len(tasks)} tasks x {repeats} repeats"]
    for rule, means in scores.items():
        line = f"  {rule:14s} {np.mean(means):.3f}"
        for other in (FIXED, RACING) if rule.startswith("adaptive") else ():
            found = over_tasks(np.array(means) - scores[other])
            line += f"; minus {other}: {found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        lines.append(line)
    return "\n".join(lines)


def statements(tasks: Mapping[str, Scores], runs: Sequence[int], repeats: int) -> str:
    """Compare what studies of all these lengths state with what is so."""
    rng = np.random.default_rng(0)
    rows = []
    for count in runs:
        for table in tasks.values():
            for _ in range(repeats):
                drawn = drawn_anew(table, rng)
                rows.append(_checked(adaptive(drawn.tuning, count, SHARE), drawn.judge))
    stated, right, overtuning, real = np.array(rows).T
    lines = [
        f"what {len(rows)} studies state, of {' and '.join(map(str, runs))} runs",
        f"  over-tuning: stated {overtuning.mean():.3f}, true {real.mean():.3f}",
    ]
    for part in np.array_split(np.argsort(stated, kind="stable"), BINS):
        lines.append(f"  right: stated {stated[part].mean():.2f}, true {right[part].mean():.2f}")
    return "\n".join(lines)


def _checked(choice: Choice, judge: Scores) -> tuple[float, bool, float, float]:
    """Return the stated probability, whether the choice was right, stated and real over-tuning."""
    right = bool(judge[choice.chosen] >= judge[choice.confirmed].max() - 1e-9)
    return choice.probability, right, choice.overtuning, choice.score - float(judge[choice.chosen])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with ARLBench's landscapes/"
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[32, 96])
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    tasks = read(options.data)
    for runs in options.runs:
        print(gains(tasks, runs, options.repeats))
    print(statements(tasks, options.runs, options.repeats))


if __name__ == "__main__":
    main()
