"""How often intervals cover and tests err: the figures that reports and docstrings of `autorl.statistics` quote.

    python benchmarks/error_rates.py --data ../shared/data/arlbench     # results/error_rates.md, 6 CPU-minutes
    python benchmarks/error_rates.py --data DIR --draws 0.1             # a tenth of the draws

*Coverage* is measured on the seed noise of real training. Each public table of ARLBench (Becktepe et al. 2024) has 256
configurations x 10 seeds. At the last checkpoint, configurations of one task are ordered by their mean score and cut
into 16 groups of 16; the residuals of a group's runs about the mean of their configuration, times sqrt(10 / 9), are one
population of 160 values. Groups in which half of the configurations or more score the same on all seeds are left out.
Samples of n runs are drawn from a population with replacement; an interval covers when the population's own value lies
in it. Crashed runs have the worst score of their task, scores of LunarLander end at -200. A difference is that of two
groups of one task, whose residuals are paired by seed.

*Level* of the sequential test: the share of experiments in which any pair of equal agents is decided, over all pairs
and interims (blocks of 5 runs, 5 interims, nominal 0.05). *Power*: the share in which every pair of different agents
is.

The Monte Carlo error is given as +-: one standard error over populations for coverage, which do not depend on each
other, and 1.96 binomial standard errors for levels and powers.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from autorl.statistics import (
    bootstrap_interval,
    difference_interval,
    parse_aggregate,
    sequential_test,
    student_interval,
)

HERE = Path(__file__).resolve().parent
GROUPS = 16
RESAMPLES = 1000
PERMUTATIONS = 200
BLOCK, INTERIMS, ALPHA = 5, 5, 0.05
SIZES = (2, 3, 4, 5, 6, 8, 10, 15, 20)
SIZES_OF_DIFFERENCES = (3, 5, 10, 20)


def read_scores(path: Path) -> np.ndarray:
    """Final scores (256 configurations, 10 seeds) of a table, configurations by their mean."""
    table = pd.read_csv(path, usecols=["run_id", "budget", "performance", "seed"])
    last = table[table.budget == table.budget.max()]
    scores = last.pivot_table(
        index="run_id", columns="seed", values="performance", dropna=False
    ).to_numpy()
    scores = np.where(np.isnan(scores), np.nanmin(scores), scores)
    if path.name.startswith("box2d_lunar_lander"):
        scores = np.maximum(scores, -200.0)
    order = np.argsort(scores.mean(axis=1), kind="stable")
    return np.asarray(scores[order])


def populations(data: Path) -> list[list[np.ndarray]]:
    """Residuals (16 configurations, 10 seeds) of every group with seed noise, by task."""
    tasks = []
    for path in sorted((data / "landscapes").glob("*.csv.gz")):
        scores = read_scores(path)
        seeds = scores.shape[1]
        residuals = (scores - scores.mean(axis=1, keepdims=True)) * math.sqrt(seeds / (seeds - 1))
        noisy = np.ptp(scores, axis=1) > 1e-9 * np.abs(scores).max()
        parts = np.array_split(np.arange(len(scores)), GROUPS)
        tasks.append([residuals[part] for part in parts if noisy[part].mean() > 0.5])
    return tasks


def percentile(aggregate: str) -> Callable[..., tuple[float, float]]:
    """An interval of an aggregate by bootstrap, as a function of runs and a generator."""

    def interval(runs: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
        found = bootstrap_interval(runs, aggregate, rng=rng, resamples=RESAMPLES)
        return found.low, found.high

    return interval


def bca(aggregate: str) -> Callable[..., tuple[float, float]]:
    """SciPy's interval, corrected for bias and skewness."""
    reduce = parse_aggregate(aggregate).stacked

    def statistic(sample: np.ndarray, axis: int) -> np.ndarray:
        return reduce(np.moveaxis(sample, axis, -1)[..., None])

    def interval(runs: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
        options: Any = {"method": "BCa", "n_resamples": RESAMPLES, "rng": rng}
        found = bootstrap((runs,), statistic, **options).confidence_interval
        return float(found.low), float(found.high)

    return interval


def student(runs: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    found = student_interval(runs)
    return found.low, found.high


INTERVALS = {
    "IQM, percentile": ("iqm", percentile("iqm")),
    "IQM, BCa": ("iqm", bca("iqm")),
    "mean, Student's t": ("mean", student),
    "mean, percentile": ("mean", percentile("mean")),
    "mean, BCa": ("mean", bca("mean")),
    "median, percentile": ("median", percentile("median")),
    "quantile(0.25), percentile": ("quantile(0.25)", percentile("quantile(0.25)")),
    "cvar(0.2), percentile": ("cvar(0.2)", percentile("cvar(0.2)")),
}


def coverage_of(
    name: str, noise: Sequence[np.ndarray], size: int, draws: int
) -> tuple[float, float]:
    """Coverage of an interval at a number of runs, and its standard error over populations."""
    aggregate, interval = INTERVALS[name]
    rng, shares = np.random.default_rng([size, list(INTERVALS).index(name)]), []
    for residuals in noise:
        population = residuals.ravel()
        truth = parse_aggregate(aggregate)(population)
        rounding = 1e-9 * np.abs(population).max()
        hits = 0
        for _ in range(draws):
            low, high = interval(rng.choice(population, size), rng)
            hits += low - rounding <= truth <= high + rounding
        shares.append(hits / draws)
    return float(np.mean(shares)), float(np.std(shares, ddof=1) / math.sqrt(len(shares)))


def paired_bootstrap(aggregate: str, paired: bool) -> Callable[..., tuple[float, float]]:
    """An interval of the difference of an aggregate of two samples."""

    def interval(
        first: np.ndarray, second: np.ndarray, rng: np.random.Generator
    ) -> tuple[float, float]:
        found = difference_interval(
            first, second, aggregate, rng=rng, resamples=RESAMPLES, paired=paired
        )
        return found.low, found.high

    return interval


def paired_student(
    first: np.ndarray, second: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    found = student_interval(first - second)
    return found.low, found.high


DIFFERENCES = {
    "difference of IQMs, paired percentile": ("iqm", paired_bootstrap("iqm", True)),
    "difference of IQMs, unpaired percentile": ("iqm", paired_bootstrap("iqm", False)),
    "difference of means, Student's t of the pairs": ("mean", paired_student),
    "difference of means, paired percentile": ("mean", paired_bootstrap("mean", True)),
    "difference of means, unpaired percentile": ("mean", paired_bootstrap("mean", False)),
}


def pairs_of_groups(tasks: Sequence[Sequence[np.ndarray]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Residuals of two groups of one task, run by run of the same seed."""
    rng, pairs = np.random.default_rng(5), []
    for groups in tasks:
        for index, residuals in enumerate(groups[:-1]):
            other = groups[int(rng.integers(index + 1, len(groups)))]
            pairs.append((residuals.ravel(), other[rng.permutation(len(other))].ravel()))
    return pairs


def coverage_of_difference(
    name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]], size: int, draws: int
) -> tuple[float, float]:
    aggregate, interval = DIFFERENCES[name]
    rng, shares = np.random.default_rng([size, 100 + list(DIFFERENCES).index(name)]), []
    for first, second in pairs:
        first = first / np.abs(first).max()  # else one of them is all that counts
        second = second / np.abs(second).max()
        truth = parse_aggregate(aggregate)(first) - parse_aggregate(aggregate)(second)
        hits = 0
        for _ in range(draws):
            chosen = rng.integers(0, len(first), size)
            low, high = interval(first[chosen], second[chosen], rng)
            hits += low - 1e-9 <= truth <= high + 1e-9
        shares.append(hits / draws)
    return float(np.mean(shares)), float(np.std(shares, ddof=1) / math.sqrt(len(shares)))


RUNS = BLOCK * INTERIMS


def equal_agents(kind: str, agents: int, rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    """Scores (agents, runs) and which of the agents have equal means."""
    noise = rng.standard_normal((agents, RUNS))
    everybody = list(range(agents))
    if kind == "lognormal":
        return np.exp(noise), everybody
    if kind == "capped at 500, rounded to 10":
        return np.round(np.minimum(500.0, 440.0 + 120.0 * noise), -1), everybody
    if kind == "0 / 1":
        return (noise > 0).astype(float), everybody
    if kind == "normal, one agent with 5x the spread":
        noise[0] *= 5.0
    elif kind == "normal, one agent better by 3 sd":
        noise[0] += 3.0
        return noise, everybody[1:]
    return noise, everybody


LEVELS = (
    "normal",
    "lognormal",
    "capped at 500, rounded to 10",
    "0 / 1",
    "normal, one agent with 5x the spread",
    "normal, one agent better by 3 sd",
)


def decided(
    scores: np.ndarray, seed: int, blocks: int = INTERIMS
) -> tuple[set[tuple[int, int]], bool]:
    """Pairs of agents that are decided after a number of blocks, and whether the test is over."""
    runs = {str(agent): values[: blocks * BLOCK] for agent, values in enumerate(scores)}
    rng = np.random.default_rng(seed)
    result = sequential_test(
        runs, rng=rng, block=BLOCK, interims=INTERIMS, alpha=ALPHA, permutations=PERMUTATIONS
    )
    pairs = {
        (int(a), int(b))
        for (a, b), verdict in result.verdicts.items()
        if verdict in ("larger", "smaller")
    }
    return pairs, not result.needs


def level(kind: str, agents: int, draws: int) -> float:
    data, errors = np.random.default_rng(1), 0
    for draw in range(draws):
        scores, equal = equal_agents(kind, agents, data)
        pairs, _ = decided(scores, draw)
        errors += any(pair in pairs for pair in combinations(equal, 2))
    return errors / draws


def power(shift: float, agents: int, lognormal: bool, draws: int) -> tuple[float, float]:
    """Share of experiments in which one better agent is told from all others, and runs of each agent until the end."""
    data, successes, used = np.random.default_rng(2), 0, 0
    others = {(0, agent) for agent in range(1, agents)}
    for draw in range(draws):
        noise = data.standard_normal((agents, RUNS))
        scores = np.exp(noise) if lognormal else noise
        scores[0] += shift
        for blocks in range(1, INTERIMS + 1):
            pairs, over = decided(scores, draw, blocks)
            if over or others <= pairs:
                break
        successes += others <= pairs
        used += blocks * BLOCK
    return successes / draws, used / draws


POWERS = (
    (0.5, 2, False),
    (1.0, 2, False),
    (1.5, 2, False),
    (1.0, 2, True),
    (1.0, 5, False),
    (1.5, 5, False),
)


def share(value: float, draws: int) -> str:
    return f"{value:.3f} +- {1.96 * math.sqrt(value * (1 - value) / draws):.3f}"


def coverage_lines(data: Path, draws: int) -> Iterator[str]:
    tasks = populations(data)
    noise = [residuals for groups in tasks for residuals in groups]
    yield "## Coverage of nominal 95 % intervals"
    yield f"\n{len(noise)} populations of {len(tasks)} tables, {draws} samples of each, {RESAMPLES} resamples.\n"
    yield "| interval | " + " | ".join(f"{size} runs" for size in SIZES) + " |"
    yield "| --- |" + " --- |" * len(SIZES)
    for name in INTERVALS:
        cells = [coverage_of(name, noise, size, draws) for size in SIZES]
        yield (
            f"| {name} | "
            + " | ".join(f"{value:.3f} +- {error:.3f}" for value, error in cells)
            + " |"
        )
    pairs = pairs_of_groups(tasks)
    yield f"\n{len(pairs)} pairs of groups of one task, {draws} samples of each.\n"
    yield "| interval | " + " | ".join(f"{size} runs" for size in SIZES_OF_DIFFERENCES) + " |"
    yield "| --- |" + " --- |" * len(SIZES_OF_DIFFERENCES)
    for name in DIFFERENCES:
        cells = [coverage_of_difference(name, pairs, size, draws) for size in SIZES_OF_DIFFERENCES]
        yield (
            f"| {name} | "
            + " | ".join(f"{value:.3f} +- {error:.3f}" for value, error in cells)
            + " |"
        )


def test_lines(draws: int) -> Iterator[str]:
    yield "\n## Level of the sequential test"
    yield f"\n{draws} experiments a cell, {PERMUTATIONS} permutations. Where all agents are alike the level holds by"
    yield "construction; with unequal spreads or a better agent it is about the nominal 0.05.\n"
    agents = (2, 3, 5, 10)
    yield "| scores of the agents | " + " | ".join(f"{count} agents" for count in agents) + " |"
    yield "| --- |" + " --- |" * len(agents)
    for kind in LEVELS:
        cells = []
        for count in agents:
            few = count == 2 and kind == "normal, one agent better by 3 sd"
            cells.append("-" if few else share(level(kind, count, draws), draws))
        yield f"| {kind} | " + " | ".join(cells) + " |"
    experiments = max(draws // 4, 1)
    yield "\n## Power of the sequential test"
    yield f"\n{experiments} experiments a row; one agent is better by `shift`, the others are equal. Told apart: that"
    yield "agent from all others. Runs: of each agent until then, or until the test is over.\n"
    yield "| agents | scores | shift | told apart | runs |"
    yield "| --- | --- | --- | --- | --- |"
    for shift, count, lognormal in POWERS:
        found, runs = power(shift, count, lognormal, experiments)
        unit = "" if lognormal else " sd"
        shape = "lognormal" if lognormal else "normal"
        yield f"| {count} | {shape} | {shift}{unit} | {share(found, experiments)} | {runs:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with ARLBench's landscapes/"
    )
    parser.add_argument("--draws", type=float, default=1.0, help="share of the draws")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "error_rates.md")
    options = parser.parse_args()
    start = time.process_time()
    lines = [
        "# How often intervals cover and tests err",
        "",
        "Written by `benchmarks/error_rates.py`.",
        "",
    ]
    lines += [*(__doc__ or "").split("\n\n", 2)[2].strip().splitlines(), ""]
    lines += coverage_lines(options.data, max(1, round(20 * options.draws)))
    lines += test_lines(max(1, round(4000 * options.draws)))
    minutes = (time.process_time() - start) / 60
    lines += [
        "",
        f"Python {platform.python_version()}, numpy {np.__version__}; {minutes:.1f} CPU-minutes.",
    ]
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
