"""`autorl prior use`: the lines that a study file gets, what stays of it, and what is refused."""

import json

import numpy as np
import pytest
import yaml
from cli_support import as_json, autorl

from autorl.optimizers.priors.table import Prior, TaskTable, save_prior
from autorl.space import load_space

SPACE = {
    "hyperparameters": {
        "learning_rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log"},
        "gamma": {"type": "float", "lower": 0.8, "upper": 0.999},
    }
}
STUDY = """\
# A study.
name: small
trainer: population/dqn
environment: CartPole-v1    # the pole
space: SPACE
OPTIMIZERfidelity: {steps: 400}
budget: {configurations: 16}
# Seeds come last.
seeds: {tuning: 1, test: 0}
""".replace("SPACE", json.dumps(SPACE))


def write_prior(file, algorithm="dqn"):
    space = load_space(SPACE)
    drawn = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    configs = tuple(space.from_unit(np.array([place, place])) for place in drawn)
    source = f"me/{algorithm}/Acrobot-v1"
    table = TaskTable(source, algorithm, "Acrobot-v1", configs, np.array(drawn))
    file.parent.mkdir(exist_ok=True)
    save_prior(Prior(algorithm, (table,)), file)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with a prior and a study file whose optimizer is what the function is given."""
    monkeypatch.chdir(tmp_path)
    write_prior(tmp_path / "priors" / "mine.json")

    def made(optimizer=""):
        file = tmp_path / "study.yaml"
        file.write_text(STUDY.replace("OPTIMIZER", optimizer))
        return file

    return made


LINES = "optimizer:\n  name: transfer\n  prior:\n  - mine\n"


@pytest.mark.parametrize(
    "optimizer",
    ["optimizer: tpe\n", "optimizer:\n  name: gp\n  startup: 4\n", "optimizer: {name: random}\n"],
)
def test_the_optimizer_alone_is_changed(study, optimizer):
    file = study(optimizer)
    printed = autorl("prior", "use", "mine", file).stdout
    assert file.read_text() == STUDY.replace("OPTIMIZER", LINES)
    assert printed.startswith(LINES)
    assert "prior: me/dqn/Acrobot-v1" in printed


def test_without_an_optimizer_it_comes_last(study):
    file = study()
    autorl("prior", "use", "mine", file)
    assert file.read_text() == STUDY.replace("OPTIMIZER", "") + LINES


def test_options_of_transfer_and_the_stopping_rule_stay(study):
    file = study("optimizer: {name: transfer, prior: none, inertia: 9}\n")
    autorl("prior", "use", "priors/mine.json", file)
    expected = {"name": "transfer", "prior": ["priors/mine.json"], "inertia": 9}
    assert yaml.safe_load(file.read_text())["optimizer"] == expected
    file = study("optimizer: {name: tpe, startup: 4, stop: median, rungs: 3}\n")
    autorl("prior", "use", "none", file)
    expected = {"name": "transfer", "prior": "none", "stop": "median", "rungs": 3}
    assert yaml.safe_load(file.read_text())["optimizer"] == expected


def test_a_dry_run_writes_nothing(study):
    file = study("optimizer: tpe\n")
    before = file.read_text()
    answer = as_json("prior", "use", "mine", file, "--dry-run")
    assert answer["optimizer"] == {"name": "transfer", "prior": ["mine"]}
    assert answer["written"] is False
    assert "nothing is written" in autorl("prior", "use", "mine", file, "--dry-run").stdout
    assert file.read_text() == before


def test_what_does_not_suit_the_study_is_refused_and_the_file_stays(study, tmp_path):
    file = study("optimizer: tpe\n")
    before = file.read_text()
    write_prior(tmp_path / "priors" / "other.json", "ppo")
    refused = autorl("prior", "use", "other", file, code=2).stderr
    assert "other is of the algorithm ppo, this study trains dqn" in refused
    absent = autorl("prior", "use", "mime", file, code=2).stderr
    assert "prior file 'mime'; did you mean 'mine'?" in absent
    assert file.read_text() == before


def test_a_file_that_cannot_be_changed_in_place_is_left_as_it_is(study):
    file = study("optimizer: tpe\n")
    in_braces = json.dumps(yaml.safe_load(file.read_text())) + "\n"
    file.write_text(in_braces)
    refused = autorl("prior", "use", "mine", file, code=2).stderr
    assert "cannot be changed in place; it takes optimizer: " in refused
    assert file.read_text() == in_braces
    as_json_file = file.rename(file.with_suffix(".json"))
    autorl("prior", "use", "mine", as_json_file)
    assert json.loads(as_json_file.read_text())["optimizer"]["prior"] == ["mine"]
