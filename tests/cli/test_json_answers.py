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
FILES = {
    "front": {
        "objective": [
            {"metric": "eval_return"},
            {"metric": "environment_steps", "direction": "minimize"},
        ]
    },
    "methods": {"compare": {"methods": {"random": "random", "tpe": "tpe"}, "repeats": 1}},
    "build": {
        "optimizer": "sobol",
        "budget": {"configurations": 12},
        "landscape": {"id": "toys/small/none", "licence": "CC0-1.0"},
    },
    "dqn": {"trainer": "population/dqn", "environment": "CartPole-v1", "space": "population/dqn"},
    "small": {},
}
SHORT = {"budget": {"configurations": 3}, "seeds": {"tuning": 2, "test": 10}, "test": {"top": 2}}
# In this order, in one folder: later ones use what earlier ones wrote. `+` is a blank.
CALLS = """
landscape build build.yaml --study built --out root --dry-run
landscape build build.yaml --study built --out root --quiet
tune small.yaml --dry-run
tune small.yaml --out s --quiet
tune small.yaml front.yaml --out several --quiet
resume s --quiet
watch s
watch several/front
test s --quiet
test s --own-seeds --quiet
compare s several/small --unequal
compare methods.yaml --out compared --quiet
benchmark tpe --landscape autorl/ppo/CartPole-v1 --repeats 2 --runs 6 --out b --quiet
verify small.card.yaml --quiet
judge default x=0.7 --study small.yaml --min-effect 99
judge x=0.6 x=0.7 --study small.yaml --ledger book --pool 4 --min-effect 99
ledger book
noise default --study small.yaml --runs 5
backup s copy
doctor
doctor s
list trainers
list trainers sb3/ppo
list optimizers
list optimizers tpe
list spaces
landscape list shipped
landscape info s
landscape info root/toys/small/none
landscape query s SELECT+config_id+FROM+runs
landscape best s
landscape best autorl/ppo/CartPole-v1
landscape curve s 0
landscape top s
landscape export s flat.csv
landscape export root/toys/small/none study.db
landscape import study.db --id toys/flat/none --out root
landscape validate s
landscape build build.yaml --study more --id more/small/none --set seeds={tuning:+[7],test:+[9]} --out root --quiet
landscape merge root/toys/small/none root/more/small/none --id toys/merged/none --out merged
landscape importance root/toys/small/none
landscape subset autorl/dqn --size 1
landscape analyse s noise
landscape plot s budget --out plot.svg
landscape upload root/toys/small/none bucket
landscape download file://bucket/toys/small/none --out down
landscape delete root/toys/small/none --yes
prior build prior.json autorl/dqn/CartPole-v1 --space population/dqn
prior list
prior show prior.json
prior use prior.json dqn.yaml --dry-run
prior suggest population/dqn --prior prior.json
"""


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
    assert having == {group_of(call.split()) for call in CALLS.strip().splitlines()}


def test_every_command_answers_as_described(tmp_path):
    validator = pytest.importorskip("jsonschema").Draft7Validator(json.loads(SCHEMA.read_text()))
    for name, changes in FILES.items():
        study_file(tmp_path, f"{name}.yaml", **{**SHORT, "name": name, **changes})
    with chdir(tmp_path):
        for call in CALLS.strip().splitlines():
            words = call.split()
            if words[0] == "verify":
                autorl("card", "s")
            code = 1 if words[0] == "judge" else 0  # discard
            answer = as_json(*(word.replace("+", " ") for word in words), code=code)
            wrong = [error.message for error in validator.iter_errors({group_of(words): answer})]
            assert wrong == [], call
    for nothing in ({"watch": {}}, {"verify": {"card": 1}}, {"landscape list": {}}, {"tun": {}}):
        assert not validator.is_valid(nothing)
