"""Names, options, and what `make` refuses."""

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from refusals import expect_error

from autorl.core.types import Config, Done
from autorl.optimizers import BaseOptimizer, NoOptions, cuts, describe, find, make, names, option
from autorl.optimizers._startup import startup_size
from autorl.optimizers.registry import (
    _flaw,
    is_slow_to_ask,
    named_of_kind,
    resolved_names,
    search_kind,
)
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")


@dataclass(frozen=True)
class Options:
    whole: int = option(3, "a count", minimum=2)
    part: float = option(0.5, "a part", minimum=0.25, maximum=1.0)
    flag: bool = option(True, "a switch")
    maybe: int | None = option(None, "a count or none", minimum=0, maximum=4)
    way: str = option("up", "a way", choices=("up", "down"))
    text: str = option("", "any text")
    free: float = option(0.0, "any number")
    table: Mapping[str, Any] | int = option(1, "a table or a count")
    several: Sequence[int] | None = option(None, "a list")


class Mine(BaseOptimizer[Options]):
    """Is done, as soon as

    it can be.
    """

    Options = Options
    multi_objective = True

    def _ask(self, rng):
        return Done()


class Cut(BaseOptimizer[NoOptions]):
    partial = True

    def _ask(self, rng):
        return Done()


MINE, CUT = (f"{__name__}:{cls}" for cls in ("Mine", "Cut"))


def mine(**options):
    return make(MINE, SPACE, horizon=10, **options)


@pytest.mark.parametrize(
    ("name", "options", "key", "message"),
    [
        ("tpee", {}, "optimizer.name", "did you mean 'tpe'"),
        ("tpe", {"startups": 4}, "optimizer.startups", "did you mean 'startup'"),
        ("random", {"seed": 4}, "optimizer.seed", "the options of random: stop"),
        (CUT, {"size": 3}, "optimizer.size", f"the options of {CUT}: none"),
        ("grid", {"levels": {"no": 3}}, "optimizer.levels", "'no' is not one of x, y, z"),
        ("no.such.module:Class", {}, "optimizer.name", "cannot be imported: ModuleNotFoundError"),
        ("autorl.core.types:Config", {}, "optimizer.name", "is no optimizer: expected a subclass"),
        ("random", {"initial": ({"x": 1.5},)}, "x", "1.5"),
        # What a stopping rule does not take.
        ("tpe", {"stop": "median", "rung": 3}, "optimizer.rung", "did you mean 'rungs'"),
        (MINE, {"stop": "median", "rungs": 1}, "optimizer.rungs", "expected int >= 2, got 1"),
        (MINE, {"stop": "median", "whole": 1}, "optimizer.whole", "expected int >= 2, got 1"),
        (MINE, {"stop": "median", "check": 3}, "optimizer.check", "unknown option"),
        (MINE, {"stop": "medain"}, "optimizer.stop", "no stopping rule 'medain'"),
        (MINE, {"stop": True}, "optimizer.stop", "no stopping rule True"),
        (MINE, {"rungs": 3}, "optimizer.rungs", "unknown option"),
        # Optimizers and problems that a rule cannot be used with.
        ("hyperband", {"stop": "median"}, "optimizer.stop", "it cuts runs itself"),
        ("tpe", {"stop": "median", "n_objectives": 2}, "optimizer.stop", "by one objective"),
        ("cost_aware", {"stop": "median", "n_objectives": 2}, "optimizer.stop", "it cuts runs"),
        (
            CUT,
            {"n_objectives": 2},
            "optimizer.name",
            f"{CUT} has one objective, got 2; use cost_aware, gp, grid, nsga2, optuna, random, sobol, tpe",
        ),
    ],
)
def test_wrong_names_and_options_are_explained(name, options, key, message):
    caught = expect_error("", make, name, SPACE, horizon=10, **options)
    assert caught.key == key
    assert message in caught.message


def test_a_partial_warm_start_is_completed_and_a_repeated_one_dropped():
    optimizer = make("random", SPACE, horizon=10, initial=({"x": 0.1}, {"x": 0.1}, {}))
    assert optimizer.problem.initial == (SPACE.default(), Config({**SPACE.default(), "x": 0.1}))


@pytest.mark.parametrize(("name", "extra"), [("cmaes", "bo"), ("smac", "smac")])
def test_a_missing_package_names_the_extra(monkeypatch, name, extra):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    wanted = rf"^optimizer.name: {name} needs {name}: pip install 'autorl\[{extra}\]'$"
    expect_error(wanted, make, name, SPACE, horizon=10)


