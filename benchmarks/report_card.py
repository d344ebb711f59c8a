"""How often the report card finds the number of hyperparameters that must be tuned.

    python benchmarks/report_card.py      # prints the table; half a minute

Synthetic landscapes of 8 hyperparameters and 8 environments, 256 configurations each: a score is minus the weighted
distance to an optimum, and 0 to 4 hyperparameters have another optimum in each environment, two more have the same in
all. The true number is that of `analysis.card.dimensionality` with exact scores of the optima. Beside the forest stands
the recorded configuration that lies nearest to the one that is asked for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from autorl.landscapes.analysis.card import dimensionality, percentile_scores, tuned_sets
from autorl.landscapes.regression import regressor

Scores = NDArray[np.float64]
COUNT, ENVIRONMENTS, CONFIGURATIONS, SEEDS = 8, 8, 256, 5
ALIKE = 2  # hyperparameters with one optimum
NOISE = 0.1


def sizes(seed: int, differing: int) -> tuple[int, int, int]:
    """Return the dimensionality of a landscape: true, by forests, by the nearest configuration."""
    rng = np.random.default_rng(seed)
    rows = qmc.Sobol(COUNT, seed=seed).random(CONFIGURATIONS)
    weights = np.zeros(COUNT)
    weights[: differing + ALIKE] = rng.uniform(1, 3, differing + ALIKE)
    optima = np.tile(rng.random(COUNT), (ENVIRONMENTS, 1))
    optima[:, :differing] = rng.random((ENVIRONMENTS, differing))
    exact = np.stack([-(abs(rows - optimum) * weights).sum(axis=1) for optimum in optima], axis=1)
    table = exact + NOISE * rng.normal(size=exact.shape)
    scores = percentile_scores(table, table)
    once = rows[scores.mean(axis=1).argmax()]
    sets = tuned_sets(COUNT)
    found: dict[str, Scores] = {}
    found["true"] = np.stack(
        [
            -(abs(np.where(sets, optimum, once) - optimum) * weights).sum(axis=1)
            for optimum in optima
        ],
        axis=1,
    )
    mixed = np.where(sets[:, None], rows, once)  # (sets, configurations, count)
    forests = [
        regressor(n_estimators=64, max_leaf_nodes=512, random_state=0).fit(rows, column)
        for column in table.T
    ]
    found["forest"] = np.stack(
        [
            forest.predict(mixed.reshape(-1, COUNT)).reshape(mixed.shape[:2]).max(axis=1)
            for forest in forests
        ],
        axis=1,
    )
    nearest = [((asked[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1) for asked in mixed]
    found["nearest"] = np.stack([table[places].max(axis=0) for places in nearest])
    alone = np.ones((1, ENVIRONMENTS)) / ENVIRONMENTS
    true, forest, near = (
        int(dimensionality(percentile_scores(reached, table), sets, alone)[2][0])
        for reached in found.values()
    )
    return true, forest, near


def main() -> None:
    print("| optima that differ | true | by forests | by the nearest configuration |")
    print("| --- | --- | --- | --- |")
    right = np.zeros(2, dtype=int)
    for differing in range(5):
        found = np.array([sizes(seed, differing) for seed in range(SEEDS)])
        right += (found[:, 1:] == found[:, :1]).sum(axis=0)
        cells = (", ".join(map(str, column)) for column in found.T)
        print(f"| {differing} | {' | '.join(cells)} |")
    print(f"\nright: forests {right[0]}, nearest {right[1]} of {5 * SEEDS}")


if __name__ == "__main__":
    main()
