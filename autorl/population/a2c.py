"""Advantage actor-critic of one member, in the program of PPO.

Names and defaults are those of Stable-Baselines3's A2C: one update per rollout over all of its
rows, by RMSprop or Adam. Before the first step of an update the ratio of probabilities is 1, so
PPO's loss with an infinite clip range has the gradient of A2C's.

References:
    [Mnih2016] V. Mnih et al. Asynchronous methods for deep reinforcement learning. ICML 2016.
    [Huang2022] S. Huang et al. A2C is a special case of PPO. arXiv:2205.09123.
"""

from __future__ import annotations

import math

import numpy.typing as npt

from autorl.population import ppo
from autorl.population.descent import ADAM, RMSPROP
from autorl.population.engine import Algorithm, Bound, State
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import CONSTANT, Record, Setting, converted
from autorl.population.outside import Worlds

HYPERPARAMETERS = {
    "learning_rate": Setting(7e-4, lower=0.0, scheduled=True),
    "n_steps": Setting(5, lower=1),  # steps of each environment per rollout
    "n_envs": Setting(1, lower=1, change="rebuild"),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "gae_lambda": Setting(1.0, lower=0.0, upper=1.0),
    "ent_coef": Setting(0.0, scheduled=True),
    "vf_coef": Setting(0.5),
    "max_grad_norm": Setting(0.5, lower=0.0),
    "rms_prop_eps": Setting(1e-5, lower=0.0),
    "use_rms_prop": Setting(True, change=None),
    "normalize_advantage": Setting(False),
    "net_width": ppo.HYPERPARAMETERS["net_width"],
    "net_depth": ppo.HYPERPARAMETERS["net_depth"],
    "activation": ppo.HYPERPARAMETERS["activation"],
}


def as_ppo(hp: Record) -> Record:
    """Return the record of PPO that trains as `hp` says."""
    adam_eps = float(ppo.HYPERPARAMETERS["optimizer_eps"].default)
    return converted(
        hp,
        ppo.HYPERPARAMETERS,
        {
            "n_epochs": 1,
            "batch_size": int(hp.n_steps) * int(hp.n_envs),
            "clip_range": math.inf,
            "clip_range_end": math.inf,
            "clip_range_shape": CONSTANT,
            "clip_range_vf": math.inf,
            "target_kl": math.inf,
            "optimizer": RMSPROP if hp.use_rms_prop else ADAM,
            # Adam's is that of the policy's constructor, whatever rms_prop_eps says.
            "optimizer_eps": float(hp.rms_prop_eps) if hp.use_rms_prop else adam_eps,
        },
    )


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0."""
    return ppo.create(environment, as_ppo(hp), key, dtype)


def bind(state: State, environment: Environment, hp: Record) -> Bound:
    """Put agent and rollout memory around the member of `state`."""
    return ppo.bind(state, environment, as_ppo(hp))


def bind_outside(state: State, environment: Environment, hp: Record, worlds: Worlds) -> Bound:
    """Put agent and rollout memory around a member whose environments are outside."""
    return ppo.bind_outside(state, environment, as_ppo(hp), worlds)


ALGORITHM = Algorithm(
    name="a2c",
    settings=HYPERPARAMETERS,
    discrete=True,
    continuous=True,
    stride=ppo.ALGORITHM.stride,
    create=create,
    bind=bind,
    parts=ppo.ALGORITHM.parts,
    bind_outside=bind_outside,
)
