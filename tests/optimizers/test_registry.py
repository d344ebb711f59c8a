"""Names, options, and what `make` refuses."""

import subprocess
import sys

import pytest

from autorl.optimizers import BaseOptimizer, NoOptions, cuts, describe, find, make, names
from autorl.testing.optimizers import space_of
from autorl.types import Config, InputError, Proposal

SPACE = space_of("continuous")


class Always(BaseOptimizer[NoOptions]):
    """The default configuration, again and again."""

    def _ask(self, rng):
        return self._propose(self.problem.space.default(), "again")


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
        ("random", {"seed": 4}, "optimizer.seed", "the options of random are stop"),
        ("tpe", {"startup": 0}, "optimizer.startup", "expected int or null >= 1, got 0"),
        ("tpe", {"startup": 2.5}, "optimizer.startup", "expected int or null >= 1, got 2.5"),
        ("tpe", {"startup": True}, "optimizer.startup", "expected int or null >= 1, got True"),
        ("tpe", {"startup": "10"}, "optimizer.startup", "expected int or null >= 1, got '10'"),
        (
            "cmaes",
            {"sigma": float("nan")},
            "optimizer.sigma",
            "expected float in [1e-06, 1.0], got nan",
        ),
        ("cmaes", {"population_size": 3}, "optimizer.population_size", "expected int or null >= 4"),
        ("grid", {"levels": {"no": 3}}, "optimizer.levels", "'no' is not one of x, y, z"),
        ("grid", {"levels": {"x": 0}}, "optimizer.levels.x", "expected int >= 1, got 0"),
        ("tpe", {"stop": "medain"}, "optimizer.stop", "there is learned or median"),
        ("tpe", {"stop": ["median"]}, "optimizer.stop", "there is learned or median"),
        ("tpe", {"stop": "median", "rung": 3}, "optimizer.rung", "did you mean 'rungs'"),
        ("tpe", {"rungs": 3}, "optimizer.rungs", "unknown option"),
        ("no.such.module:Class", {}, "optimizer.name", "cannot be imported: ModuleNotFoundError"),
        ("autorl.types:Config", {}, "optimizer.name", "is no optimizer: expected a subclass"),
    ],
)
def test_wrong_names_and_options_are_explained(name, options, key, message):
    with pytest.raises(InputError) as caught:
        make(name, SPACE, horizon=10, **options)
    assert caught.value.key == key
    assert message in caught.value.message


def test_objectives_beyond_an_optimizer_are_refused_with_an_alternative():
    with pytest.raises(InputError, match=r"cmaes has one objective, got 2; use .*nsga2"):
        make("cmaes", SPACE, horizon=10, n_objectives=2)
    with pytest.raises(InputError, match="stopping rule ranks runs by one objective"):
        make("tpe", SPACE, horizon=10, n_objectives=2, stop="median")


def test_an_invalid_warm_start_names_its_hyperparameter():
    with pytest.raises(InputError) as caught:
        make("random", SPACE, horizon=10, initial=({"x": 1.5},))
    assert caught.value.key == "x"


def test_a_partial_warm_start_is_completed_and_a_repeated_one_dropped():
    optimizer = make("random", SPACE, horizon=10, initial=({"x": 0.1}, {"x": 0.1}, {}))
    assert optimizer.problem.initial == (SPACE.default(), Config({**SPACE.default(), "x": 0.1}))


def test_an_optimizer_of_ones_own_is_used_by_module_and_class():
    optimizer = make(f"{__name__}:Always", SPACE, horizon=10)
    answer = optimizer.ask(None)
    assert isinstance(answer, Proposal)
    assert (answer.config, answer.until) == (SPACE.default(), 10)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, package in [("gp", "torch"), ("cmaes", "cmaes")]:
        with pytest.raises(
            InputError, match=rf"{name} needs {package}: pip install 'autorl\[bo\]'"
        ):
            make(name, SPACE, horizon=10)


@pytest.mark.parametrize("name", ["random", "sobol", "grid", "cmaes"])
def test_optuna_is_not_imported_by_optimizers_that_do_not_use_it(name):
    code = f"""
import sys, numpy as np
from autorl.optimizers import make
from autorl.space import load_space
assert "optuna" not in sys.modules
space = load_space({{"hyperparameters": {{"x": {{"type": "float", "lower": 0.0, "upper": 1.0}}}}}})
make({name!r}, space, horizon=1).ask(np.random.default_rng(0))
assert not {{"optuna", "torch", "sklearn", "ConfigSpace"}} & set(sys.modules), set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_find_is_what_make_uses():
    assert all(
        type(make(name, SPACE, horizon=100, changeable=SPACE.names)) is find(name)
        for name in names()
    )


def test_a_run_needs_a_step():
    assert make("random", SPACE, horizon=1).problem.horizon == 1
    with pytest.raises(InputError, match="a run needs at least one step, got 0"):
        make("random", SPACE, horizon=0)


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        ("random", {}, (90,)),
        ("random", {"stop": None}, (90,)),
        ("random", {"stop": "median", "rungs": 3}, (30, 60, 90)),
        ("tpe", {"stop": "median", "rungs": 3, "startup": 4}, (30, 60, 90)),
        ("hyperband", {"eta": 3}, (10, 30, 90)),
        ("pbt", {"generations": 2}, (45, 90)),
    ],
)
def test_where_segments_end(name, options, steps):
    assert cuts(name, 90, **options) == steps
