"""Proposals of `nsga2` beside those of Optuna's own sampler, told the same trials.

The original is built by hand: a study in Optuna's memory, its sampler with the options that the
documentation names, the seed that our ask draws first.
"""

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import NSGAIISampler
from optuna.trial import create_trial

from autorl.core import seeds
from autorl.optimizers import make
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

CONTINUOUS = space_of("continuous")
DISTRIBUTIONS = {name: FloatDistribution(0.0, 1.0) for name in "xyz"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"crossover_prob": 0.3, "swapping_prob": 0.9},
        {"crossover_prob": 0.0},
        {"swapping_prob": 0.0},
    ],
)
def test_nsga2_breeds_what_optunas_sampler_does(options):
    """In generations of four; a child that equals an earlier one is bred again."""

    def objectives(x, y, z):
        return (-((x - 0.2) ** 2) - z, -((y - 0.8) ** 2) + z)

    count = 14
    made = simulate(
        lambda: make("nsga2", CONTINUOUS, horizon=1, population_size=4, n_objectives=2, **options),
        lambda number, proposal: objectives(**proposal.config),
        count,
    ).proposals
    full = {"crossover_prob": 0.9, "swapping_prob": 0.5} | options
    trials = []
    parents = {}  # of each generation, chosen once
    for number, proposal in enumerate(made):
        rng = seeds.generator(0, "ask", number)
        if number:
            earlier = [list(trial.params.values()) for trial in trials]
            for _ in range(6):
                child, chosen = _child(trials, parents, int(rng.integers(2**31)), full)
                if not any(np.allclose(list(child.values()), config) for config in earlier):
                    break
            assert proposal.config == pytest.approx(child, abs=1e-9)
            parents |= chosen
        trials.append(
            create_trial(
                values=objectives(**proposal.config),
                params=dict(proposal.config),
                distributions=DISTRIBUTIONS,
                system_attrs={"NSGAIISampler:generation": number // 4},
            )
        )
    assert [proposal.informed for proposal in made] == [False] * 4 + [True] * (count - 4)


def _child(trials, parents, seed, options):
    sampler = NSGAIISampler(population_size=4, seed=seed, **options)
    study = optuna.create_study(directions=["maximize"] * 2, sampler=sampler)
    study.add_trials(trials)
    for key, numbers in parents.items():
        study._storage.set_study_system_attr(study._study_id, key, numbers)
    trial = study.ask()
    child = {name: trial.suggest_float(name, 0.0, 1.0) for name in "xyz"}
    return child, study._storage.get_study_system_attrs(study._study_id)
