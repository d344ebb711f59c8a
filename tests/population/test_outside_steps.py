"""The loop that steps environments outside, beside Gymnasium's `SyncVectorEnv`."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from population_helpers import make

from autorl.core.types import InputError
from autorl.population import outside
from autorl.population.outside import EpisodeMonitor, SeededEpisodes, Worlds, of_spaces

BOX = partial(gymnasium.spaces.Box, -1e3, 1e3, dtype=np.float32)
N_ENVS = 3


class Drift(gymnasium.Env):
    """Observations in double precision of a space in single, all in the same memory."""

    def __init__(self, size=2, shown=2):
        self.observation_space = BOX((size,))
        self.action_space = gymnasium.spaces.Discrete(3)
        self.memory = np.zeros(shown)
        self.length = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = 0
        self.memory[:] = self.np_random.normal(size=self.memory.shape)
        return self.memory, {"begun": seed}

    def step(self, action):
        self.length += 1
        self.memory += self.np_random.normal(size=self.memory.shape) + 0.1 * action
        ends = self.np_random.random(2) < 0.15
        return self.memory, np.float64(self.memory[0]), ends[0], ends[1], {"length": self.length}


def _worlds(make_env):
    environment = of_spaces("Drift", make_env, BOX((2,)), gymnasium.spaces.Discrete(3))
    config = {"n_steps": 4, "batch_size": 4, "net_width": 4, "n_envs": N_ENVS}
    _, _, state = make("ppo", 3, environment, np.float64, **config)
    return environment, state["member"]


def test_steps_are_those_of_gymnasiums_vector():
    """Observations, rewards, ends and final observations of 200 steps of each of 3 environments."""
    environment, member = _worlds(lambda: EpisodeMonitor(Drift()))
    _, fresh = _worlds(lambda: EpisodeMonitor(Drift()))
    vector = gymnasium.vector.SyncVectorEnv(
        [lambda: SeededEpisodes(environment.make(), lambda: outside.next_seed(fresh))] * N_ENVS,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    worlds = Worlds(environment, member)
    worlds.begin()
    observations, _ = vector.reset()
    assert np.array_equal(member.states, observations)
    generator = np.random.default_rng(0)
    kinds = np.zeros(3)
    for _ in range(200):
        actions = generator.integers(3, size=(N_ENVS, 1)).astype(np.float64)
        step = worlds.step(actions)
        observations, rewards, terminated, truncated, _ = vector.step(actions[:, 0].astype(int))
        assert np.array_equal(member.states, observations)
        assert np.array_equal(step.rewards, rewards)
        assert np.array_equal(step.terminated, terminated)
        assert np.array_equal(step.ended, terminated | truncated)
        assert np.array_equal(step.truncated, np.flatnonzero(truncated & ~terminated))
        assert np.array_equal(step.finals, step.following[step.truncated])
        going = ~step.ended
        assert np.array_equal(step.following[going], observations[going])
        # The last observation of an episode, though its memory has the first of the next.
        assert (step.following[step.ended] != observations[step.ended]).all()
        kinds += [going.sum(), terminated.sum(), len(step.truncated)]
    assert (kinds > 20).all()
    assert member.counts[0] == 200 * N_ENVS
    assert member.counts[2] == kinds[1:].sum()


def test_final_observations_are_not_overwritten():
    environment, member = _worlds(lambda: EpisodeMonitor(Drift()))
    worlds = Worlds(environment, member)
    worlds.begin()
    for _ in range(50):
        before = member.states.copy()
        step = worlds.step(np.zeros((N_ENVS, 1)))
        if step.ended.any():
            break
    ended = np.flatnonzero(step.ended)
    assert len(ended)
    # A step of normal(0, 1): the last observation is near the one before, to the float's rounding.
    assert (np.abs(step.following[ended] - before[ended]) < 5).all()
    assert not np.array_equal(step.following[ended], member.states[ended])


def test_an_observation_of_another_shape_is_an_error():
    environment, member = _worlds(lambda: EpisodeMonitor(Drift(shown=1)))
    with pytest.raises(ValueError, match=r"Drift observes \(1,\), its space has \(2,\)"):
        Worlds(environment, member).begin()


def test_environments_of_one_id_have_the_same_spaces():
    sizes = iter([2, 3, 2])
    environment, member = _worlds(lambda: EpisodeMonitor(Drift(size=next(sizes))))
    with pytest.raises(InputError, match="'Drift' have different spaces"):
        Worlds(environment, member)
