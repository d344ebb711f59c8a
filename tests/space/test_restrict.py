"""A restricted space equals the part it stands for."""

import numpy as np
import pytest
from refusals import expect_error

from autorl.space import load_space, read_space
from autorl.space.algorithms import compile_algorithms
from autorl.space.restrict import restrict, splitting

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
NESTED = {
    "hyperparameters": {
        "kind": {"type": "categorical", "choices": ["a", "b", "it's"]},
        "x": UNIT,
        "mode": {"type": "categorical", "choices": ["u", "v", [1, 2]]},
        "depth": {"type": "int", "lower": 1, "upper": 9},
        "v.rate": UNIT,
        "either": UNIT,
        "flag": {"type": "categorical", "choices": [True, False], "default": False},
        "flagged": UNIT,
    },
    "conditions": {
        "mode": "kind in ['a', \"it's\"]",
        "depth": "kind == 'b' or x > 0.5",
        "v.rate": "mode in ['v', [1, 2]] and kind != 'b'",
        "either": "kind == 'b' and depth >= 3 or mode == 'u'",
        "flagged": "flag == true",
    },
    "forbidden": [
        {"kind": "a", "flag": True},
        {"mode": "u", "depth": [1, 2]},
        {"kind": ["b", "it's"], "depth": 9},
    ],
    "constraints": ["x + flagged <= 1.5"],
}


@pytest.mark.parametrize("value", ["a", "b", "it's"])
def test_its_configurations_are_those_with_the_value(value):
    space = load_space(NESTED)
    part = restrict(space, "kind", value)
    assert "kind" not in part.names
    rng = np.random.default_rng(0)
    for _ in range(200):
        config = part.sample(rng)
        assert space.is_valid({"kind": value, **config})
    for _ in range(400):
        config = space.sample(rng)
        if config["kind"] == value:
            assert part.is_valid({name: item for name, item in config.items() if name != "kind"})


def test_what_is_never_active_is_gone():
    space = load_space(NESTED)
    assert set(restrict(space, "kind", "b").names) == {"x", "depth", "either", "flag", "flagged"}
    assert "v.rate" in restrict(space, "kind", "a").names


def test_an_algorithm_of_a_compiled_space_is_its_own_space_with_prefixes():
    spaces = {"ppo": load_space(NESTED), "dqn": load_space({"hyperparameters": {"lr": UNIT}})}
    whole = compile_algorithms(spaces)
    assert splitting(whole) == "algorithm"
    assert restrict(whole, "algorithm", "dqn").names == ("dqn.lr",)
    part = restrict(whole, "algorithm", "ppo")
    assert part.names == tuple(f"ppo.{name}" for name in spaces["ppo"].names)
    rng = np.random.default_rng(1)
    for _ in range(100):
        config = spaces["ppo"].sample(rng)
        assert part.is_valid({f"ppo.{name}": value for name, value in config.items()})


def test_which_hyperparameter_splits_a_space():
    space = load_space(NESTED)
    assert splitting(space) == "kind"
    assert splitting(space, "flag") == "flag"
    assert splitting(load_space({"hyperparameters": {"x": UNIT}})) is None
    expect_error("unconditional categorical hyperparameter", splitting, space, "mode")
    constrained = {**NESTED, "constraints": ["not (kind == 'a' and x > 0.5)"]}
    assert splitting(load_space(constrained)) == "flag", "a constraint names `kind`"


def test_defaults_are_repaired_where_they_break_a_rule():
    space = load_space({**NESTED, "forbidden": [{"kind": "b", "flag": False}]})
    assert restrict(space, "kind", "a").default()["flag"] is False
    assert restrict(space, "kind", "b").default()["flag"] is True


def test_a_value_that_is_forbidden_altogether_is_no_space():
    space = load_space(
        {"hyperparameters": {**NESTED["hyperparameters"]}, "forbidden": [{"kind": "b"}]}
    )
    expect_error("forbidden altogether", restrict, space, "kind", "b")
    expect_error("nothing is left", restrict, load_space({"kind": [1, 2]}), "kind", 1)


def test_a_condition_on_null_can_be_read_back():
    definition = {
        "hyperparameters": {"kind": ["a", "b"], "clip": [None, 0.1], "x": UNIT},
        "conditions": {"x": "kind == a and clip in [null, 0.1]"},
    }
    part = restrict(load_space(definition), "kind", "a")
    assert part.conditions["x"].text == "clip in [null, 0.1]"
    assert read_space(part.to_dict()) == part
