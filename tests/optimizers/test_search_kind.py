"""Declarations of optimizers, which other rooms ask instead of knowing names."""

import pytest

from autorl.optimizers import BaseOptimizer, find, make, names
from autorl.optimizers.registry import is_slow_to_ask, named_of_kind, search_kind
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")
HORIZON = 60


@pytest.mark.parametrize("name", names())
def test_every_optimizer_declares_what_decides_its_configurations(name):
    """By itself or in the base of its family: the default is for classes of users."""
    cls = find(name)
    families = cls.__mro__[: cls.__mro__.index(BaseOptimizer)]
    assert any("search_kind" in vars(family) for family in families)


def test_the_kinds_that_a_landscape_is_built_with():
    assert named_of_kind("design", "phased_design") == ("grid", "phases", "random", "sobol")
    assert named_of_kind("population") == ("pb2", "pbt")
    assert named_of_kind("schedule") == ("schedule",)


@pytest.mark.parametrize("name", named_of_kind("design", "phased_design"))
def test_scores_do_not_change_the_configurations_of_a_design(name):
    def optimizer():
        return make(name, SPACE, horizon=HORIZON, budget=8, changeable=SPACE.names)

    rising, falling = (
        simulate(optimizer, lambda number, proposal, sign=sign: sign * float(number), 16)
        for sign in (1, -1)
    )
    configurations = [proposal.config for proposal in rising.proposals]
    assert len(configurations) > 4
    assert configurations == [proposal.config for proposal in falling.proposals]


def test_what_is_slow_to_ask_says_where_its_model_begins():
    slow = [name for name in names() if is_slow_to_ask(name)]
    assert slow == ["cmaes", "gp", "nsga2", "smac", "tpe", "transfer"]
    for name in slow:
        optimizer = make(name, SPACE, horizon=HORIZON, budget=40)
        assert not optimizer.modelled(0, 0)
        assert optimizer.modelled(1000, 1000)


def test_a_class_that_cannot_be_read_is_taken_for_a_search():
    assert search_kind("a_module_of_a_user:Optimizer") == "search"
