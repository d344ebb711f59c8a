"""What `stop: learned` saves and costs on recorded runs, beside `stop: median` and no stopping.

    python benchmarks/learned_stopping.py --data ../shared/data/arlbench      # prints the tables

Random search over ARLBench's 256 configurations, one run after another, with curves of three tuning seeds cut at five
rungs. The reference curves of a task are those of all other tasks of the algorithm. All rules are given the same
configurations. Said are the steps trained, as a part of those without stopping, the incumbent's mean over the seeds
that did not tune (0 and 1 the worst and best configuration of the task), its difference to no stopping with a 95 %
interval over tasks, the runs that the rule would stop (also those it checks), the probability it stated that they beat
the incumbent, and the part that does, ties as a half. `misled` has references whose curves are reversed in time, `own`
none: only the study's own runs teach it.

SAC's tables are the examination of `benchmarks/search.py`: they are never read here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from autorl.core import seeds
from autorl.core.types import Config, Proposal, Proposed, Scored
from autorl.optimizers import make
from autorl.optimizers.learned_stop import LearnedStop
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_curves import reference_curves
from autorl.optimizers.priors.table import FEWEST, Curves, TaskTable
from autorl.space import load_space
from autorl.statistics import parse_reduction

ALGORITHMS = ("dqn", "ppo")
TUNING = 3
RUNGS = 5
HORIZON = 100
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """A recorded task.

    Attributes:
        name: of its file.
        values: shape (configurations, seeds, evaluations).
    """

    name: str
    values: Scores

    @property
    def curves(self) -> Scores:
        """Mean over the tuning seeds at each rung, shape (configurations, rungs)."""
        places = np.linspace(0, self.values.shape[-1], RUNGS + 1)[1:].astype(int) - 1
        return np.asarray(self.values[:, :TUNING, places].mean(axis=1))

    @property
    def held_out(self) -> Scores:
        """Final mean over the other seeds, 0 the worst and 1 the best, shape (configurations,)."""
        means = self.values[:, TUNING:, -1].mean(axis=1)
        return np.asarray((means - means.min()) / np.ptp(means))


@dataclass
class Tally:
    """What a rule did on a task.

    Attributes:
        steps: of each study, as a part of those without stopping.
        reached: held-out score of the incumbent of each study.
        stated: probability of each run that the rule would stop.
        beaten: whether that run beat the incumbent of its time.
    """

    steps: list[float] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)
    beaten: list[float] = field(default_factory=list)


def read(folder: Path, algorithm: str) -> list[Task]:
    """Read the tasks of an algorithm from ARLBench's folder."""
    tasks = []
    for path in sorted((folder / "landscapes").glob(f"*_{algorithm}.csv.gz")):
        data = pd.read_csv(path, usecols=["run_id", "budget", "performance", "seed"])
        table = data.pivot_table(
            index=["run_id", "seed"], columns="budget", values="performance", dropna=False
        )
        values = table.to_numpy().reshape(data.run_id.nunique(), data.seed.nunique(), -1)
        # A crashed run counts as the worst; Box2D returns are clipped, as ARLBench does.
        values = np.where(np.isnan(values), np.nanmin(values), values)
        values = np.maximum(values, -200 if "box2d" in path.name else -np.inf)
        tasks.append(Task(path.name.removesuffix(".csv.gz"), values))
    return tasks


def curve_data(tasks: Sequence[Task], *, reverse: bool = False) -> Mapping[str, Any]:
    """Return the reference curves of tasks, as a study file has them."""
    groups = []
    for task in tasks:
        values = task.values[:, :TUNING]
        values = values[:, :, ::-1] if reverse else values
        low = np.quantile(values, 0.05)
        units = np.clip((values - low) / max(values.max() - low, 1e-12), 0.0, 1.0)
        points = units.shape[-1]
        curves = Curves(tuple((place + 1) / points for place in range(points)), units)
        configs = tuple(Config({"row": row}) for row in range(FEWEST))
        scores = np.linspace(0.0, 1.0, FEWEST)
        groups.append([TaskTable(task.name, "kit", task.name, configs, scores, curves=curves)])
    reduction = parse_reduction("last")
    made = reference_curves(Gathered(groups), None, n_seeds=TUNING, reduction=reduction, named=True)
    return made.to_dict()


