"""The kits that the trainers and optimizers of autorl itself must pass."""

import pytest

from autorl import InputError
from autorl.core.types import Config, FrozenMap, TrainerSpec
from autorl.testing import Case, OptimizerConformance, TrainerConformance
from autorl.trainers import load


class TestQLearning(TrainerConformance):
    case = Case(
        TrainerSpec("hallway/q_learning"),
        configs=(
            Config(learning_rate=0.5, exploration=0.2),
            Config(learning_rate=0.1, exploration=0.2),
        ),
        horizon=256,
        episodes=4,
    )


class TestOnePlusOne(OptimizerConformance):
    optimizer = "one_plus_one"


def test_an_option_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="expected length, got size"):
        load(TrainerSpec("hallway/q_learning", FrozenMap(size=3)))
