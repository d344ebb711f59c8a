"""Text of a file or a script reaches the terminal as text: no escapes are obeyed, no line can pass for one of ours."""

import csv
import json

import pytest
import yaml
from cli_support import autorl

from autorl.landscapes import Landscape
from autorl.landscapes.export import export_table

CLEAR, TITLE = "\x1b[2J\x1b[H", "\x1b]0;owned\x07"
HOSTILE = f"{CLEAR}a\nstate        forged\r{TITLE}\u202e"
MODULE = f"""
from autorl.core.types import InputError
TEXT = {HOSTILE!r}
def f(config, *, seed):
    if config["x"] > 0.5:
        raise InputError(TEXT)
    if config["x"] > 0.4:
        raise RuntimeError(TEXT)
    return {{"b\\x1b[31mad": config["x"], "eval_return": config["x"]}}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study whose messages, metrics, choices and environment hold control characters."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_trainer.py").write_text(MODULE)
    content = {
        "name": "small",
        "trainer": "python:hostile_trainer:f",
        "environment": {"id": f"Cart{CLEAR}Pole"},
        "space": {
            "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.2},
            "kind": {
                "type": "categorical",
                "choices": [f"a\n  test score (IQM)  999{CLEAR}", "=1+1", "＝1+1"],
            },
        },
        "objective": [{"metric": "eval_return"}, {"metric": "b\x1b[31mad"}],
        "fidelity": {"steps": 1, "evaluations": 1},
        "budget": {"runs": 8},
        "seeds": {"tuning": 1, "test": 2},
        "optimizer": "random",
        "executor": {"name": "in_process"},
        "landscape": {
            "id": "me/f/bowl",
            "description": f"=cmd|' /C calc'!A0{CLEAR}",
            "licence": HOSTILE,
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    return folder / "out", shown("tune", folder / "study.yaml", "--out", folder / "out", "-q")


def shown(*arguments):
    return autorl(*arguments).output


def control_characters(text):
    return {char for char in text if not char.isprintable() and char not in "\n\t"}


def forged(text):
    """Lines that the study's own text made up."""
    lines = ("state        forged", "  test score (IQM)  999")
    return [line for line in text.splitlines() if line.startswith(lines)]


def test_a_result_and_a_status_obey_no_text_of_the_study(study):
    folder, result = study
    for text in (
        result,
        shown("watch", folder, "--once"),
        shown("watch", folder),
        shown("best", folder, "--format", "table"),
        shown("resume", folder),
    ):
        assert not control_characters(text), text
        assert not forged(text), text
    status = shown("watch", folder, "--once")
    assert "\\x1b[2J" in status
    states = [line.split() for line in status.splitlines() if line.startswith("state")]
    assert states == [["state", "finished"]]


@pytest.mark.parametrize("style", ["yaml", "json", "kwargs", "cli", "table"])
def test_no_format_of_best_holds_control_characters(study, style):
    assert not control_characters(shown("best", study[0], "--format", style))


def test_a_dry_run_and_a_space_obey_no_text(study, tmp_path):
    folder, _ = study
    assert not control_characters(shown("tune", folder.parent / "study.yaml", "--dry-run"))
    document = yaml.safe_load((folder / "study.yaml").read_text())["space"]
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(document))
    text = shown("list", "spaces", tmp_path / "space.yaml", "--sample", 3)
    assert not control_characters(text)
    assert not forged(text), text


def test_a_landscape_obeys_no_text_and_its_csv_holds_no_formula(study, tmp_path):
    folder, _ = study
    for command in (["info"], ["best"], ["top"], ["validate"], ["query", "select * from configs"]):
        text = shown("landscape", command[0], folder, *command[1:])
        assert not control_characters(text), command
        assert not forged(text), text
    target = tmp_path / "table.csv"
    export_table(Landscape(folder), target)
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {row["kind"] for row in rows}
    assert {"'=1+1", "'＝1+1"} <= kinds
    assert not [kind for kind in kinds if kind.startswith(("=", "＝", "+", "-", "@"))]


def test_json_escapes_what_it_holds(study):
    text = shown("watch", study[0], "--json")
    assert not control_characters(text)
    assert any("\x1b" in failure["message"] for failure in json.loads(text)["failures"])
