"""Deep deterministic policy gradient of one member: TD3 without its three additions.

As in Stable-Baselines3 it is `td3` with one critic, an actor and targets that move at every update,
and no noise on the target's actions. It runs in the compiled program of `td3`.

Reference:
    [Lillicrap2016] T. Lillicrap et al. Continuous control with deep reinforcement learning. ICLR
        2016.
"""

from __future__ import annotations

from autorl.population import td3
from autorl.population.engine import special_case
from autorl.population.hyperparameters import Record, converted, of_case


def as_td3(hp: Record) -> Record:
    """Return the record of TD3 that trains as `hp` says."""
    return converted(hp, td3.HYPERPARAMETERS)


ALGORITHM = special_case("ddpg", td3.ALGORITHM, as_td3, of_case(td3.HYPERPARAMETERS))
