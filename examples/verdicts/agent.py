"""An epsilon-greedy bandit: what the other files of this folder train."""

import random


def train(epsilon: float, seed: int) -> float:
    """Return the mean reward of 200 pulls."""
    draws = random.Random(seed)
    arms = [draws.gauss(0, 1) for _ in range(5)]
    values, counts, total = [0.0] * 5, [0] * 5, 0.0
    for _ in range(200):
        arm = draws.randrange(5) if draws.random() < epsilon else values.index(max(values))
        reward = draws.gauss(arms[arm], 1)
        counts[arm] += 1
        values[arm] += (reward - values[arm]) / counts[arm]
        total += reward
    return total / 200
