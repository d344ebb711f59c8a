"""The kits that the trainers and optimizers of autorl itself must pass."""

from typing import ClassVar

import pytest

from autorl import InputError, load_space
from autorl.core.types import Config, FrozenMap, TrainerSpec
from autorl.optimizers import make
from autorl.testing import Case, OptimizerConformance, TrainerConformance, simulate
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


class TestDodge(OptimizerConformance):
    optimizer = "dodge"
    options: ClassVar = {"startup": 4}


class TestHierMAB(OptimizerConformance):
    optimizer = "hier_mab"


def played(optimizer, space, objective, proposals, **options):
    """The configurations of a search on a function."""
    simulation = simulate(
        lambda: make(optimizer, load_space(space), horizon=1, **options), objective, proposals
    )
    return [proposal.config for proposal in simulation.proposals]


def test_dodge_leaves_a_choice_whose_scores_are_alike():
    space = {"x": "uniform(0, 1)", "kind": ["dull", "rich"]}

    def objective(number, proposal):
        return proposal.config["x"] if proposal.config["kind"] == "rich" else 0.5

    configs = played("dodge", space, objective, 24, epsilon=0.01)
    assert sum(config["kind"] == "dull" for config in configs) <= 3
    assert max(config["x"] for config in configs if config["kind"] == "rich") > 0.9


def test_hier_mab_changes_one_choice_of_the_best_and_finds_the_best_of_125():
    space = {name: list(range(5)) for name in "abc"}
    configs = played("hier_mab", space, lambda _, p: float(sum(p.config.values())), 40)
    found = [sum(config.values()) for config in configs].index(12)
    for number in range(1, found + 1):
        best = max(configs[:number], key=lambda config: sum(config.values()))
        assert sum(configs[number][name] != best[name] for name in "abc") == 1


def test_an_option_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="expected length, got size"):
        load(TrainerSpec("hallway/q_learning", FrozenMap(size=3)))
