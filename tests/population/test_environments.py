from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from numba import njit

from autorl.core.types import InputError
from autorl.population.environments import ENVIRONMENTS, Environment, find_environment


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_spaces_time_limit_and_first_states_are_gymnasiums(name):
    environment, reference = ENVIRONMENTS[name], gymnasium.make(name)
    assert reference.spec.max_episode_steps == environment.time_limit
    assert reference.observation_space.shape == (environment.observation_size,)
    if environment.n_actions:
        assert reference.action_space.n == environment.n_actions
    else:
        np.testing.assert_allclose(
            [reference.action_space.low, reference.action_space.high], environment.bounds
        )
    ours, theirs = np.zeros((4000, environment.state_size)), []
    for i in range(len(ours)):
        environment.reset(ours[i], np.uint64(i))
        reference.reset(seed=i)
        theirs.append(np.array(reference.unwrapped.state, np.float64))
    width = np.ptp(theirs, axis=0)
    np.testing.assert_allclose(ours.mean(axis=0), np.mean(theirs, axis=0), atol=0.03 * width.max())
    np.testing.assert_allclose(ours.std(axis=0), np.std(theirs, axis=0), rtol=0.05)
    np.testing.assert_allclose(ours.min(axis=0), np.min(theirs, axis=0), atol=0.01 * width.max())


def test_unknown_environments_are_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="CartPole-v1"):
        find_environment("CartPole-v2")
    with pytest.raises(InputError, match="cannot load"):
        find_environment("no_such_module:X")
    with pytest.raises(InputError, match="not an autorl"):
        find_environment("math:pi")


@njit
def _reset(state, key):
    state[0] = 0.0


@njit
def _step(state, action, key):
    state[0] += action[0]
    return state[0], state[0] >= 3.0


@njit
def _observe(state, observation):
    observation[0] = state[0]


COUNTER = Environment("Counter", 1, 1, 10, _reset, _step, _observe, n_actions=2)
BROKEN = Environment("Broken", 1, 1, 10, _reset, _observe, _observe, n_actions=2)


def test_a_users_environment_is_found_and_checked():
    assert find_environment(f"{__name__}:COUNTER") is COUNTER
    with pytest.raises(InputError, match="step"):
        find_environment(f"{__name__}:BROKEN")
