"""Every command's `--json` is described by `docs/answers.schema.json`, and answers so."""

import json
from contextlib import chdir
from pathlib import Path

import pytest
from cli_support import as_json, autorl, study_file

from autorl.cli.app import LANDSCAPE, LIST, PRIOR, SECTIONS
from autorl.cli.lazy import load

SCHEMA = Path(__file__).parents[2] / "docs" / "answers.schema.json"
GROUPS = {"landscape ": LANDSCAPE, "prior ": PRIOR, "list ": LIST}
GROUPS[""] = {name: target for table in SECTIONS.values() for name, target in table.items()}
EFFORT = {"metric": "environment_steps", "direction": "minimize"}
LANDSCAPE_OF = {"id": "toys/small/none", "licence": "CC0-1.0"}
FILES = {
    "front": {"objective": [{"metric": "eval_return"}, EFFORT]},
    "methods": {"compare": {"methods": {"random": "random", "tpe": "tpe"}, "repeats": 1}},
    "build": {"optimizer": "sobol", "budget": {"configurations": 12}, "landscape": LANDSCAPE_OF},
    "dqn": {"trainer": "population/dqn", "environment": "CartPole-v1", "space": "population/dqn"},
    "small": {},
}
SHORT = {"budget": {"configurations": 3}, "seeds": {"tuning": 2, "test": 10}, "test": {"top": 2}}
# In this order, in one folder: later calls use what earlier ones wrote. `+` is a blank.
CALLS = Path(__file__).with_name("answered_calls.txt").read_text().splitlines()


def group_of(words):
    """The command of a call: one word, or two below a group."""
    return " ".join(words[:2]) if f"{words[0]} " in GROUPS else words[0]


def test_every_command_with_json_is_described():
    having = {
        f"{group}{name}"
        for group, table in GROUPS.items()
        for name, target in table.items()
        if isinstance(target, str)
        if any("--json" in option.opts for option in load(name, target).params)
    }
    assert having == set(json.loads(SCHEMA.read_text())["properties"])
    assert having == {group_of(call.split()) for call in CALLS}


def test_every_command_answers_as_described(tmp_path):
    validator = pytest.importorskip("jsonschema").Draft7Validator(json.loads(SCHEMA.read_text()))
    for name, changes in FILES.items():
        study_file(tmp_path, f"{name}.yaml", **{**SHORT, "name": name, **changes})
    with chdir(tmp_path):
        for call in CALLS:
            words = call.split()
            if words[0] == "verify":
                autorl("card", "s")
            code = 1 if words[0] == "judge" else 0  # discard
            answer = as_json(*(word.replace("+", " ") for word in words), code=code)
            wrong = [error.message for error in validator.iter_errors({group_of(words): answer})]
            assert wrong == [], call
    for nothing in ({"watch": {}}, {"verify": {"card": 1}}, {"landscape list": {}}, {"tun": {}}):
        assert not validator.is_valid(nothing)
