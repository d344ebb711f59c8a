"""Short forms of hyperparameters: each is exactly its long form, and mistakes say what to write."""

import pytest
import yaml
from refusals import expect_error

from autorl.space import load_space, read_space, to_yaml
from autorl.study.spec import load_spec

PAIRS = {
    "8": {"value": 8},
    "0.99": {"value": 0.99},
    "true": {"value": True},
    "MlpPolicy": {"value": "MlpPolicy"},
    '"log"': {"value": "log"},
    "[32, 64, 128]": {"choices": [32, 64, 128]},
    "[0.9, 0.999]": {"choices": [0.9, 0.999]},
    "[auto, 0.1]": {"choices": ["auto", 0.1]},
    "[linear, cosine]": {"choices": ["linear", "cosine"]},
    "[[64], [64, 64]]": {"choices": [[64], [64, 64]]},
    "uniform(0.9, 0.999)": {"type": "float", "lower": 0.9, "upper": 0.999},
    "uniform(1, 2)": {"type": "float", "lower": 1, "upper": 2},
    "log(1e-5, 1e-2)": {"type": "float", "lower": 1e-5, "upper": 1e-2, "scale": "log"},
    " log ( 1e-5 , .5 ) ": {"type": "float", "lower": 1e-5, "upper": 0.5, "scale": "log"},
    "flipped_log(0.8, 0.999)": {
        "type": "float",
        "lower": 0.8,
        "upper": 0.999,
        "scale": "flipped_log",
    },
    "int(1, 8)": {"type": "int", "lower": 1, "upper": 8},
    "int(-3, 100_000)": {"type": "int", "lower": -3, "upper": 100_000},
    "int(16, 1e6, log)": {"type": "int", "lower": 16, "upper": 1_000_000, "scale": "log"},
    "int(1, 8, linear)": {"type": "int", "lower": 1, "upper": 8},
    "[1e-5, 1e-2, log]": {"type": "float", "lower": 1e-5, "upper": 1e-2, "scale": "log"},
    "[1, 8, int]": {"type": "int", "lower": 1, "upper": 8},
}


@pytest.mark.parametrize("text", PAIRS)
def test_a_short_form_is_its_long_form_in_a_file(text, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(f"hyperparameters:\n  x: {text}\n")
    space = load_space(file)
    assert space.hash == read_space({"hyperparameters": {"x": PAIRS[text]}}).hash
    assert yaml.safe_load(to_yaml(space)) == yaml.safe_load(
        to_yaml(read_space({"hyperparameters": {"x": PAIRS[text]}}))
    )


# Short form as YAML, key of the error below the hyperparameter, pattern of the message.
BAD = {
    "a word that is none": ("lgo(1e-5, 1e-2)", "", "unknown interval 'lgo'.*did you mean 'log'"),
    "a word of others": ("randint(1, 8)", "", "unknown interval 'randint'.*int"),
    "one bound": ("log(1e-5)", "", "takes a lower and an upper bound.*log\\(1e-5, 1e-2\\)"),
    "no bound": ("uniform()", "", "takes a lower and an upper bound"),
    "three bounds": ("uniform(0, 1, log)", "", "takes a lower and an upper bound"),
    "no number": ("log(tiny, 1)", "", "expected a number as a bound, got 'tiny'"),
    "a truth value": ("int(true, 8)", "", "expected a number as a bound, got 'true'"),
    "a nested call": ("log(exp(1), 3)", "", "not an interval such as"),
    "a scale int has not": ("int(1, 8, flipped_log)", "", "one of linear, log"),
    "bounds the wrong way": ("log(1e-2, 1e-5)", ".upper", "greater than lower"),
    "log of zero": ("log(0, 1)", ".lower", "lower > 0"),
    "a fraction of an int": ("int(0.5, 8)", ".lower", "expected an integer"),
    "a list with a scale": (
        "[1e-5, log, 1e-2]",
        "",
        r"an interval is log\(1e-05, 0.01\) or \[1e-05, 0.01, log\]",
    ),
    "a truth value in a list with a scale": ("[true, 8, int]", "", "number as a bound, got 'True'"),
    "an interval in a list": ('["log(1e-5, 1e-2)"]', "[0]", "a list holds choices"),
    "an interval cut by YAML": ("[log(1e-5, 1e-2)]", "[0]", "a list holds choices"),
    "text with parentheses": ("hello (world)", "", "unknown interval 'hello'.*long form"),
    "text around an interval": ("log(1, 2) or so", "", "not an interval.*long form"),
    "an empty list": ("[]", ".choices", "at least one choice"),
    "a choice twice": ("[1, 1]", ".choices", "listed twice"),
    "nothing": ("null", "", "expected a mapping"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_names_file_line_key_and_what_is_allowed(name, tmp_path):
    text, key, pattern = BAD[name]
    file = tmp_path / "space.yaml"
    file.write_text(f"hyperparameters:\n  y: 1\n  x: {text}\n")
    error = expect_error(pattern, load_space, file)
    assert (error.file, error.line) == (str(file), 3)
    assert error.key == f"hyperparameters.x{key}"


@pytest.mark.parametrize("text", [text for text in PAIRS if "(" in text])
def test_intervals_need_no_quotes_between_braces(text, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(f"hyperparameters: {{x: {text}, y: {text.replace(', ', ',')}, z: 1}}\n")
    entries = {"x": PAIRS[text], "y": PAIRS[text], "z": 1}
    assert load_space(file).hash == read_space({"hyperparameters": entries}).hash


def test_an_open_parenthesis_between_braces_is_shown_with_what_follows(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text("hyperparameters: {x: log(1e-5, 1e-2, y: 1}\n")
    error = expect_error(r"'log\(1e-5, 1e-2' is not an interval", load_space, file)
    assert (error.key, error.line) == ("hyperparameters.x", 1)


def test_a_tuple_of_python_is_neither_choices_nor_bounds():
    expect_error("a list of choices, an interval", load_space, {"x": (-5.0, 5.0)})


def test_a_study_stores_the_long_form(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "trainer: synthetic\n"
        "space:\n"
        "  learning_rate: log(1e-5, 1e-2)\n"
        "  gamma: [0.9, 0.999]\n"
        "  n_layers: 2\n"
        "fidelity: {steps: 100}\n"
        "budget: {runs: 4}\n"
    )
    spec = load_spec(file)
    stored = yaml.safe_load(spec.freeze())["space"]["hyperparameters"]
    assert stored["gamma"]["choices"] == [0.9, 0.999]
    assert stored["n_layers"] == {"type": "constant", "value": 2}
    rate = stored["learning_rate"]
    assert rate.items() >= PAIRS["log(1e-5, 1e-2)"].items()
    again = tmp_path / "again.yaml"
    again.write_text(spec.freeze())
    assert load_spec(again).search_space.hash == spec.search_space.hash
