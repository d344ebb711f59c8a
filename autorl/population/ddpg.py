"""Deep deterministic policy gradient of one member: TD3 without its three additions.

As in Stable-Baselines3 it is `td3` with one critic, an actor and targets that move at every update,
and no noise on the target's actions. It runs in the compiled program of `td3`.

Reference:
    [Lillicrap2016] T. Lillicrap et al. Continuous control with deep reinforcement learning. ICLR
        2016.
"""

from __future__ import annotations

import numpy.typing as npt

from autorl.population import td3
from autorl.population.engine import Algorithm, Bound, State
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Record, converted
from autorl.population.outside import Worlds

_FIXED = {
    "policy_delay": 1,
    "target_policy_noise": 0.0,
    "target_noise_clip": 0.0,
    "n_critics": 1,
}
HYPERPARAMETERS = {
    name: setting for name, setting in td3.HYPERPARAMETERS.items() if name not in _FIXED
}


def as_td3(hp: Record) -> Record:
    """Return the record of TD3 that trains as `hp` says."""
    return converted(hp, td3.HYPERPARAMETERS, _FIXED)


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0."""
    return td3.create(environment, as_td3(hp), key, dtype)


def bind(state: State, environment: Environment, hp: Record) -> Bound:
    """Put networks and scratch memory around the state."""
    return td3.bind(state, environment, as_td3(hp))


def bind_outside(state: State, environment: Environment, hp: Record, worlds: Worlds) -> Bound:
    """Put networks and scratch memory around a member whose environments are outside."""
    return td3.bind_outside(state, environment, as_td3(hp), worlds)


ALGORITHM = Algorithm(
    name="ddpg",
    settings=HYPERPARAMETERS,
    discrete=False,
    continuous=True,
    stride=td3.ALGORITHM.stride,
    create=create,
    bind=bind,
    parts=td3.ALGORITHM.parts,
    bind_outside=bind_outside,
)
