"""Names, options, and what `make` refuses."""

import subprocess
import sys

import pytest

from autorl.core.types import Config, InputError
from autorl.optimizers import BaseOptimizer, describe, make, names
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")


def test_every_name_builds_and_describes_itself():
    for name in names():
        assert isinstance(make(name, SPACE, horizon=100, changeable=SPACE.names), BaseOptimizer)
        description = describe(name)
        assert description.summary.endswith(".")
        assert all(option.help and option.allowed for option in description.options)


@pytest.mark.parametrize(
    ("name", "options", "key", "message"),
    [
        ("tpee", {}, "optimizer.name", "did you mean 'tpe'"),
        ("tpe", {"startups": 4}, "optimizer.startups", "did you mean 'startup'"),
        ("random", {"seed": 4}, "optimizer.seed", "the options of random: stop"),
        ("tpe", {"startup": 0}, "optimizer.startup", "expected int or null >= 1, got 0"),
        (
            "cmaes",
            {"sigma": float("nan")},
            "optimizer.sigma",
            "expected float in [1e-06, 1.0], got nan",
        ),
        ("cmaes", {"population_size": 3}, "optimizer.population_size", "expected int or null >= 4"),
        ("grid", {"levels": {"no": 3}}, "optimizer.levels", "'no' is not one of x, y, z"),
        ("tpe", {"stop": "median", "rung": 3}, "optimizer.rung", "did you mean 'rungs'"),
        ("tpe", {"rungs": 3}, "optimizer.rungs", "unknown option"),
        ("no.such.module:Class", {}, "optimizer.name", "cannot be imported: ModuleNotFoundError"),
        ("autorl.core.types:Config", {}, "optimizer.name", "is no optimizer: expected a subclass"),
    ],
)
def test_wrong_names_and_options_are_explained(name, options, key, message):
    with pytest.raises(InputError) as caught:
        make(name, SPACE, horizon=10, **options)
    assert caught.value.key == key
    assert message in caught.value.message


def test_an_invalid_warm_start_names_its_hyperparameter():
    with pytest.raises(InputError) as caught:
        make("random", SPACE, horizon=10, initial=({"x": 1.5},))
    assert caught.value.key == "x"


def test_a_partial_warm_start_is_completed_and_a_repeated_one_dropped():
    optimizer = make("random", SPACE, horizon=10, initial=({"x": 0.1}, {"x": 0.1}, {}))
    assert optimizer.problem.initial == (SPACE.default(), Config({**SPACE.default(), "x": 0.1}))


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    needed = [("gp", "torch", "bo"), ("cmaes", "cmaes", "bo"), ("smac", "smac", "smac")]
    for name, package, extra in needed:
        wanted = rf"^optimizer.name: {name} needs {package}: pip install 'autorl\[{extra}\]'$"
        with pytest.raises(InputError, match=wanted):
            make(name, SPACE, horizon=10)


def test_optuna_is_not_imported_by_optimizers_that_do_not_use_it():
    code = """
import sys, numpy as np
from autorl.optimizers import make
from autorl.space import load_space
assert "optuna" not in sys.modules
space = load_space({"x": "uniform(0, 1)"})
for name in ("random", "sobol", "grid", "cmaes"):
    make(name, space, horizon=1).ask(np.random.default_rng(0))
    assert not {"optuna", "torch", "sklearn", "ConfigSpace"} & set(sys.modules), name
"""
    subprocess.run([sys.executable, "-c", code], check=True)