class Watched(LearnedStop):
    """The rule, which also says what it stated of the runs it would stop."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.doubts: list[tuple[int, float, float]] = []  # root, probability, incumbent

    def _stops(self, run: Any, scored: Scored) -> bool:
        stops = super()._stops(run, scored)
        chance = self._chances.get(run.root)
        if chance is not None and chance < self.options.threshold:
            best = max(other.scores[other.rung] for other in self._complete.values())
            self.doubts.append((run.root, chance, best))
        return stops


def play(task: Task, runs: int, repeat: int, options: Mapping[str, Any], tally: Tally) -> None:
    """Play a study and add what it did."""
    curves = task.curves
    last = len(curves) - 1
    rows = {"type": "int", "lower": 0, "upper": last, "default": repeat % (last + 1)}
    space = load_space({"hyperparameters": {"row": rows}})
    optimizer = make("random", space, horizon=HORIZON, budget=runs, **options)
    if isinstance(optimizer, LearnedStop):
        optimizer = Watched(optimizer.problem, optimizer.options, optimizer.inner)
    started: dict[int, int] = {}  # row by the number of the first segment
    reached: dict[int, int] = {}  # steps, likewise
    number = 0
    while True:
        answer = optimizer.ask(seeds.generator(repeat, "ask", len(started)))
        assert isinstance(answer, Proposal)
        root = answer.meta.get("root", number)
        if root == number and len(started) == runs:
            break
        row = started.setdefault(root, answer.config["row"])
        reached[root] = answer.until
        optimizer.observe(Proposed(number, answer))
        score = float(curves[row, answer.until * RUNGS // HORIZON - 1])
        optimizer.observe(Scored(number, (score,), reached=answer.until))
        number += 1
    complete = [started[root] for root, steps in reached.items() if steps == HORIZON]
    best = max(complete, key=lambda row: curves[row, -1])
    tally.steps.append(sum(reached.values()) / (runs * HORIZON))
    tally.reached.append(float(task.held_out[best]))
    for root, chance, incumbent in getattr(optimizer, "doubts", ()):
        final = curves[started[root], -1]
        tally.stated.append(chance)
        tally.beaten.append(float((final > incumbent) + 0.5 * (final == incumbent)))


def rules(others: Sequence[Task]) -> dict[str, dict[str, Any]]:
    """Return the options of each rule, without stopping first."""
    right = curve_data(others)
    learned = {"stop": "learned", "rungs": RUNGS, "curve_data": right}
    return {
        "none": {},
        "median": {"stop": "median", "rungs": RUNGS},
        "learned 0.02": learned | {"threshold": 0.02},
        "learned 0.05": learned,
        "learned 0.1": learned | {"threshold": 0.1},
        "misled": learned | {"curve_data": curve_data(others, reverse=True)},
        "own": {"stop": "learned", "rungs": RUNGS, "curves": "none"},
    }


def report(algorithm: str, tasks: Sequence[Task], runs: int, repeats: int) -> str:
    """Compare the rules on all tasks of an algorithm."""
    tallies: dict[str, list[Tally]] = {}
    for task in tasks:
        others = [other for other in tasks if other is not task]
        for name, options in rules(others).items():
            tally = Tally()
            for repeat in range(repeats):
                play(task, runs, repeat, options, tally)
            tallies.setdefault(name, []).append(tally)
    lines = [
        f"{algorithm}: {len(tasks)} tasks x {repeats} repeats, {runs} runs",
        "  rule          steps  score  difference             doubted  stated   beat",
    ]
    without = np.array([np.mean(tally.reached) for tally in tallies["none"]])
    for name, of_rule in tallies.items():
        steps = np.mean([np.mean(tally.steps) for tally in of_rule])
        scores = np.array([np.mean(tally.reached) for tally in of_rule])
        line = f"  {name:12s}  {steps:.3f}  {scores.mean():.3f}  {_interval(scores - without)}"
        stated = [chance for tally in of_rule for chance in tally.stated]
        beaten = [outcome for tally in of_rule for outcome in tally.beaten]
        if stated:
            line += f"  {len(stated):7d}  {np.mean(stated):.4f}  {np.mean(beaten):.4f}"
        lines.append(line)
    return "\n".join(lines)


def _interval(differences: Scores) -> str:
    """Write a mean over tasks with its interval of Student's t."""
    count = len(differences)
    half = student.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count)
    mean = differences.mean()
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with ARLBench's landscapes/"
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[32, 96])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    options = parser.parse_args()
    for algorithm in options.algorithms:
        tasks = read(options.data, algorithm)
        for runs in options.runs:
            print(report(algorithm, tasks, runs, options.repeats), flush=True)


if __name__ == "__main__":
    main()
