"""Every bad search space gives one line: file, key, line and rule."""

import re

import pytest

from autorl.space import load_space, read_space
from autorl.types import InputError

HEAD = "hyperparameters:\n"
X = "  x: {type: float, lower: 0, upper: 1}\n"
OPT = "  opt: {choices: [adam, sgd]}\n"

# name: (text of the file, line the error names, key it names, pattern of the message)
CASES = {
    "unknown key of a hyperparameter": (
        HEAD + "  x: {type: float, lower: 0, uper: 1}\n",
        2,
        "hyperparameters.x.uper",
        "unknown key 'uper'.*did you mean 'upper'",
    ),
    "unknown top-level key": (
        "hyperparameter:\n" + X,
        1,
        "hyperparameter",
        "did you mean 'hyperparameters'",
    ),
    "key of another type": (
        HEAD + "  x: {type: categorical, choices: [1, 2], scale: log}\n",
        2,
        "hyperparameters.x.scale",
        "type categorical.*unknown key",
    ),
    "unknown type": (
        HEAD + "  x: {type: flaot, lower: 0, upper: 1}\n",
        2,
        "hyperparameters.x.type",
        "expected one of float, int",
    ),
    "type neither given nor implied": (
        HEAD + "  x: {lower: 0, upper: 1}\n",
        2,
        "hyperparameters.x.type",
        "a type is needed",
    ),
    "missing bound": (
        HEAD + "  x:\n    type: float\n    lower: 0\n",
        2,
        "hyperparameters.x.upper",
        "'upper' is missing",
    ),
    "missing choices": (
        HEAD + "  x: {type: ordinal}\n",
        2,
        "hyperparameters.x.choices",
        "'choices' is missing",
    ),
    "text where a number is expected": (
        HEAD + "  x:\n    type: float\n    lower: tiny\n    upper: 1\n",
        4,
        "hyperparameters.x.lower",
        "expected a number, got 'tiny'",
    ),
    "bool where a number is expected": (
        HEAD + "  x: {type: float, lower: false, upper: 1}\n",
        2,
        "hyperparameters.x.lower",
        "expected a number, got false",
    ),
    "fraction where an integer is expected": (
        HEAD + "  x: {type: int, lower: 1.5, upper: 3}\n",
        2,
        "hyperparameters.x.lower",
        "expected an integer, got 1.5",
    ),
    "number where a bool is expected": (
        HEAD + "  x: {type: float, lower: 0, upper: 1, changeable: 1}\n",
        2,
        "hyperparameters.x.changeable",
        "true or false",
    ),
    "NaN bound": (
        HEAD + "  x: {type: float, lower: .nan, upper: 1}\n",
        2,
        "hyperparameters.x.lower",
        "finite",
    ),
    "infinite bound": (
        HEAD + "  x: {type: float, lower: 0, upper: .inf}\n",
        2,
        "hyperparameters.x.upper",
        "finite",
    ),
    "bounds reversed": (
        HEAD + "  x: {type: float, lower: 2, upper: 1}\n",
        2,
        "hyperparameters.x.upper",
        "greater than lower",
    ),
    "bounds equal": (
        HEAD + "  x: {type: int, lower: 2, upper: 2}\n",
        2,
        "hyperparameters.x.upper",
        "greater than lower",
    ),
    "log from zero": (
        HEAD + "  x: {type: float, lower: 0, upper: 1, scale: log}\n",
        2,
        "hyperparameters.x.lower",
        "log scale needs lower > 0",
    ),
    "flipped_log to one": (
        HEAD + "  x: {type: float, lower: 0, upper: 1, scale: flipped_log}\n",
        2,
        "hyperparameters.x.upper",
        "needs upper < 1",
    ),
    "flipped_log of an integer": (
        HEAD + "  x: {type: int, lower: -5, upper: 0, scale: flipped_log}\n",
        2,
        "hyperparameters.x.scale",
        "linear or log",
    ),
    "unknown scale": (
        HEAD + "  x: {type: float, lower: 1, upper: 2, scale: logarithmic}\n",
        2,
        "hyperparameters.x.scale",
        "linear, log, flipped_log",
    ),
    "default outside the bounds": (
        HEAD + "  x: {type: float, lower: 0, upper: 1, default: 3}\n",
        2,
        "hyperparameters.x.default",
        r"outside \[0.0, 1.0\]",
    ),
    "default not a choice": (
        HEAD + "  x: {type: ordinal, choices: [1, 2], default: 3}\n",
        2,
        "hyperparameters.x.default",
        r"3 is not among the choices \[1, 2\]",
    ),
    "default of the wrong type": (
        HEAD + "  x: {type: int, lower: 1, upper: 5, default: two}\n",
        2,
        "hyperparameters.x.default",
        "expected an integer, got 'two'",
    ),
    "duplicate choice": (
        HEAD + "  x: {choices: [1, 2, 1]}\n",
        2,
        "hyperparameters.x.choices",
        "listed twice",
    ),
    "empty choices": (
        HEAD + "  x: {choices: []}\n",
        2,
        "hyperparameters.x.choices",
        "at least one choice",
    ),
    "choices not a list": (
        HEAD + "  x: {choices: adam}\n",
        2,
        "hyperparameters.x.choices",
        "expected a list",
    ),
    "NaN choice": (
        HEAD + "  x: {choices: [1, .nan]}\n",
        2,
        "hyperparameters.x.choices",
        "not a JSON value",
    ),
    "hyperparameter not a mapping": (
        HEAD + "  x:\n",
        2,
        "hyperparameters.x",
        "expected a mapping, got None",
    ),
    "name not a string": (
        HEAD + "  3: {choices: [1, 2]}\n",
        2,
        "hyperparameters.3",
        "is a string, got 3",
    ),
    "name with a space": (
        HEAD + "  a b: {choices: [1, 2]}\n",
        2,
        "hyperparameters.a b",
        "letters, digits",
    ),
    "name that is an operator": (
        HEAD + "  and: {choices: [1, 2]}\n",
        2,
        "hyperparameters.and",
        "cannot name a hyperparameter",
    ),
    "no hyperparameters": (
        "hyperparameters: {}\n",
        1,
        "hyperparameters",
        "at least one hyperparameter",
    ),
    "schedule of an integer": (
        HEAD + "  x: {type: int, lower: 1, upper: 5, schedule: [constant, linear]}\n",
        2,
        "hyperparameters.x.schedule",
        "only float",
    ),
    "unknown schedule": (
        HEAD + "  x: {type: float, lower: 1, upper: 5, schedule: [steps]}\n",
        2,
        "hyperparameters.x.schedule",
        "constant, linear, cosine",
    ),
    "condition of an unknown child": (
        HEAD + X + "conditions:\n  z: x > 0.5\n",
        4,
        "conditions.z",
        "unknown hyperparameter 'z'",
    ),
    "unknown name in a condition": (
        HEAD + X + OPT + "conditions:\n  x: optimizer == adam\n",
        5,
        "conditions.x",
        "unknown name 'optimizer'.*known: x, opt",
    ),
    "unknown value in a condition": (
        HEAD + X + OPT + "conditions: {x: opt == adamw}\n",
        4,
        "conditions.x",
        r"'adamw' is not among the choices \['adam', 'sgd'\]",
    ),
    "order of a categorical in a condition": (
        HEAD + X + OPT + "conditions: {x: opt > adam}\n",
        4,
        "conditions.x",
        "has no order",
    ),
    "condition that is arithmetic": (
        HEAD + X + OPT + "conditions: {opt: x + 1}\n",
        4,
        "conditions.opt",
        "a condition compares",
    ),
    "condition that is not an expression": (
        HEAD + X + OPT + "conditions: {opt: 'x >'}\n",
        4,
        "conditions.opt",
        "cannot read",
    ),
    "condition that is a bool": (
        HEAD + X + OPT + "conditions: {opt: true}\n",
        4,
        "conditions.opt",
        "expected an expression",
    ),
    "condition on itself": (
        HEAD + X + "conditions: {x: x > 0.5}\n",
        3,
        "conditions.x",
        "circle: x -> x",
    ),
    "cyclic conditions": (
        HEAD + X + OPT + "conditions:\n  x: opt == sgd\n  opt: x > 0.5\n",
        5,
        "conditions.x",
        "circle: x -> opt -> x",
    ),
    "contradictory condition": (
        HEAD + X + OPT + "conditions:\n  x: opt == sgd and opt == adam\n",
        5,
        "conditions.x",
        "can never be active",
    ),
    "condition contradicting the parent's condition": (
        HEAD
        + X
        + OPT
        + "  y: {type: float, lower: 0, upper: 1}\n"
        + "conditions:\n  x: opt == sgd\n  y: x > 0.5 and opt == adam\n",
        7,
        "conditions.y",
        "'y' can never be active",
    ),
    "condition beyond the parent's bounds": (
        HEAD + X + OPT + "conditions: {opt: x > 1}\n",
        4,
        "conditions.opt",
        "never be active",
    ),
    "forbidden not a list": (HEAD + X + "forbidden: {x: 0.5}\n", 3, "forbidden", "expected a list"),
    "forbidden clause not a mapping": (
        HEAD + X + "forbidden: [x]\n",
        3,
        "forbidden[0]",
        "expected a mapping",
    ),
    "forbidden names an unknown hyperparameter": (
        HEAD + X + OPT + "forbidden:\n- {opt: sgd, xx: 0.5}\n",
        5,
        "forbidden[0]",
        "unknown hyperparameter 'xx'",
    ),
    "forbidden names an unknown value": (
        HEAD + X + OPT + "forbidden:\n- {opt: sgd}\n- {opt: [sgd, rmsprop]}\n",
        6,
        "forbidden[1]",
        "'rmsprop' is not among the choices",
    ),
    "default is forbidden": (
        HEAD + X + OPT + "forbidden:\n- {opt: adam}\n",
        5,
        "forbidden[0]",
        r"default configuration breaks it.*\"opt\":\"adam\"",
    ),
    "unknown name in a constraint": (
        HEAD + X + "constraints:\n- x <= y\n",
        4,
        "constraints[0]",
        "unknown name 'y'.*known: x, n_envs, horizon",
    ),
    "misspelt name in a constraint": (
        HEAD + "  batch_size: {type: int, lower: 1, upper: 9}\nconstraints:\n- batch_sise <= 4\n",
        4,
        "constraints[0]",
        "unknown name 'batch_sise'.*did you mean 'batch_size'",
    ),
    "call in a constraint": (
        HEAD + X + "constraints: ['abs(x) < 1']\n",
        3,
        "constraints[0]",
        "cannot read|not allowed",
    ),
    "attribute trick in a constraint": (
        HEAD + X + "constraints: ['(x).__class__ == 1']\n",
        3,
        "constraints[0]",
        "cannot read|not allowed",
    ),
    "lambda in a constraint": (
        HEAD + X + "constraints: ['(lambda: x) == 1']\n",
        3,
        "constraints[0]",
        "cannot read|not allowed",
    ),
    "constraint that is a number": (
        HEAD + X + "constraints: [x + 1]\n",
        3,
        "constraints[0]",
        "a constraint is a comparison",
    ),
    "constraint about no hyperparameter": (
        HEAD + X + "constraints: [1 < 2]\n",
        3,
        "constraints[0]",
        "names no hyperparameter",
    ),
    "arithmetic with a word": (
        HEAD + X + OPT + "constraints: [opt * 2 < x]\n",
        4,
        "constraints[0]",
        "'opt' is not a number",
    ),
    "unknown value in a constraint": (
        HEAD + X + OPT + "constraints: ['not (opt == rmsprop and x > 0.5)']\n",
        4,
        "constraints[0]",
        "'rmsprop' is not among",
    ),
    "default breaks a constraint": (
        HEAD + X + "constraints:\n- x < 0.2\n",
        4,
        "constraints[0]",
        r"default configuration breaks it.*\"x\":0.5",
    ),
    "constraint nothing satisfies": (
        HEAD + X + "constraints:\n- x > 2\n",
        4,
        "constraints[0]",
        "no configuration satisfies.*empty",
    ),
    "constants that are not numbers": (
        HEAD + X + "constraints: [x < k]\nconstants: {k: many}\n",
        4,
        "constants.k",
        "expected a finite number, got 'many'",
    ),
    "constant with the name of a hyperparameter": (
        HEAD + X + "constants: {x: 3}\n",
        3,
        "constants.x",
        "is a hyperparameter already",
    ),
    "duplicate key": (HEAD + X + X, 3, None, "key 'x' is given twice, first in line 2"),
    "torn YAML": (HEAD + "  x: {type: float, lower: 0, up", 2, None, "not valid YAML"),
    "tab indentation": (HEAD + "\tx: 1\n", 2, None, "not valid YAML"),
    "python object": (
        HEAD + "  x: !!python/object/apply:os.system [ls]\n",
        2,
        None,
        "not valid YAML",
    ),
    "anchor that contains itself": (
        "hyperparameters: &a\n  x: *a\n",
        1,
        None,
        "an anchor may not contain itself",
    ),
    "empty file": ("", None, None, "the search space is empty"),
    "only comments": ("# nothing\n", None, None, "the search space is empty"),
    "a list": ("- x\n- y\n", None, None, "expected a mapping"),
    "a binary file": ("\x00\x01", None, None, "not valid YAML"),
}


