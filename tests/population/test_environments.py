from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from numba import njit

from autorl.core.types import InputError
from autorl.population.environments import ENVIRONMENTS, Environment, find_environment

TRANSITIONS = 10_000


def _gymnasium_step(env, state, action):
    inner = env.unwrapped
    inner.state = state.copy()
    if hasattr(inner, "steps_beyond_terminated"):
        inner.steps_beyond_terminated = None
    return inner.step(action)


def _random_state(generator, name, env):
    if name == "CartPole-v1":
        return generator.normal(size=4) * [1.2, 1.0, 0.12, 1.0]
    if name == "Acrobot-v1":
        return generator.uniform(-1, 1, 4) * [np.pi, np.pi, 4 * np.pi, 9 * np.pi]
    if name == "Pendulum-v1":
        return generator.uniform(-1, 1, 2) * [4 * np.pi, 8.0]
    state = generator.uniform([-1.2, -0.07], [0.6, 0.07])
    return state.astype(np.float32).astype(np.float64) if "Continuous" in name else state


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_transitions_are_gymnasiums(name):
    environment, reference = ENVIRONMENTS[name], gymnasium.make(name)
    generator = np.random.default_rng(0)
    key = np.uint64(0)
    observation = np.zeros(environment.observation_size, np.float32)
    ours, theirs = [], []
    for _ in range(TRANSITIONS):
        state = _random_state(generator, name, reference)
        if environment.n_actions:
            action = np.array([generator.integers(environment.n_actions)], np.float64)
            given = int(action[0])
        else:
            action = generator.uniform(*environment.bounds)
            given = action
        seen, *rewarded, _, _ = _gymnasium_step(reference, state, given)
        theirs.append((np.array(reference.unwrapped.state, np.float64), seen, *rewarded))
        rewarded = environment.step(state, action, key)
        environment.observe(state, observation)
        ours.append((state, observation.copy(), *rewarded))
    states, observations, rewards, ends = map(np.array, zip(*ours, strict=True))
    expected = [np.array(column) for column in zip(*theirs, strict=True)]
    np.testing.assert_allclose(states, expected[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(observations, expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rewards, expected[2], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(ends, expected[3])
    assert ends.sum() > 20 or name == "Pendulum-v1"  # terminations were among them


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
