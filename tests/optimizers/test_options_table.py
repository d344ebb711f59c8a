"""Options of each optimizer in a study file, and their defaults.

A default that changes gives another table to every study that leaves the option out.
"""

import math

import numpy as np
import pytest

from autorl.core.types import Proposed
from autorl.optimizers import describe, find, make
from autorl.optimizers._startup import startup_over, startup_size
from autorl.optimizers.registry import REGISTRY
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")
POSITIVE = "int >= 1"
PART = "float in [0.0, 1.0]"

BRACKETS = {"eta": (2, "int >= 2"), "rungs": (3, POSITIVE), "ahead": (1, "int >= 0")}
COUNTED = {"startup": (None, "int or null >= 1")}
EVOLUTION = {"scale": (0.5, "float in [0.0, 2.0]"), "crossover": (0.5, PART)}
DENSITY = {"candidates": (24, POSITIVE), "most_results": (1000, "int or null >= 250")}
POPULATION = {
    "population": (None, "int or null >= 2"),
    "generations": (10, "int >= 2"),
    "selection": ("truncation", "truncation or tournament"),
    "quantile": (0.25, "float in [0.0, 0.5]"),
    "explore": ("step", "step or factor"),
    "step": (0.2, PART),
    "factor": (1.2, "float in [1.0, 1.99]"),
    "resample": (0.25, PART),
    "ready": (0.5, PART),
    "retrain": (None, "int or null >= 0"),
    "synchronous": (True, "bool"),
    "frequencies": (1, POSITIVE),
    "slower": (2, "int >= 2"),
}
STOP = {
    "stop": (None, "null or learned or median"),
    "rungs": (5, "int >= 2"),
    "grace": (1, "int >= 0"),
    "peers": (4, POSITIVE),
    "against": ("averages", "averages or scores"),
    "threshold": (0.05, "float in [0.0, 0.5]"),
    "references": (16, "int >= 2"),
    "check": (10, "int >= 0"),
    "curves": ("auto", "str or list"),
    "curve_data": (None, "mapping or null"),
}
OPTIONS = {
    "asha": {"eta": (2, "int >= 2"), "rungs": (3, POSITIVE)},
    "bohb": BRACKETS
    | {"startup": (None, "int or null >= 1"), **DENSITY}
    | {"random_fraction": (0.2, PART)},
    "cmaes": {
        "start": ("middle", "middle or default"),
        "sigma": (0.25, "float in [1e-06, 1.0]"),
        "population_size": (None, "int or null >= 4"),
        "seed": (0, "int >= 0"),
    }
    | STOP,
    "cost_aware": {
        "lengths": (5, POSITIVE),
        "shortest": (0.2, "float in [0.001, 1.0]"),
        **COUNTED,
        "startup": (None, "int or null >= 2"),
        "candidates": (128, POSITIVE),
        "radius": (0.2, "float in [0.01, 1.0]"),
        "refit": (8, POSITIVE),
    },
    "de": {"population_size": (None, "int or null >= 4"), **EVOLUTION} | STOP,
    "dehb": BRACKETS | EVOLUTION,
    "gp": COUNTED | STOP,
    "grid": {"levels": (5, "int or mapping >= 1")} | STOP,
    "hyperband": BRACKETS,
    "nsga2": {
        "population_size": (None, "int or null >= 2"),
        "crossover_prob": (0.9, PART),
        "swapping_prob": (0.5, PART),
    }
    | STOP,
    "pb2": POPULATION | {"window": (200, "int >= 8"), "refit": (1, POSITIVE)},
    "pbt": POPULATION,
    "phases": {
        "phases": (3, "int >= 2"),
        "configurations": (None, "int or null >= 1"),
        "seed": (0, "int >= 0"),
    },
    "random": STOP,
    "rising_bandits": {
        "inner": ("tpe", "str"),
        "inner_options": (None, "mapping or null"),
        "split": (None, "str or null"),
        "window": (7.0, "float >= 1.0"),
    },
    "schedule": {"schedule": (None, "mapping or null")},
    "smac": {
        "startup": (None, "int or null >= 1"),
        "model": ("forest", "forest or gp"),
        "refit": (None, "int or null >= 1"),
        "seed": (0, "int >= 0"),
    }
    | STOP,
    "sobol": {"seed": (0, "int >= 0")} | STOP,
    "successive_halving": BRACKETS,
    "tpe": COUNTED | DENSITY | STOP,
    "transfer": {
        "prior": ("auto", "str or list"),
        "prior_data": (None, "mapping or null"),
        "beliefs": (None, "mapping or null"),
        "startup": (None, "int or null >= 1"),
        "inertia": (48, "int >= 0"),
        "decay": (8.0, "float in [0.0, 16.0]"),
        "agreement": (1.0, "float or null in [0.0, 4.0]"),
        "explore": (0.5, PART),
        "spacing": (1.0, "float in [0.0, 4.0]"),
        "leave_out": (0.25, "float in [0.0, 0.9]"),
        "candidates": (128, POSITIVE),
    }
    | STOP,
}