def test_optuna_is_not_imported_by_optimizers_that_do_not_use_it():
    code = """
import sys, numpy as np
from autorl.optimizers import make
from autorl.space import load_space
assert "optuna" not in sys.modules
space = load_space({"x": "uniform(0, 1)"})
for name in ("random", "sobol", "grid", "cmaes", "gp"):
    make(name, space, horizon=1).ask(np.random.default_rng(0))
    assert not {"optuna", "torch", "sklearn", "ConfigSpace"} & set(sys.modules), name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("whole", 2), ("whole", 10**9)),
        *(("part", 0.25), ("part", 1.0), ("part", 1), ("part", 0.3)),
        *(("flag", True), ("flag", False)),
        *(("maybe", None), ("maybe", 0), ("maybe", 4)),
        *(("way", "up"), ("way", "down")),
        *(("text", ""), ("text", "down")),
        *(("free", -1e300), ("free", 0), ("free", 7)),
        *(("table", {"a": 1}), ("table", 4), ("table", {})),
        *(("several", [1, 2]), ("several", ()), ("several", None)),
    ],
)
def test_values_that_an_option_may_have(name, value):
    assert getattr(mine(**{name: value}).options, name) == value


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("whole", 1, "int >= 2"),
        ("whole", 2.0, "int >= 2"),
        ("whole", None, "int >= 2"),
        ("part", 0.24, "float in [0.25, 1.0]"),
        ("part", 2, "float in [0.25, 1.0]"),
        ("part", math.nan, "float in [0.25, 1.0]"),
        ("part", False, "float in [0.25, 1.0]"),
        ("flag", 1, "bool"),
        ("flag", None, "bool"),
        ("maybe", -1, "int or null in [0, 4]"),
        ("maybe", 5, "int or null in [0, 4]"),
        ("way", "left", "up or down"),
        ("way", ["up"], "up or down"),
        ("text", 3, "str"),
        ("free", math.inf, "float"),
        ("table", [1], "mapping or int"),
        ("several", {"a": 1}, "list or null"),
    ],
)
def test_values_that_it_may_not_have(name, value, allowed):
    caught = expect_error("", mine, **{name: value})
    assert caught.key == f"optimizer.{name}"
    assert caught.message == f"expected {allowed}, got {value!r}"


# -- descriptions -------------------------------------------------------------------------------------


def test_a_description_is_the_first_paragraph_and_the_options():
    described = describe(MINE)
    assert (described.name, described.summary) == (MINE, "Is done, as soon as")
    assert described.multi_objective
    options = {one.name: one for one in described.options}
    assert (options["part"].default, options["part"].help) == (0.5, "a part")
    assert options["stop"].help == "stop runs that fall behind, at rungs"
    assert options["check"].help.startswith("with stop: learned: every so many-th run")
    assert options["against"].help.startswith("with stop: median: `averages`")
    first = [one.name for one in described.options][:10]
    assert first == [*Options.__dataclass_fields__, "stop"]
    assert describe("tpe").multi_objective
    assert not describe("cmaes").multi_objective
    assert describe(CUT).options == ()


@pytest.mark.parametrize("name", [3, None, "", "TPE", "a:b:c"])
def test_what_is_no_name(name):
    assert expect_error("no optimizer", find, name).key == "optimizer.name"


# -- whose an option is ---------------------------------------------------------------------------------


def test_options_of_the_rule_and_of_the_optimizer_are_told_apart():
    optimizer = mine(whole=5, stop="median", rungs=3, peers=2)
    assert (optimizer.options.rungs, optimizer.options.peers) == (3, 2)
    assert optimizer.inner.options == Options(whole=5)
    assert optimizer.inner.problem is optimizer.problem
    assert mine(stop=None).options == Options()
    assert mine(n_objectives=2).problem.n_objectives == 2


# -- what is resolved when a study file is read -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stop", "resolved"),
    [
        ("random", None, ()),
        ("random", "median", ()),
        ("random", "learned", ("curve_data",)),
        ("transfer", None, ("prior_data",)),
        ("transfer", "learned", ("prior_data", "curve_data")),
        ("hyperband", "learned", ()),  # refused when it is built
        ("random", "medain", ()),
        ("random", ["learned"], ()),
    ],
)
def test_options_that_are_resolved(name, stop, resolved):
    assert resolved_names(name, stop) == resolved


# -- where segments end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        (MINE, {"whole": 4}, (90,)),
        (MINE, {"stop": "median", "rungs": 2, "whole": 4}, (45, 90)),
        (MINE, {"stop": "learned"}, (18, 36, 54, 72, 90)),
        (CUT, {}, (90,)),
        ("random", {"stop": None}, (90,)),
        ("pbt", {"generations": 2}, (45, 90)),
        ("hyperband", {"stop": "median", "eta": 3}, (10, 30, 90)),  # refused when it is built
    ],
)
def test_cuts_are_those_of_the_rule_or_of_the_optimizer(name, options, steps):
    assert cuts(name, 90, **options) == steps


# -- classes of other packages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bare:
    size: int = 3


@dataclass(frozen=True)
class NotData:
    size: object = option(object(), "no data")


@dataclass(frozen=True)
class Unread:
    size: "Nowhere" = option(3, "of a type that is imported for a type checker")  # noqa: F821, RUF009


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        ({}, ""),
        ({"Options": dict}, "needs a frozen dataclass of fields made by `option`"),
        ({"Options": Bare}, "has an option 'size' that is not made by"),
        ({"Options": NotData}, "has an option 'size' that cannot be read as data"),
        ({"Options": Unread}, "has an option 'size' that cannot be read as data"),
        ({"search_kind": "guess"}, "has the search_kind 'guess': expected search or design"),
        ({"search_kind": "phased_design"}, "and is no subclass of Phases"),
        ({"search_kind": "population"}, ""),
    ],
)
def test_what_makes_a_class_unusable(changes, flaw):
    said = _flaw(type("Theirs", (Mine,), changes))
    assert flaw in said
    assert bool(said) is bool(flaw)


def test_kinds_of_search():
    assert [search_kind(name) for name in ("pbt", MINE)] == ["population", "search"]
    assert search_kind("a_module_of_a_user:Optimizer") == "search", "it cannot be read"
    assert named_of_kind("design", "phased_design") == ("grid", "phases", "random", "sobol")
    assert named_of_kind("population") == ("mf_pbt", "pb2", "pbt")


EVERY = 200  # more proposals than any start-up has


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("asha", {"eta": 3}, 3),  # so many must be scored for one to be promoted
        ("bohb", {}, 4),  # the first rung of the first bracket
        ("bohb", {"startup": 3}, 3),
        ("cmaes", {}, 8),  # the default configuration and a population
        ("cost_aware", {}, 10),
        ("de", {}, 10),  # a population of a quarter of the budget
        ("grid", {}, EVERY),
        ("hyperband", {"eta": 3}, 9),
        ("nsga2", {}, 10),
        ("pbt", {}, 30),  # members beside the ten runs that schedules are trained with
        ("pb2", {"population": 5}, 5),
        ("random", {}, EVERY),
        ("rising_bandits", {}, 0),
        ("schedule", {"initial": ({"x": 0.25}, {"x": 0.5})}, 3),
        ("schedule", {"schedule": {"0": {}, "50": {"x": 0.5}}}, 1),
        ("smac", {}, 10),
        ("tpe", {"startup": 6}, 6),
        ("transfer", {}, 4),
        ("transfer", {"startup": 2}, 2),
    ],
)
def test_so_many_proposals_depend_on_no_outcome(name, options, count):
    given = {"budget": 40, **options}
    optimizer = make(name, SPACE, horizon=100, changeable=SPACE.names, **given)
    assert [number for number in range(EVERY) if optimizer.blind(number)] == list(range(count))


# -- start-ups ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "budget", "minimum", "size"),
    [
        (None, math.inf, 1, 10),
        (None, 40.0, 1, 10),
        (None, 39.0, 1, 9),
        (None, 2.0, 2, 2),
        (25, 16.0, 1, 25),
    ],
)
def test_a_start_up_is_ten_proposals_and_at_most_a_quarter_of_the_budget(
    given, budget, minimum, size
):
    assert startup_size(given, budget, minimum) == size


@pytest.mark.parametrize("name", names())
def test_every_optimizer_declares_what_decides_its_configurations(name):
    """By itself or in the base of its family: the default is for classes of users."""
    cls = find(name)
    families = cls.__mro__[: cls.__mro__.index(BaseOptimizer)]
    assert any("search_kind" in vars(family) for family in families)


def test_what_is_slow_to_ask_says_where_its_model_begins():
    slow = [name for name in names() if is_slow_to_ask(name)]
    assert slow == ["cmaes", "gp", "nsga2", "optuna", "smac", "tpe", "transfer"]
    for name in slow:
        optimizer = make(name, SPACE, horizon=60, budget=40)
        assert not optimizer.modelled(0, 0)
        assert optimizer.modelled(1000, 1000)
