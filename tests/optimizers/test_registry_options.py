"""Names and options of optimizers: what a value may be, whose an option is, what is refused and where."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from autorl.core.types import Done, InputError
from autorl.optimizers import BaseOptimizer, NoOptions, cuts, describe, find, make, names, option
from autorl.optimizers.base import Surroundings
from autorl.optimizers.median_stop import MedianStop
from autorl.optimizers.registry import (
    DEFAULT,
    GROUP,
    REGISTRY,
    STOPPING,
    _flaw,
    build,
    find_stopping,
    named_of_kind,
    option_names,
    resolved_names,
    resolved_options,
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
        ("whole", True, "int >= 2"),
        ("whole", None, "int >= 2"),
        ("whole", "3", "int >= 2"),
        ("part", 0.24, "float in [0.25, 1.0]"),
        ("part", 1.01, "float in [0.25, 1.0]"),
        ("part", 2, "float in [0.25, 1.0]"),
        ("part", math.nan, "float in [0.25, 1.0]"),
        ("part", False, "float in [0.25, 1.0]"),
        ("flag", 1, "bool"),
        ("flag", "true", "bool"),
        ("flag", None, "bool"),
        ("maybe", -1, "int or null in [0, 4]"),
        ("maybe", 5, "int or null in [0, 4]"),
        ("maybe", 1.5, "int or null in [0, 4]"),
        ("way", "left", "up or down"),
        ("way", 3, "up or down"),
        ("way", ["up"], "up or down"),
        ("text", 3, "str"),
        ("text", None, "str"),
        ("free", math.inf, "float"),
        ("free", -math.inf, "float"),
        ("table", [1], "mapping or int"),
        ("table", 1.5, "mapping or int"),
        ("several", {"a": 1}, "list or null"),
        ("several", 3, "list or null"),
    ],
)
def test_values_that_it_may_not_have(name, value, allowed):
    with pytest.raises(InputError) as caught:
        mine(**{name: value})
    assert caught.value.key == f"optimizer.{name}"
    assert caught.value.message == f"expected {allowed}, got {value!r}"


def test_what_is_left_out_has_its_default():
    assert mine(whole=4).options == Options(whole=4)


def test_options_that_there_are_none_of():
    with pytest.raises(InputError, match=f"the options of {CUT}: none") as caught:
        make(CUT, SPACE, horizon=10, size=3)
    assert caught.value.key == "optimizer.size"
    with pytest.raises(InputError, match="the options of random: stop"):
        make("random", SPACE, horizon=10, size=3)


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


def test_names_are_sorted_and_the_default_is_one():
    assert list(names()) == sorted(names())
    assert set(REGISTRY) <= set(names())
    assert (DEFAULT, GROUP) == ("tpe", "autorl.optimizers")
    assert set(STOPPING) == {"learned", "median"}
    assert find_stopping("median") is MedianStop


@pytest.mark.parametrize("name", [3, None, "", "TPE", "a:b:c"])
def test_what_is_no_name(name):
    with pytest.raises(InputError, match="no optimizer") as caught:
        find(name)
    assert caught.value.key == "optimizer.name"


# -- whose an option is ---------------------------------------------------------------------------------


def test_options_of_the_rule_and_of_the_optimizer_are_told_apart():
    optimizer = mine(whole=5, stop="median", rungs=3, peers=2)
    assert (optimizer.options.rungs, optimizer.options.peers) == (3, 2)
    assert optimizer.inner.options == Options(whole=5)
    assert optimizer.inner.problem is optimizer.problem
    assert mine(stop=None).options == Options()


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({"stop": "median", "rungs": 1}, "optimizer.rungs", "expected int >= 2, got 1"),
        ({"stop": "median", "whole": 1}, "optimizer.whole", "expected int >= 2, got 1"),
        ({"stop": "median", "check": 3}, "optimizer.check", "unknown option"),
        ({"stop": "medain"}, "optimizer.stop", "no stopping rule 'medain'"),
        ({"stop": True}, "optimizer.stop", "no stopping rule True"),
        ({"rungs": 3}, "optimizer.rungs", "unknown option"),
    ],
)
def test_what_a_rule_does_not_take(options, key, message):
    with pytest.raises(InputError) as caught:
        mine(**options)
    assert caught.value.key == key
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "objectives", "why"),
    [
        ("hyperband", 1, "hyperband cannot be used with `stop`: it cuts runs itself"),
        ("tpe", 2, "tpe cannot be used with `stop`: a stopping rule ranks runs by one objective"),
        ("cost_aware", 2, "cost_aware cannot be used with `stop`: it cuts runs itself"),
    ],
)
def test_where_a_rule_cannot_be_used(name, objectives, why):
    with pytest.raises(InputError) as caught:
        make(name, SPACE, horizon=10, n_objectives=objectives, stop="median")
    assert (caught.value.key, caught.value.message) == ("optimizer.stop", why)


def test_several_objectives_need_an_optimizer_of_several():
    assert mine(n_objectives=2).problem.n_objectives == 2
    with pytest.raises(InputError) as caught:
        make(CUT, SPACE, horizon=10, n_objectives=2)
    able = "cost_aware, gp, grid, nsga2, random, sobol, tpe"
    assert caught.value.message == f"{CUT} has one objective, got 2; use {able}"
    assert caught.value.key == "optimizer.name"


def test_what_make_knows_of_a_problem():
    problem = mine().problem
    assert (problem.budget, problem.n_objectives, problem.changeable) == (math.inf, 1, frozenset())
    assert (problem.horizon, problem.initial) == (10, (SPACE.default(),))
    with pytest.raises(InputError) as caught:
        make(MINE, SPACE, horizon=0)
    assert caught.value.key == "fidelity.steps"


def test_build_takes_an_option_of_any_name():
    problem = mine().problem
    assert build(MINE, problem, {"whole": 7, "stop": None}).options.whole == 7
    with pytest.raises(InputError, match="unknown option"):
        build(MINE, problem, {"space": 7})


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


def test_both_an_optimizer_and_its_rule_resolve_their_options(monkeypatch):
    order = []

    def noting(who):
        def resolved(options, surroundings):
            order.append((who, surroundings))
            return {**options, who: len(options)}

        return resolved

    monkeypatch.setattr(Mine, "resolved_options", noting("inside"))
    monkeypatch.setattr(MedianStop, "resolved_options", noting("rule"))
    around = Surroundings(SPACE)
    made = resolved_options(MINE, {"stop": "median"}, around)
    assert made == {"stop": "median", "inside": 1, "rule": 2}
    assert order == [("inside", around), ("rule", around)]
    assert resolved_options(MINE, {}, around) == {"inside": 0}


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


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({"stop": "medain"}, "optimizer.stop", "no stopping rule 'medain'; there is learned or"),
        ({"stop": ["median"]}, "optimizer.stop", "no stopping rule ['median']"),
        ({"stop": "median", "rungs": 1}, "optimizer.rungs", "expected int >= 2, got 1"),
        ({"whole": 1}, "optimizer.whole", "expected int >= 2, got 1"),
    ],
)
def test_wrong_options_of_cuts_are_explained(options, key, message):
    with pytest.raises(InputError) as caught:
        cuts(MINE, 90, **options)
    assert caught.value.key == key
    assert message in caught.value.message


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


def test_a_subclass_of_phases_may_be_a_phased_design():
    assert _flaw(type("Theirs", (find("phases"),), {})) == ""


def test_defaults_of_all_options_can_be_written_into_a_study_file():
    for cls in [*map(find, REGISTRY), *map(find_stopping, STOPPING)]:
        assert _flaw(cls) == ""
        assert json.dumps({name: getattr(cls.Options(), name) for name in option_names(cls)})


def test_kinds_of_search():
    assert (search_kind("pbt"), search_kind(MINE), search_kind("sobol")) == (
        "population",
        "search",
        "design",
    )
    assert named_of_kind() == ()
    assert named_of_kind("phased_design") == ("phases",)
