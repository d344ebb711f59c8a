"""Conditions, constraints and forbidden combinations: what the text means."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from refusals import expect_error

from autorl.space import load_space, read_space
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.rules import read_constraint

NUMBERS = {name: Hyperparameter.real(name, -10, 10) for name in ("a", "b", "lr.end", "x-y")}
NUMBERS["n"] = Hyperparameter.ordinal("n", [1, 2, 4])
NUMBERS["opt"] = Hyperparameter.categorical("opt", ["adam", "sgd", "a"])
NUMBERS["use"] = Hyperparameter.categorical("use", [True, False])
NUMBERS["net"] = Hyperparameter.categorical("net", [[64], [64, 64]])
NUMBERS["size"] = Hyperparameter.ordinal("size", ["small", "medium", "large"])


def holds(text, **values):
    values = {name.replace("__", "."): value for name, value in values.items()}
    return not read_constraint(text, NUMBERS, {"n_envs": 8}).violated(values)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("a + b < 3", "a + b < 3"),
        ("a - b * 2 >= -a / 4", "a - b * 2 >= -a / 4"),
        ("(a + b) // 3 == a % 4", "(a + b) // 3 == a % 4"),
        ("a ** 2 + b ** 2 <= 25", "a ** 2 + b ** 2 <= 25"),
        ("-2 < a < b", "-2 < a < b"),
        ("a < 0 and b > 0 or a == b", "a < 0 and b > 0 or a == b"),
        ("not (a < 0 and b < 1_0)", "not (a < 0 and b < 10)"),
        ("a in [1, 2, b]", "a in [1, 2, b]"),
        ("a not in [1e0, -2]", "a not in [1, -2]"),
        ("a * n_envs <= .5e1 * b", "a * 8 <= 5 * b"),
        ("a != b", "a != b"),
        ("3 > a", "3 > a"),
    ],
)
def test_arithmetic_means_what_it_means_in_python(text, python):
    """Brute force over a grid against Python's own evaluation."""
    outcomes = set()
    for a, b in itertools.product([-5, -2, -1, 1, 2, 3, 4], repeat=2):
        expected = eval(python, {"__builtins__": {}}, {"a": a, "b": b})
        assert holds(text, a=a, b=b) == expected, (a, b)
        outcomes.add(expected)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("lr.end <= a", {"lr__end": 1, "a": 2}, True),
        ("lr.end <= a", {"lr__end": 3, "a": 2}, False),
        ("opt == adam", {"opt": "adam"}, True),
        ("'sgd' != opt", {"opt": "sgd"}, False),
        ('opt in ["a", sgd]', {"opt": "a"}, True),
        ("not (opt == sgd and a > 0.9)", {"opt": "sgd", "a": 1}, False),
        ("use == true", {"use": False}, False),
        ("use != False", {"use": True}, True),
        ("net == [64, 64]", {"net": (64, 64)}, True),
        ("net in [[64], [64, 64]]", {"net": (64,)}, True),
        ("size >= medium", {"size": "large"}, True),
        ("size >= medium", {"size": "small"}, False),
        ("medium <= size", {"size": "small"}, False),
        ("n * 2 == 8", {"n": 4}, True),
        ("a / b < 1", {"a": 1, "b": 0}, False),
        ("a ** b > 0", {"a": -1, "b": 0.5}, False),
        ("a ** b > 0", {"a": 10, "b": 1000}, False),
        ("a ** b > 0", {"a": 0, "b": -1}, False),
        ("a % b < 1", {"a": 1, "b": 0}, False),
    ],
)
def test_words_lists_and_undefined_arithmetic(text, values, expected):
    assert holds(text, **values) is expected


def test_a_name_with_a_hyphen():
    constraint = read_constraint("x-y < a - b", NUMBERS, {})
    assert constraint.names == {"x-y", "a", "b"}
    assert not constraint.violated({"x-y": 0, "a": 2, "b": 1})
    assert constraint.violated({"x-y": 1, "a": 2, "b": 1})


def test_a_constraint_on_an_inactive_hyperparameter_is_true():
    assert holds("a + b < 3", a=100)
    assert not holds("a + b < 3", a=100, b=1)


@pytest.mark.parametrize(
    "text",
    [
        *("a.b < 1", "a[0] < 1", "f(a) < 1", "a if b else 1", "a < 'x'", "opt < adam", "opt == 3"),
        *("a is b", "a", "a == use", "a < 1; b", "a <", "[a] == 1", "{a} == 1", "a @ b < 1"),
        *("a < 1e999", "a := 3", "~a < 1", "opt in adam", "__import__ < a"),
    ],
)
def test_what_is_not_a_constraint(text):
    expect_error("", read_constraint, text, NUMBERS, {})


CONDITIONED = {
    "opt": {"choices": ["adam", "sgd", "rmsprop"]},
    "depth": {"type": "int", "lower": 1, "upper": 8, "default": 2},
    "rate": {"type": "float", "lower": 0, "upper": 1},
    "size": {"type": "ordinal", "choices": ["s", "m", "l"]},
    "child": {"type": "float", "lower": 0, "upper": 1},
    "grandchild": {"type": "float", "lower": 0, "upper": 1},
}


