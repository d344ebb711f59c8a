"""The corridor of examples/custom_environment as three numba functions: `population/*` trains on it compiled."""

from numba import njit

from autorl.population import rng
from autorl.population.environments import Environment

LENGTH = 8
WIND = 0.1


@njit
def reset(state, key):
    state[0] = 0.0  # the cell


@njit
def step(state, action, key):
    """Walk left (0) or right (1); the wind undoes a step now and then. Returns (reward, terminated)."""
    move = 1.0 if action[0] == 1.0 else -1.0
    if rng.uniform(key, 0) < WIND:
        move = -move
    state[0] = min(max(state[0] + move, 0.0), LENGTH)
    return -1.0, state[0] == LENGTH


@njit
def observe(state, observation):
    observation[0] = state[0] / LENGTH


CORRIDOR = Environment(
    id="CompiledCorridor",
    state_size=1,
    observation_size=1,
    time_limit=60,
    reset=reset,
    step=step,
    observe=observe,
    n_actions=2,
)
