"""Sobol points are a function of (seed, index), skip invalid ones, and fill space evenly."""

import numpy as np
import pytest
from scipy.stats import qmc

from autorl.core.types import InputError
from autorl.optimizers import make
from autorl.space import load_space
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import replayed, simulate

CUBE = space_of("continuous")


def test_points_are_those_of_scipy_in_any_order_of_access():
    reference = qmc.Sobol(3, scramble=True, rng=11).random(64)
    optimizer = make("sobol", CUBE, horizon=1, seed=11)
    for index in [0, 1, 2, 40, 7, 7, 63, 0]:
        np.testing.assert_array_equal(optimizer.point(index), reference[index])


def test_invalid_points_are_skipped_and_the_index_recorded():
    space = space_of("constrained")
    simulation = simulate(lambda: make("sobol", space, horizon=1), lambda i, p: 0.0, 40)
    indices = [proposal.meta["index"] for proposal in simulation.proposals[1:]]
    optimizer = make("sobol", space, horizon=1)
    valid = [
        i for i in range(indices[-1] + 1) if space.is_valid(space.from_unit(optimizer.point(i)))
    ]
    assert indices == valid
    assert len(indices) < indices[-1] + 1
    resumed = replayed(lambda: make("sobol", space, horizon=1), simulation.events[:-1])
    assert resumed.ask(None).meta["index"] > indices[-1]


def test_a_space_with_almost_no_valid_point_is_refused(monkeypatch):
    monkeypatch.setattr("autorl.optimizers.sobol.SKIPS", 50)
    space = load_space(
        {
            "hyperparameters": {
                "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.0},
                "y": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 1.0},
            },
            "constraints": ["y - x >= 0.999"],
        }
    )
    optimizer = make("sobol", space, horizon=1)
    with pytest.raises(InputError, match="use `random`"):
        simulate(lambda: optimizer, lambda i, p: 0.0, 5)