@pytest.mark.parametrize(
    ("text", "active", "inactive"),
    [
        ("opt == sgd", {"opt": "sgd"}, {"opt": "adam"}),
        ("sgd == opt", {"opt": "sgd"}, {"opt": "adam"}),
        ("opt != sgd", {"opt": "adam"}, {"opt": "sgd"}),
        ("opt in [sgd, 'rmsprop']", {"opt": "rmsprop"}, {"opt": "adam"}),
        ("depth > 2", {"depth": 3}, {"depth": 2}),
        ("2 <= depth", {"depth": 2}, {"depth": 1}),
        ("2 < depth < 5", {"depth": 4}, {"depth": 5}),
        ("rate < 0.5", {"rate": 0.4}, {"rate": 0.5}),
        ("size > s", {"size": "m"}, {"size": "s"}),
        ("size <= m", {"size": "m"}, {"size": "l"}),
        ("opt == sgd and depth > 4", {"opt": "sgd", "depth": 5}, {"opt": "sgd", "depth": 4}),
        ("opt == sgd or depth > 4", {"opt": "adam", "depth": 5}, {"opt": "adam", "depth": 4}),
        (
            "opt == sgd or depth > 4 and rate < 0.5",
            {"depth": 5, "rate": 0.1},
            {"depth": 5, "rate": 0.9},
        ),
        ("depth in [1, 8]", {"depth": 8}, {"depth": 7}),
    ],
)
def test_conditions(text, active, inactive):
    space = load_space(
        {"hyperparameters": CONDITIONED, "conditions": {"child": text, "grandchild": "child > 0.5"}}
    )
    base = {"opt": "adam", "depth": 2, "rate": 0.5, "size": "m", "child": 0.9, "grandchild": 0.1}
    assert space.active(base | active) == set(CONDITIONED)
    assert space.active(base | inactive) == set(CONDITIONED) - {"child", "grandchild"}
    assert space.active(base | active | {"child": 0.2}) == set(CONDITIONED) - {"grandchild"}


def test_forbidden_lists_and_choices_that_are_lists():
    hyperparameters = {"net": {"choices": [[64], [64, 64], [8]]}, "n": "int(1, 9)"}
    forbidden = [{"net": [64, 64]}, {"net": [[8]], "n": [1, 2]}]
    space = load_space({"hyperparameters": hyperparameters, "forbidden": forbidden})
    assert not space.is_valid({"net": (64, 64), "n": 5})
    assert space.is_valid({"net": (64,), "n": 1})
    assert not space.is_valid({"net": (8,), "n": 2})
    assert space.is_valid({"net": (8,), "n": 3})


def test_forbidden_applies_only_when_all_its_hyperparameters_are_active():
    space = load_space(
        {
            "hyperparameters": {"opt": CONDITIONED["opt"], "child": CONDITIONED["child"]},
            "conditions": {"child": "opt == sgd"},
            "forbidden": [{"opt": ["adam", "sgd"], "child": 0.25}],
        }
    )
    assert space.is_valid({"opt": "adam"})
    assert not space.is_valid({"opt": "sgd", "child": 0.25})


def test_constants_come_from_the_file_the_caller_or_the_study():
    definition = {
        "hyperparameters": {"b": {"type": "int", "lower": 1, "upper": 64, "default": 4}},
        "constraints": ["b <= k * n_envs"],
        "constants": {"k": 2, "n_envs": 2},
    }
    space = load_space(definition)
    assert not space.is_valid({"b": 5})
    assert space.with_constants({"n_envs": 4}).is_valid({"b": 8})
    assert load_space(definition, constants={"n_envs": 4}) == space.with_constants({"n_envs": 4})
    assert space.with_constants({"other": 4}) == space
    without = {**definition, "constants": {}}
    assert load_space(without, constants={"k": 2, "n_envs": 2}).hash == space.hash


def test_config_completes_unwraps_and_refuses():
    conditions = {"child": "opt == sgd", "grandchild": "child > 0.5"}
    space = load_space({"hyperparameters": CONDITIONED, "conditions": conditions})
    given = {"opt": np.str_("sgd"), "depth": np.int64(3), "rate": 1, "child": np.float64(0.75)}
    config = space.config(given)
    rest = {"rate": 1.0, "size": "m", "child": 0.75, "grandchild": 0.5}
    assert dict(config) == {"opt": "sgd", "depth": 3, **rest}
    assert [type(value) for value in config.values()] == [str, int, float, str, float, float]
    assert space.config_hash(config) == space.config_hash({**config, "rate": 1})
    expect_error("inactive here", space.config, {"child": 0.5})
    expect_error("unknown hyperparameter; did you mean 'depth'", space.config, {"dept": 3})
    expect_error("outside", space.config, {"depth": 9})


def test_hash_sees_the_order_and_every_part():
    base = {"hyperparameters": {"a": {"choices": [1, 2]}, "b": {"choices": [1, 2]}}}
    variants = [
        base,
        {"hyperparameters": dict(reversed(base["hyperparameters"].items()))},
        {**base, "conditions": {"b": "a == 1"}},
        {**base, "constraints": ["a <= b"]},
        {**base, "forbidden": [{"a": 2, "b": 1}]},
        {**base, "constants": {"k": 1}},
        {
            "hyperparameters": base["hyperparameters"]
            | {"a": {"choices": [1, 2], "changeable": True}}
        },
    ]
    assert len({read_space(variant).hash for variant in variants}) == len(variants)


@pytest.mark.parametrize("key", ["constraints", "conditions"])
def test_deeply_nested_expressions_survive_pickling_or_are_refused_in_a_line(key):
    def nested(depth):
        text = " and (a < 9 or ".join(["a < 5"] * depth) + ")" * (depth - 1)
        bounds = {"type": "float", "lower": 0, "upper": 1}
        rule = [text] if key == "constraints" else {"b": text}
        return load_space({"hyperparameters": {"a": bounds, "b": bounds}, key: rule})

    space = nested(100)
    assert pickle.loads(pickle.dumps(space)) == space
    assert copy.deepcopy(space) == space
    expect_error("cannot read the expression", nested, 400)
