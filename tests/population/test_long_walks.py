"""100,000 random steps of each native task of Gymnasium's own, in episodes, against the original."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from autorl.population.environments import ENVIRONMENTS

STEPS = 100_000
# An action is drawn anew after about so many steps: a car that trembles never leaves its valley.
HELD = {"MountainCar-v0": 30, "MountainCarContinuous-v0": 30}


@pytest.mark.slow
@pytest.mark.cpu_seconds(300)
@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_100_000_steps_are_those_of_gymnasium(name):
    """The original takes the engine's state before each step: what rounds otherwise does not add up."""
    environment = ENVIRONMENTS[name]
    reference = gymnasium.make(name, disable_env_checker=True)
    inner = reference.unwrapped
    generator = np.random.default_rng(0)
    state = environment.states(1)[0]
    observation = np.zeros(environment.observation_size, np.float32)
    action = np.zeros(environment.action_size)
    rows = []
    endings = []
    episodes = 0
    length = 0
    for step in range(STEPS):
        if length == 0:
            reference.reset(seed=episodes)
            state[:] = inner.state
            episodes += 1
        inner.state = state.copy()
        if generator.random() < 1 / HELD.get(name, 1):
            action[:] = (
                generator.integers(environment.n_actions)
                if environment.n_actions
                else generator.uniform(*environment.bounds)
            )
        given = int(action[0]) if environment.n_actions else action.copy()
        seen, reward, over, limited, _ = reference.step(given)
        gained, terminated = environment.step(state, action, np.uint64(step))
        environment.observe(state, observation)
        length += 1
        truncated = not terminated and length >= environment.time_limit
        # At the limit a terminal state is terminal here, where Gymnasium says both.
        endings.append((terminated, truncated, bool(over), bool(limited) and not over))
        rows.append([*observation, gained, *seen, reward])
        if terminated or truncated:
            length = 0
    ended = np.array(endings)
    assert np.array_equal(ended[:, :2], ended[:, 2:])
    assert ended[:, :2].sum() == episodes - (length > 0)
    assert ended[:, 1].any() or name == "CartPole-v1"  # random actions fall before its limit
    assert ended[:, 0].any() or name == "Pendulum-v1"
    numbers = np.array(rows).reshape(STEPS, 2, -1)
    np.testing.assert_allclose(numbers[:, 0, :-1], numbers[:, 1, :-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(numbers[:, 0, -1], numbers[:, 1, -1], rtol=1e-6, atol=1e-9)
