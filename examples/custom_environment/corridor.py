"""An environment of your own: walk to the end of a corridor. Importing this module registers it with Gymnasium."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Reach cell `length`; each step costs 1. Actions: 0 left, 1 right. The wind undoes a step now and then."""

    def __init__(self, length=10, wind=0.1):
        self.length, self.wind = length, wind
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.cell = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self._observation(), {}

    def step(self, action):
        move = 1 if action == 1 else -1
        if self.np_random.random() < self.wind:
            move = -move
        self.cell = int(np.clip(self.cell + move, 0, self.length))
        return self._observation(), -1.0, self.cell == self.length, False, {}

    def _observation(self):
        return np.array([self.cell / self.length], dtype=np.float32)


gym.register("Corridor-v0", entry_point=Corridor, max_episode_steps=60)
