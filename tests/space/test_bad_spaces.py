"""Every bad search space gives one line: file, key, line and rule."""

import re

import pytest
from refusals import expect_error

from autorl.core.types import InputError
from autorl.space import load_space, read_space

HEAD = "hyperparameters:\n"
X = "  x: {type: float, lower: 0, upper: 1}\n"
OPT = "  opt: {choices: [adam, sgd]}\n"

# An entry of the hyperparameter `x`, its key that the error names, pattern of the message.
ENTRIES = [
    ("{type: float, lower: 0, uper: 1}", "uper", "unknown key 'uper'.*did you mean 'upper'"),
    ("{type: categorical, choices: [1, 2], scale: log}", "scale", "type categorical.*unknown key"),
    ("{type: flaot, lower: 0, upper: 1}", "type", "expected one of float, int"),
    ("{lower: 0, upper: 1}", "type", "a type is needed"),
    ("{type: ordinal}", "choices", "'choices' is missing"),
    ("{type: float, lower: false, upper: 1}", "lower", "expected a number, got false"),
    ("{type: int, lower: 1.5, upper: 3}", "lower", "expected an integer, got 1.5"),
    ("{type: float, lower: 0, upper: 1, changeable: 1}", "changeable", "true or false"),
    ("{type: float, lower: .nan, upper: 1}", "lower", "finite"),
    ("{type: float, lower: 0, upper: .inf}", "upper", "finite"),
    ("{type: float, lower: 2, upper: 1}", "upper", "greater than lower"),
    ("{type: int, lower: 2, upper: 2}", "upper", "greater than lower"),
    ("{type: float, lower: 0, upper: 1, scale: log}", "lower", "log scale needs lower > 0"),
    ("{type: float, lower: 0, upper: 1, scale: flipped_log}", "upper", "needs upper < 1"),
    ("{type: int, lower: -5, upper: 0, scale: flipped_log}", "scale", "linear or log"),
    ("{type: float, lower: 1, upper: 2, scale: logarithmic}", "scale", "linear, log, flipped_log"),
    ("{type: float, lower: 0, upper: 1, default: 3}", "default", r"outside \[0.0, 1.0\]"),
    ("{type: ordinal, choices: [1, 2], default: 3}", "default", "3 is not among the choices"),
    ("{type: int, lower: 1, upper: 5, default: two}", "default", "expected an integer, got 'two'"),
    ("{choices: [1, 2, 1]}", "choices", "listed twice"),
    ("{choices: []}", "choices", "at least one choice"),
    ("{choices: adam}", "choices", "expected a list"),
    ("{choices: [1, .nan]}", "choices", "not a JSON value"),
    ("{type: int, lower: 1, upper: 5, schedule: [constant, linear]}", "schedule", "only float"),
    (
        "{type: float, lower: 0, upper: 1, prior: 0.5}",
        "prior",
        "expected {centre: VALUE, conf.*got 0.5",
    ),
    ("{type: float, lower: 0, upper: 1, prior: {centre: 1, sure: 1}}", "prior", "expected {centre"),
    ("{type: float, lower: 0, upper: 1, prior: {confidence: low}}", "prior", "expected {centre"),
    ("{type: float, lower: 0, upper: 1, prior: {centre: 3}}", "prior.centre", r"3.0 is outside"),
    ("{choices: [a, b], prior: {centre: c}}", "prior.centre", "'c' is not among the choices"),
    (
        "{choices: [a, b], prior: {centre: a, confidence: 0.5}}",
        "prior.confidence",
        "expected one of low, medium, high, got 0.5",
    ),
    ("{value: 1, prior: {centre: 1}}", "prior", "unknown key 'prior'"),
    ("{type: float, lower: 1, upper: 5, schedule: [steps]}", "schedule", "linear, cosine"),
]
# What follows `x` and `opt` (line 4 on), line and key that the error names, pattern of the message.
RULES = [
    ("conditions:\n  z: x > 0.5\n", 5, "conditions.z", "unknown hyperparameter 'z'"),
    ("conditions:\n  x: optimizer == adam\n", 5, "conditions.x", "unknown name 'optimizer'"),
    ("conditions: {x: opt == adamw}\n", 4, "conditions.x", r"'adamw' is not among"),
    ("conditions: {x: opt > adam}\n", 4, "conditions.x", "has no order"),
    ("conditions: {opt: x + 1}\n", 4, "conditions.opt", "a condition compares"),
    ("conditions: {opt: 'x >'}\n", 4, "conditions.opt", "cannot read"),
    ("conditions: {opt: true}\n", 4, "conditions.opt", "expected an expression"),
    ("conditions: {x: x > 0.5}\n", 4, "conditions.x", "circle: x -> x"),
    ("conditions:\n  x: opt == sgd\n  opt: x > 0.5\n", 5, "conditions.x", "circle: x -> opt -> x"),
    ("conditions:\n  x: opt == sgd and opt == adam\n", 5, "conditions.x", "can never be active"),
    (
        "  y: {type: float, lower: 0, upper: 1}\nconditions:\n  x: opt == sgd\n  y: x > 0.5 and opt == adam\n",
        7,
        "conditions.y",
        "'y' can never be active",
    ),
    ("conditions: {opt: x > 1}\n", 4, "conditions.opt", "never be active"),
    ("forbidden: {x: 0.5}\n", 4, "forbidden", "expected a list"),
    ("forbidden: [x]\n", 4, "forbidden[0]", "expected a mapping"),
    ("forbidden:\n- {opt: sgd, xx: 0.5}\n", 5, "forbidden[0]", "unknown hyperparameter 'xx'"),
    ("forbidden:\n- {opt: sgd}\n- {opt: [sgd, rmsprop]}\n", 6, "forbidden[1]", "'rmsprop' is not"),
    ("forbidden:\n- {opt: adam}\n", 5, "forbidden[0]", r"default.*breaks it.*\"opt\":\"adam\""),
    ("constraints:\n- x <= y\n", 5, "constraints[0]", "unknown name 'y'.*known: x, opt, n_envs"),
    ("constraints: ['abs(x) < 1']\n", 4, "constraints[0]", "cannot read|not allowed"),
    ("constraints: ['(x).__class__ == 1']\n", 4, "constraints[0]", "cannot read|not allowed"),
    ("constraints: ['(lambda: x) == 1']\n", 4, "constraints[0]", "cannot read|not allowed"),
    ("constraints: [x + 1]\n", 4, "constraints[0]", "a constraint is a comparison"),
    ("constraints: [1 < 2]\n", 4, "constraints[0]", "names no hyperparameter"),
    ("constraints: [opt * 2 < x]\n", 4, "constraints[0]", "'opt' is not a number"),
    ("constraints: ['not (opt == rmsprop and x > 0.5)']\n", 4, "constraints[0]", "'rmsprop' is"),
    ("constraints:\n- x < 0.2\n", 5, "constraints[0]", r"default.*breaks it.*\"x\":0.5"),
    ("constraints:\n- x > 2\n", 5, "constraints[0]", "no configuration satisfies.*empty"),
    ("constraints: [x < k]\nconstants: {k: many}\n", 5, "constants.k", "a finite number"),
    ("constants: {x: 3}\n", 4, "constants.x", "is a hyperparameter already"),
]
# A whole file, line and key that the error names, pattern of the message.
FILES = [
    ("hyperparameter:\n" + X, 1, "hyperparameter", "did you mean 'hyperparameters'"),
    (HEAD + "  x:\n    type: float\n    lower: 0\n", 2, "hyperparameters.x.upper", "is missing"),
    (
        HEAD + "  x:\n    type: float\n    lower: tiny\n    upper: 1\n",
        4,
        "hyperparameters.x.lower",
        "expected a number, got 'tiny'",
    ),
    (HEAD + "  x:\n", 2, "hyperparameters.x", "expected a mapping, got None"),
    (HEAD + "  3: {choices: [1, 2]}\n", 2, "hyperparameters.3", "is a string, got 3"),
    (HEAD + "  a b: {choices: [1, 2]}\n", 2, "hyperparameters.a b", "letters, digits"),
    (HEAD + "  and: {choices: [1, 2]}\n", 2, "hyperparameters.and", "cannot name a hyperparameter"),
    ("hyperparameters: {}\n", 1, "hyperparameters", "at least one hyperparameter"),
    (
        HEAD + "  batch_size: {type: int, lower: 1, upper: 9}\nconstraints:\n- batch_sise <= 4\n",
        4,
        "constraints[0]",
        "unknown name 'batch_sise'.*did you mean 'batch_size'",
    ),
    (HEAD + X + X, 3, None, "key 'x' is given twice, first in line 2"),
    (HEAD + "  x: {type: float, lower: 0, up", 2, None, "not valid YAML"),
    (HEAD + "\tx: 1\n", 2, None, "not valid YAML"),
    (HEAD + "  x: !!python/object/apply:os.system [ls]\n", 2, None, "not valid YAML"),
    ("hyperparameters: &a\n  x: *a\n", 1, None, "an anchor may not contain itself"),
    ("", None, None, "the search space is empty"),
    ("# nothing\n", None, None, "the search space is empty"),
    ("- x\n- y\n", None, None, "expected a mapping"),
    ("\x00\x01", None, None, "not valid YAML"),
]
TEXTS = [
    *(
        (f"{HEAD}  x: {entry}\n", 2, f"hyperparameters.x.{key}", rule)
        for entry, key, rule in ENTRIES
    ),
    *((HEAD + X + OPT + text, line, key, rule) for text, line, key, rule in RULES),
    *FILES,
]


