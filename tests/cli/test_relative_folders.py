"""Studies in folders named relative to the working folder, and trainers that work in another."""

import textwrap

import pytest
import yaml
from cli_support import as_json, autorl, query

SCRIPT = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--seed", type=int)
parser.add_argument("--until", type=int)
parser.add_argument("--load", default="")
parser.add_argument("--save", default="")
args = parser.parse_args()
step = int(pathlib.Path(args.load, "step").read_text()) if args.load else 0
for step in range(step + 1, args.until + 1):
    print(json.dumps({"step": step, "eval_return": args.x * step + args.seed}))
if args.save:
    pathlib.Path(args.save, "step").write_text(str(step))
"""
COMMAND = """
trainer:
  name: command
  kwargs:
    command: "{python} script.py"
    seed_flag: --seed
    steps_flag: --until
    checkpoint_flag: --load
    save_flag: --save
    metrics: {step: step}
"""
FUNCTION = """
import os
from pathlib import Path

def f(config, *, seed, until, start, checkpoint=None, folder=None):
    os.chdir("/")
    step = int(Path(checkpoint, "step").read_text()) if checkpoint else 0
    assert step == start
    if folder:
        Path(folder, "step").write_text(str(until))
    return config["x"] * until + seed
"""
REST = """
name: relative
space: {hyperparameters: {x: {type: float, lower: 0, upper: 1}}}
fidelity: {steps: 8, evaluations: 2}
budget: {runs: 4}
seeds: {tuning: 1, test: 1}
executor: {name: in_process}
test: {top: 0}
"""
FULL = "optimizer: random"
CUT = "optimizer: {name: random, stop: median, rungs: 2}"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "function.py").write_text(FUNCTION)
    return tmp_path


TRAINERS = {"command": COMMAND, "function": "trainer: {name: 'python:function:f'}\n"}


@pytest.mark.parametrize("out", [None, "out", "deep/out"])
@pytest.mark.parametrize("optimizer", [FULL, CUT], ids=["full", "cut"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_that_works_elsewhere_saves_in_the_study(here, trainer, optimizer, out):
    (here / "study.yaml").write_text(TRAINERS[trainer] + REST + optimizer)
    autorl("tune", "study.yaml", "--quiet", *(() if out is None else ("--out", out)))
    folder = here / (out or "studies/relative")
    rows = query(folder, "SELECT status, message, parent FROM segments")
    assert {(status, message) for status, message, _ in rows} == {("done", "")}
    assert any(parent for *_, parent in rows) == (optimizer == CUT), "rungs are continued"
    assert len(query(folder, "SELECT * FROM tests")) >= 1
    assert list((folder / "checkpoints").glob("*/step"))


def test_the_screen_names_the_folder_as_the_user_does_and_json_in_full(here):
    (here / "study.yaml").write_text(TRAINERS["command"] + REST + FULL)
    screen = autorl("tune", "study.yaml").stdout
    assert "autorl best studies/relative\n" in screen
    assert as_json("resume", "studies/relative")["folder"] == str(here / "studies" / "relative")


def test_a_result_finds_its_models_from_another_working_folder(here, monkeypatch):
    """`load_model` reads the folder again, long after `tune`."""
    import autorl as package

    study = yaml.safe_load("trainer: synthetic\n" + REST + FULL)
    result = package.tune(study, out="kept")
    monkeypatch.chdir("/")
    assert result.folder == here / "kept"
    with pytest.raises(package.InputError, match="has no models to export"):
        result.load_model()