def test_the_table_has_every_optimizer():
    assert sorted(OPTIONS) == sorted(REGISTRY)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_options_their_defaults_and_what_they_may_be(name):
    described = {option.name: (option.default, option.allowed) for option in describe(name).options}
    assert described == OPTIONS[name]
    assert "stop" in described or find(name).partial


@pytest.mark.parametrize(
    ("trait", "those"),
    [
        ("multi_objective", {"cost_aware", "gp", "grid", "nsga2", "random", "sobol", "tpe"}),
        ("population_based", {"pb2", "pbt", "phases"}),
        ("lag_free", {"grid", "pb2", "pbt", "phases", "random", "schedule", "sobol"}),
        (
            "learns",
            {"bohb", "cmaes", "cost_aware", "de", "dehb", "gp", "nsga2", "pb2", "pbt"}
            | {"rising_bandits", "smac", "tpe", "transfer"},
        ),
        (
            "partial",
            {"asha", "bohb", "cost_aware", "dehb", "hyperband", "pb2", "pbt", "phases"}
            | {"rising_bandits", "schedule", "successive_halving"},
        ),
    ],
)
def test_what_optimizers_declare(trait, those):
    assert {name for name in REGISTRY if getattr(find(name), trait)} == those


def built(name, **options):
    return make(name, SPACE, horizon=100, changeable=SPACE.names, **{"budget": 40, **options})


EVERY = 200  # more proposals than any start-up has


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("asha", {"eta": 3}, 3),  # so many must be scored for one to be promoted
        ("asha", {"rungs": 1}, EVERY),
        ("bohb", {}, 4),  # the first rung of the first bracket
        ("bohb", {"startup": 3}, 3),
        ("cmaes", {}, 8),  # the default configuration and a population
        ("cost_aware", {}, 10),
        ("de", {}, 10),  # a population of a quarter of the budget
        ("dehb", {}, 4),
        ("gp", {}, 10),
        ("grid", {}, EVERY),
        ("hyperband", {"eta": 3}, 9),
        ("nsga2", {}, 10),
        ("pbt", {}, 30),  # members beside the ten runs that schedules are trained with
        ("pb2", {"population": 5}, 5),
        ("phases", {}, 40),
        ("random", {}, EVERY),
        ("random", {"stop": "median"}, 0),
        ("rising_bandits", {}, 0),
        ("schedule", {}, 1),
        ("schedule", {"initial": ({"x": 0.25}, {"x": 0.5})}, 3),
        ("schedule", {"schedule": {"0": {}, "50": {"x": 0.5}}}, 1),
        ("smac", {}, 10),
        ("sobol", {}, EVERY),
        ("successive_halving", {"eta": 3}, 9),
        ("tpe", {"startup": 6}, 6),
        ("transfer", {}, 10),
        ("transfer", {"startup": 2}, 4),
    ],
)
def test_so_many_proposals_depend_on_no_outcome(name, options, count):
    optimizer = built(name, **options)
    assert [number for number in range(EVERY) if optimizer.blind(number)] == list(range(count))


def test_random_search_has_no_model_and_says_so():
    optimizer = built("random")
    assert not optimizer.modelled(EVERY, EVERY)
    for number in range(2):
        proposal = optimizer.ask(np.random.default_rng(number))
        assert (proposal.informed, optimizer.problem.weigh_seeds) == (False, False)
        optimizer.observe(Proposed(number, proposal))
    assert optimizer.planned_configurations() is None


# -- start-ups ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "budget", "minimum", "size"),
    [
        (None, math.inf, 1, 10),
        (None, 44.0, 1, 10),
        (None, 40.0, 1, 10),
        (None, 39.0, 1, 9),
        (None, 16.0, 1, 4),
        (None, 2.0, 1, 1),
        (None, 2.0, 2, 2),
        (25, 16.0, 1, 25),
    ],
)
def test_a_start_up_is_ten_proposals_and_at_most_a_quarter_of_the_budget(
    given, budget, minimum, size
):
    assert startup_size(given, budget, minimum) == size


def test_without_a_minimum_one_proposal_is_a_start_up():
    assert startup_size(None, 0.5) == 1


@pytest.mark.parametrize(
    ("proposed", "scored", "over"), [(4, 1, True), (4, 0, False), (3, 3, False)]
)
def test_a_start_up_of_four_is_over(proposed, scored, over):
    assert startup_over(4, proposed, scored) is over


def test_a_model_may_need_several_scores():
    assert not startup_over(4, 9, 1, fewest=2)
    assert startup_over(4, 9, 2, fewest=2)
