from __future__ import annotations

import math

import numpy as np
from population_helpers import CARTPOLE, SMALL, make

from autorl.population.hyperparameters import CONSTANT, scheduled


def test_a_constant_may_be_infinite():
    for progress in (0.0, 0.3, 1.0):
        assert scheduled(math.inf, math.inf, CONSTANT, progress) == math.inf


def test_an_infinite_clip_range_clips_nothing():
    parameters = []
    for clip_range in (
        math.inf,
        1e30,
    ):  # no ratio of probabilities comes near it in single precision
        algorithm, hp, state = make("ppo", 3, **SMALL, clip_range=clip_range, learning_rate=0.1)
        algorithm.bind(state, CARTPOLE, hp).advance(2)
        parameters.append(state["member"].parameters)
    np.testing.assert_array_equal(*parameters)
    assert np.isfinite(parameters[0]).all()
