"""What continuing from checkpoints saves: environment steps of the same promotions with and without.

    python benchmarks/continuation.py [--proposals 200] [--steps 1000] [--parallelism 8] [--seeds 5]

Each optimizer plays on the learning curves of the synthetic trainer. The promotions it makes are charged twice: from
the checkpoint of the rung before, as a study trains them, and from scratch, as a tool without checkpoints would. For
rungs that let one in eta go on, eta times longer, the ratio tends to

    rungs / (1 + (rungs - 1) (1 - 1 / eta)),

1.5 for eta 2 and 3 rungs, 1.6 for eta 2 and 4 rungs, and below 1.5 for any number of rungs with eta 3.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autorl.optimizers import make
from autorl.space import load_space
from autorl.testing.simulation import simulate
from autorl.trainers.synthetic import Synthetic

SETTINGS: Sequence[Mapping[str, Any]] = (
    {"name": "asha", "eta": 2, "rungs": 3},
    {"name": "asha", "eta": 2, "rungs": 4},
    {"name": "asha", "eta": 2, "rungs": 5},
    {"name": "asha", "eta": 3, "rungs": 3},
    {"name": "asha", "eta": 3, "rungs": 4},
    {"name": "successive_halving", "eta": 2, "rungs": 3},
    {"name": "successive_halving", "eta": 2, "rungs": 4},
    {"name": "hyperband", "eta": 2, "rungs": 3},
    {"name": "bohb", "eta": 2, "rungs": 3},
    {"name": "dehb", "eta": 2, "rungs": 3},
    {"name": "cost_aware"},
)


@dataclass(frozen=True)
class Steps:
    """Environment steps of one study, and how many of its proposals were promotions."""

    continued: int
    restarted: int
    promotions: int

    @property
    def ratio(self) -> float:
        """How many times more steps restarts take."""
        return self.restarted / self.continued


def measure(
    optimizer: Mapping[str, Any], *, proposals: int, steps: int, parallelism: int, seed: int
) -> Steps:
    """Play a study on the synthetic trainer's curves and count."""
    unit = {"type": "float", "lower": 0.0, "upper": 1.0}
    space = load_space({"hyperparameters": {name: unit for name in "xyz"}})
    trainer, options = Synthetic(noise=0.05, interaction=0.02), dict(optimizer)
    name = options.pop("name")
    simulation = simulate(
        lambda: make(name, space, horizon=steps, **options),
        lambda number, proposal: trainer.score(proposal.config, 0, proposal.until, steps),
        proposals,
        lag=parallelism,
        seed=seed,
    )
    made = simulation.proposals
    starts = [
        0 if proposal.resume_from is None else made[proposal.resume_from].until for proposal in made
    ]
    restarted = sum(proposal.until for proposal in made)
    return Steps(restarted - sum(starts), restarted, sum(start > 0 for start in starts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--proposals", type=int, default=200, help="of each study, promotions included"
    )
    parser.add_argument("--steps", type=int, default=1000, help="of a full run")
    parser.add_argument("--parallelism", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5, help="studies for each optimizer")
    arguments = parser.parse_args()
    print(
        "| optimizer | eta | rungs | promotions | steps, continued | steps, restarted | ratio (range) |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for setting in SETTINGS:
        found = [
            measure(
                setting,
                proposals=arguments.proposals,
                steps=arguments.steps,
                parallelism=arguments.parallelism,
                seed=seed,
            )
            for seed in range(arguments.seeds)
        ]
        ratios = [one.ratio for one in found]
        median = {
            name: statistics.median(getattr(one, name) for one in found)
            for name in Steps.__annotations__
        }
        print(
            f"| {setting['name']} | {setting.get('eta', '')} | {setting.get('rungs', '')} "
            f"| {median['promotions']:.0f} | {median['continued']:,.0f} | {median['restarted']:,.0f} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


if __name__ == "__main__":
    main()