@pytest.mark.parametrize("name", CASES)
def test_file_with_an_error(name, tmp_path):
    text, line, key, pattern = CASES[name]
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_space(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert caught.value.key == key
    assert re.search(pattern, caught.value.message), message


def test_missing_file_and_unknown_name(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml.*no such file"):
        load_space(tmp_path / "nowhere.yaml")
    with pytest.raises(InputError, match=r"sb3/pqo.*no search space of this name"):
        load_space("sb3/pqo")
    with pytest.raises(InputError, match="no such file"):
        load_space(tmp_path)
    with pytest.raises(InputError, match="expected the name or file"):
        load_space(3)  # type: ignore[arg-type]


def test_not_text(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_bytes(b"\xff\xfe\x00x")
    with pytest.raises(InputError, match="not a text file in UTF-8"):
        load_space(path)


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
    with pytest.raises(InputError, match=r"nested too deeply|cannot read"):
        load_space(
            {
                "hyperparameters": {"x": {"choices": [1, 2]}},
                "constraints": ["x" + " + x" * 5000 + " > 0"],
            }
        )


def test_misspelt_top_level_key_of_an_inline_mapping():
    with pytest.raises(InputError, match="did you mean 'constraints'"):
        load_space({"hyperparameters": {"x": {"choices": [1, 2]}}, "constrains": []})


def test_constant_that_nobody_gave():
    space = load_space(
        {
            "hyperparameters": {"b": {"type": "int", "lower": 1, "upper": 64}},
            "constraints": ["b <= n_envs"],
        }
    )
    assert space.missing == ("n_envs",)
    with pytest.raises(InputError, match="uses 'n_envs', which is not a hyperparameter"):
        space.default()
    assert space.with_constants({"n_envs": 64, "unused": 1}).default() == {"b": 33}
    with pytest.raises(InputError, match="default configuration breaks it"):
        space.with_constants({"n_envs": 8})


BAD_CONFIGS = {
    "unknown hyperparameter": ({"x": 0.5, "opt": "adam", "lr": 1}, "lr", "unknown hyperparameter"),
    "no value": ({"opt": "adam"}, "x", "no value given"),
    "out of bounds": ({"x": 1.5, "opt": "adam"}, "x", r"outside \[0.0, 1.0\]"),
    "NaN": ({"x": float("nan"), "opt": "adam"}, "x", "outside"),
    "bool": ({"x": True, "opt": "adam"}, "x", "expected a number"),
    "not a choice": ({"x": 0.5, "opt": "rmsprop"}, "opt", "not among the choices"),
    "inactive": (
        {"x": 0.5, "opt": "adam", "momentum": 0.5},
        "momentum",
        "inactive here: it needs opt == sgd",
    ),
    "missing child": ({"x": 0.5, "opt": "sgd"}, "momentum", "no value given"),
    "forbidden": (
        {"x": 0.5, "opt": "sgd", "momentum": 1.0},
        "momentum, opt",
        "breaks the forbidden combination",
    ),
    "constraint": (
        {"x": 0.9, "opt": "sgd", "momentum": 0.9},
        "momentum, x",
        "breaks the constraint 'x . momentum",
    ),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_configuration(name):
    config, key, pattern = BAD_CONFIGS[name]
    space = read_space(
        {
            "hyperparameters": {
                "x": {"type": "float", "lower": 0, "upper": 1},
                "opt": {"choices": ["adam", "sgd"]},
                "momentum": {"type": "float", "lower": 0, "upper": 1},
            },
            "conditions": {"momentum": "opt == sgd"},
            "forbidden": [{"opt": "sgd", "momentum": [0, 1]}],
            "constraints": ["x + momentum < 1.5"],
        }
    )
    assert not space.is_valid(config)
    with pytest.raises(InputError, match=pattern) as caught:
        space.check(config)
    assert caught.value.key == key
