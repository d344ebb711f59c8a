"""A game of PettingZoo's parallel interface: agents on a line are to meet, wherever."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv


class Meeting(ParallelEnv):
    """All step at once, left, not at all or right; all lose what they are apart.

    Each sees where it stands and how far away the others are, all in parts of the line.
    """

    metadata: ClassVar = {"name": "meeting_v0", "render_modes": []}

    def __init__(self, agents=3, cells=11, max_steps=20):
        self.possible_agents = [f"agent_{number}" for number in range(agents)]
        self.agents = []
        self.cells = cells
        self.max_steps = max_steps
        self.render_mode = None
        self._observations = gym.spaces.Box(-1.0, 1.0, (agents,), np.float32)
        self._actions = gym.spaces.Discrete(3)

    def observation_space(self, agent):
        return self._observations

    def action_space(self, agent):
        return self._actions

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "_random"):
            self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._places = self._random.integers(0, self.cells, len(self.agents))
        self._left = self.max_steps
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        moves = np.array([actions[agent] - 1 for agent in self.agents])
        self._places = np.clip(self._places + moves, 0, self.cells - 1)
        self._left -= 1
        apart = float(np.ptp(self._places)) / (self.cells - 1)
        agents, over = self.agents, self._left == 0
        result = (
            self._seen(),
            dict.fromkeys(agents, -apart),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )
        if over:
            self.agents = []
        return result

    def _seen(self):
        scale = self.cells - 1
        seen = {}
        for number, agent in enumerate(self.agents):
            own = self._places[number]
            others = np.delete(self._places, number) - own
            seen[agent] = np.array([own / scale, *(others / scale)], np.float32)
        return seen


def parallel_env(**kwargs):
    return Meeting(**kwargs)
