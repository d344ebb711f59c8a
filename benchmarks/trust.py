"""Does a prior gain trust where tasks agree, and lose nothing where they do not? Tasks are made up.

    python benchmarks/trust.py                 # 10 minutes on two cores; writes results/trust.md
    python benchmarks/trust.py --repeats 4 --output /tmp/trust.md

A task is a smooth random function of six hyperparameters (a Gaussian process by 256 random features).
The tasks of a family share one part: their correlation is the *agreement*. Below 0 the shared part of
each has a random sign, so that half of the pairs agree and half oppose each other; *opposed*: the tables
agree with each other by 0.9, and the study is their opposite. A table has 128 configurations, drawn evenly
from the study's ranges, or from *other ranges*, half as wide and elsewhere; there the shared part lies at
the same places of the ranges.

A study has 32 results with noise as large as the signal, and chooses by the best four, each with four
more. Its score is the true value of the choice, 0 and 1 the worst and the best of 2,000 random configurations,
beside the same study without a prior and the same noise. Intervals are 95 % t intervals over families.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
DIMENSIONS, FEATURES, ROWS, RESULTS, CONFIRMED, MORE = 6, 256, 128, 32, 4, 4
AGREEMENTS: tuple[float | str, ...] = (1.0, 0.6, 0.3, 0.0, -0.6, -1.0, "opposed")
TABLES = (2, 4, 12)
NAMES = tuple(f"x{number}" for number in range(DIMENSIONS))
Array = NDArray[np.float64]


def smooth(rng: np.random.Generator) -> Callable[[Array], Array]:
    """A random function of variance 1 whose length scale is 0.5."""
    waves = rng.standard_normal((DIMENSIONS, FEATURES)) / 0.5
    shift = rng.uniform(0, 2 * np.pi, FEATURES)
    weights = rng.standard_normal(FEATURES) * (2 / FEATURES) ** 0.5
    return lambda units: np.asarray(np.cos(units @ waves + shift) @ weights)


def family(
    agreement: float | str, tables: int, seed: int
) -> tuple[Callable[[Array], Array], list[Callable[[Array], Array]]]:
    """The study's task, and those of the tables."""
    rng = np.random.default_rng(seed)
    shared = smooth(rng)
    size = 0.9 if isinstance(agreement, str) else abs(agreement)
    signs = np.ones(tables + 1)
    if agreement == "opposed":
        signs[0] = -1.0
    elif not isinstance(agreement, str) and agreement < 0:
        signs = rng.choice([-1.0, 1.0], tables + 1)

    def task(sign: float, own: Callable[[Array], Array]) -> Callable[[Array], Array]:
        part = sign * size**0.5
        return lambda units: part * shared(units) + (1 - size) ** 0.5 * own(units)

    first, *others = (task(sign, smooth(rng)) for sign in signs)
    return first, others


def study(
    agreement: float | str, tables: int, elsewhere: bool, seed: int
) -> tuple[float, float, float]:
    """The share of the prior at first, and the scores of a study with and without it."""
    from autorl.core.types import Config
    from autorl.optimizers import make
    from autorl.optimizers.priors.build import fitted_prior
    from autorl.optimizers.priors.sources import Gathered
    from autorl.optimizers.priors.table import TaskTable, unit_scores
    from autorl.space import load_space
    from autorl.testing.simulation import simulate

    unit = {"type": "float", "lower": 0.0, "upper": 1.0}
    space = load_space({"hyperparameters": dict.fromkeys(NAMES, unit)})
    task, others = family(agreement, tables, seed)
    rng = np.random.default_rng([seed, 1])
    made = []
    for number, other in enumerate(others):
        units = rng.random((ROWS, DIMENSIONS))
        low = rng.uniform(-0.5, 1.0, DIMENSIONS) if elsewhere else np.zeros(DIMENSIONS)
        values = low + units * (0.5 if elsewhere else 1.0)
        configs = tuple(Config(zip(NAMES, row, strict=True)) for row in values.tolist())
        scores = unit_scores(other(units) + 0.3 * rng.standard_normal(ROWS))
        made.append([TaskTable(f"t{number}", "a", "Task-v0", configs, scores, 5)])
    prior = fitted_prior(Gathered(made), space, "Task-v0", named=True)
    share = max(trust.share for trust in prior.trust.values())
    range_ = task(np.random.default_rng([seed, 2]).random((2_000, DIMENSIONS)))
    noise = np.random.default_rng([seed, 3]).standard_normal((RESULTS + 1, MORE + 1))

    def true(config: Config) -> float:
        return float(task(np.array([[config[name] for name in NAMES]]))[0])

    found = []
    for data in (prior.to_dict(), None):
        options: dict[str, Any] = {"prior_data": data} if data else {"prior": "none"}
        factory = partial(make, "transfer", space, horizon=10, budget=RESULTS, **options)
        played = simulate(
            factory,
            lambda number, proposal: true(proposal.config) + noise[number, 0],
            RESULTS,
            seed=seed,
        )
        values = np.array([scored.values[0] for scored in played.scored])
        best = np.argsort(-values, kind="stable")[:CONFIRMED]
        truth = np.array([true(played.proposals[place].config) for place in best])
        means = truth + noise[best].mean(axis=1)
        found.append(float((truth[means.argmax()] - range_.min()) / np.ptp(range_)))
    return share, found[0], found[1]


def row(cell: tuple[float | str, int, bool], results: Sequence[tuple[float, float, float]]) -> str:
    from scipy.stats import t

    found = np.array(results)
    gain = found[:, 1] - found[:, 2]
    half = t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    agreement, tables, elsewhere = cell
    return (
        f"| {agreement} | {tables} | {'other' if elsewhere else 'the same'} | {found[:, 0].mean():.2f} | "
        f"{found[:, 1].mean():.3f} | {found[:, 2].mean():.3f} | "
        f"{gain.mean():+.3f} [{gain.mean() - half:+.3f}, {gain.mean() + half:+.3f}] |"
    )


def measure(arguments: tuple[tuple[float | str, int, bool], int]) -> tuple[float, float, float]:
    return study(*arguments[0], arguments[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=40, help="families of a row")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "trust.md")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cells = [*itertools.product(AGREEMENTS, TABLES, (False, True))]
    lines = [
        "# Trust in a prior, on tasks that were made up",
        "",
        "What was run: the head of `benchmarks/trust.py`, which writes this; "
        f"{given.repeats} families a row.",
        "",
        "| agreement | tables | ranges | share of the prior at first | with it | without | difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with ProcessPoolExecutor(given.workers) as pool:
        for cell in cells:
            jobs = [(cell, seed) for seed in range(given.repeats)]
            lines.append(row(cell, [*pool.map(measure, jobs, chunksize=4)]))
            print(lines[-1], flush=True)
    given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
