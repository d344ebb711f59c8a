"""Advantage actor-critic of one member, in the program of PPO.

Names and defaults are those of Stable-Baselines3's A2C: one update per rollout over all of its
rows, by RMSprop or Adam. Before the first step of an update the ratio of probabilities is 1, so
PPO's loss with an infinite clip range has the gradient of A2C's.

References:
    [Mnih2016] V. Mnih et al. Asynchronous methods for deep reinforcement learning. ICML 2016.
    [Huang2022] S. Huang et al. A2C is a special case of PPO. arXiv:2205.09123.
"""

from __future__ import annotations

from autorl.population import ppo
from autorl.population.descent import RMSPROP
from autorl.population.engine import special_case
from autorl.population.hyperparameters import Record, Setting, converted, of_case

OWN = {"rms_prop_eps": Setting(1e-5, lower=0.0), "use_rms_prop": Setting(True, change=None)}


def as_ppo(hp: Record) -> Record:
    """Return the record of PPO that trains as `hp` says."""
    # Adam's epsilon is that of the policy's constructor, whatever rms_prop_eps says.
    of_rms_prop = {"optimizer": RMSPROP, "optimizer_eps": float(hp.rms_prop_eps)}
    return converted(hp, ppo.HYPERPARAMETERS, of_rms_prop if hp.use_rms_prop else {})


ALGORITHM = special_case("a2c", ppo.ALGORITHM, as_ppo, {**of_case(ppo.HYPERPARAMETERS), **OWN})