@pytest.mark.parametrize(("text", "line", "key", "pattern"), TEXTS)
def test_file_with_an_error(text, line, key, pattern, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    caught = expect_error("", load_space, path)
    assert str(caught).startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert caught.key == key
    assert re.search(pattern, caught.message), caught


def test_missing_file_and_unknown_name(tmp_path):
    expect_error(r"nowhere\.yaml.*no such file", load_space, tmp_path / "nowhere.yaml")
    expect_error(r"sb3/pqo.*no search space of this name", load_space, "sb3/pqo")
    expect_error("no such file", load_space, tmp_path)
    expect_error("expected the name or file", load_space, 3)  # type: ignore[arg-type]


def test_not_text(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_bytes(b"\xff\xfe\x00x")
    expect_error("not a text file in UTF-8", load_space, path)


def test_inline_mapping_has_keys_without_a_file():
    with pytest.raises(InputError) as caught:
        load_space({"hyperparameters": {"x": {"type": "float", "lower": 1, "upper": 0}}})
    assert caught.value.file is None
    assert caught.value.key == "hyperparameters.x.upper"


def test_bare_hyperparameters_have_keys_as_they_were_given():
    with pytest.raises(InputError) as caught:
        load_space({"x": {"type": "float", "lower": 1, "upper": 0}})
    assert caught.value.key == "x.upper"


def test_an_endless_expression_is_an_error_not_a_crash():
    rule = "x" + " + x" * 5000 + " > 0"
    with pytest.raises(InputError, match=r"nested too deeply|cannot read"):
        load_space({"hyperparameters": {"x": {"choices": [1, 2]}}, "constraints": [rule]})


def test_constant_that_nobody_gave():
    space = load_space({"hyperparameters": {"b": "int(1, 64)"}, "constraints": ["b <= n_envs"]})
    assert space.missing == ("n_envs",)
    expect_error("uses 'n_envs', which is not a hyperparameter", space.default)
    assert space.with_constants({"n_envs": 64, "unused": 1}).default() == {"b": 33}
    expect_error("default configuration breaks it", space.with_constants, {"n_envs": 8})


BAD_CONFIGS = {
    "unknown hyperparameter": ({"x": 0.5, "opt": "adam", "lr": 1}, "lr", "unknown hyperparameter"),
    "no value": ({"opt": "adam"}, "x", "no value given"),
    "out of bounds": ({"x": 1.5, "opt": "adam"}, "x", r"outside \[0.0, 1.0\]"),
    "NaN": ({"x": float("nan"), "opt": "adam"}, "x", "outside"),
    "bool": ({"x": True, "opt": "adam"}, "x", "expected a number"),
    "not a choice": ({"x": 0.5, "opt": "rmsprop"}, "opt", "not among the choices"),
    "inactive": ({"x": 0.5, "opt": "adam", "momentum": 0.5}, "momentum", "it needs opt == sgd"),
    "missing child": ({"x": 0.5, "opt": "sgd"}, "momentum", "no value given"),
    "forbidden": (
        {"x": 0.5, "opt": "sgd", "momentum": 1.0},
        "momentum, opt",
        "breaks the forbidden",
    ),
    "constraint": (
        {"x": 0.9, "opt": "sgd", "momentum": 0.9},
        "momentum, x",
        "breaks the constraint",
    ),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_configuration(name):
    config, key, pattern = BAD_CONFIGS[name]
    unit = "uniform(0, 1)"
    space = read_space(
        {
            "hyperparameters": {"x": unit, "opt": ["adam", "sgd"], "momentum": unit},
            "conditions": {"momentum": "opt == sgd"},
            "forbidden": [{"opt": "sgd", "momentum": [0, 1]}],
            "constraints": ["x + momentum < 1.5"],
        }
    )
    assert not space.is_valid(config)
    assert expect_error(pattern, space.check, config).key == key
