"""Which part of a search fails, on functions that fail in a third of their space.

    python benchmarks/failures.py      # prints the table; three minutes

Three hyperparameters in 0..1, and a score that falls with the squared distance from its best value. A run fails (out of
memory) where one hyperparameter, or the sum of two, is too large: in a third of the space. The best value lies far from
that, just outside, or just inside. Printed are the mean and the largest part of proposals 41 to 80 that failed, over six
studies (three of SMAC).
"""

from __future__ import annotations

import sys

import numpy as np

import autorl
from autorl.core.seeds import SeedPlan

NAMES = ("random", "tpe", "gp", "transfer", "smac")
COUNT = 80
ALONE, TOGETHER = 2 / 3, 2 - (2 / 3) ** 0.5
FUNCTIONS = {
    "one too large, best far from it": (ALONE, 1, (0.3, 0.5, 0.5)),
    "one too large, best just outside": (ALONE, 1, (0.62, 0.5, 0.5)),
    "two too large, best far from it": (TOGETHER, 2, (0.3, 0.3, 0.5)),
    "two too large, best just outside": (TOGETHER, 2, (0.55, 0.55, 0.5)),
    "two too large, best just inside": (TOGETHER, 2, (0.7, 0.7, 0.5)),
}


def failed(name: str, seed: int, bound: float, summed: int, best: tuple[float, ...]) -> float:
    """Return the part of a search's second half that failed."""
    tuner = autorl.Tuner(
        {"hyperparameters": dict.fromkeys("xyz", "uniform(0, 1)")},
        optimizer={"name": name, "prior": "none"} if name == "transfer" else name,
        direction="maximize",
        seeds=SeedPlan(tuning=1, test=0),
        budget={"configurations": COUNT},
        parallelism=1,
        seed=seed,
    )
    failures = []
    with tuner:
        for _ in range(COUNT):
            trial = tuner.ask()
            values = np.array([trial.config[key] for key in "xyz"])
            failures.append(values[:summed].sum() > bound)
            if failures[-1]:
                tuner.fail(trial, "out_of_memory")
            else:
                tuner.tell(trial, -float(((values - best) ** 2).sum()))
    return float(np.mean(failures[COUNT // 2 :]))


def main() -> None:
    names = sys.argv[1:] or NAMES
    print(f"| fails where | {' | '.join(names)} |")
    print("| --- " * (len(names) + 1) + "|")
    for about, function in FUNCTIONS.items():
        cells = []
        for name in names:
            parts = [failed(name, seed, *function) for seed in range(3 if name == "smac" else 6)]
            cells.append(f"{np.mean(parts):.2f} (to {max(parts):.2f})")
        print(f"| {about} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
