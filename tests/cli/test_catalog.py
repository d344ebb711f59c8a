"""list, doctor, help."""

import subprocess
import sys
from dataclasses import fields

import pytest
import yaml
from cli_support import SPACE, as_json, autorl

from autorl import __version__, optimizers, trainers
from autorl.cli import checkup
from autorl.cli.app import SECTIONS
from autorl.space import load_space
from autorl.trainers.command import Options


def test_a_space_is_printed_with_its_rules_and_samples(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**SPACE, "constraints": ["rate <= x + 1"]}))
    text = autorl("list", "spaces", path, "--sample", 3).stdout
    for part in ("0.0001 to 1", "log", "a, b", "kind == b", "rate <= x + 1"):
        assert part in text
    found = as_json("list", "spaces", path, "--sample", 3)
    space = load_space(path)
    assert found["hash"] == space.hash
    assert len(found["samples"]) == 3
    assert all(space.is_valid(config) for config in found["samples"])
    assert found["samples"] == as_json("list", "spaces", path, "--sample", 3)["samples"]
    other = as_json("list", "spaces", path, "--sample", 3, "--seed", 1)
    assert found["samples"] != other["samples"]
    assert "is a search space, not a study" in autorl("tune", path, code=2).stderr
    assert "sb3/ppo" in as_json("list", "spaces")
    assert autorl("list", "spaces").stdout.split() == as_json("list", "spaces")


def test_a_wrong_space_names_file_and_line(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("hyperparameters:\n  x: {type: float, lower: 1.0, upper: 0.0}\n")
    error = autorl("list", "spaces", path, code=2).stderr
    assert error.startswith(f"autorl: {path}:2: hyperparameters.x")


def test_every_trainer_is_listed():
    assert as_json("list", "trainers") == trainers.names()
    text = autorl("list", "trainers").stdout
    assert all(name in text for name in trainers.names())


@pytest.mark.parametrize("name", ["command", "population/ppo", "python:lane:train", "synthetic"])
def test_a_trainer_is_printed_with_its_options(name):
    text = autorl("list", "trainers", name).stdout
    assert text.startswith(f"{name}: {trainers.info(name).description}")
    assert "`trainer.kwargs`" in text or "kwargs: {" in text
    assert as_json("list", "trainers", name)["documentation"] in text


def test_the_options_of_a_command_are_all_explained():
    text = autorl("list", "trainers", "command").stdout
    names = [option.name for option in fields(Options)]
    assert [name for name in names if f"{name}:" not in text and f"{name}," not in text] == []
    keys = ("from", "path", "step", "step_scale", "rank", "map")
    assert [key for key in keys if f"`{key}`" not in text] == []
    assert "did you mean 'command'" in autorl("list", "trainers", "comand", code=2).stderr


def test_every_optimizer_is_listed_with_its_options():
    listed = as_json("list", "optimizers")
    found = {one["name"]: one for one in listed["optimizers"]}
    assert {*found, *listed["not_installed"]} == {*optimizers.names()}
    options = {option.name for option in optimizers.describe("tpe").options}
    assert {option["name"] for option in found["tpe"]["options"]} == options
    text = autorl("list", "optimizers", "tpe").stdout
    assert all(name in text for name in options)
    assert "hyperband" not in text
    assert "'tpe'" in autorl("list", "optimizers", "tppe", code=2).stderr


def test_the_doctor_finds_this_installation_sound(tmp_path):
    checks = {check["name"]: check for check in as_json("doctor", "--out", tmp_path)}
    names = {"python", "autorl", "core", "cores", "cuda", "write permission", "child processes"}
    assert names <= set(checks)
    assert checks["core"]["verdict"] == "ok"
    assert "optuna" in checks["core"]["detail"]
    assert checks["child processes"]["verdict"] == "ok"


def test_the_doctor_looks_for_the_parts_of_packages(tmp_path, monkeypatch):
    """`gymnasium[box2d]` asks for more than Gymnasium; markers say for which Python and system."""
    asked = {
        "autorl": [
            "absent>=2",
            "whole[one,two]>=1; extra == 'suite'",
            "whole[two]; extra == 'part'",
        ],
        "whole": [
            "inner<2; python_version < '3.99' and extra == 'one'",
            "later; python_version >= '3.99' and extra == 'one'",
            "elsewhere; platform_system == 'None' and extra == 'one'",
            'found; extra == "two"',
        ],
        "found": [],
    }
    for name, lines in asked.items():
        (tmp_path / f"{name}-9.dist-info").mkdir()
        required = "".join(f"Requires-Dist: {line}\n" for line in lines)
        extras = "Provides-Extra: suite\nProvides-Extra: part\n"
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n{extras}{required}"
        (tmp_path / f"{name}-9.dist-info" / "METADATA").write_text(head)
    monkeypatch.syspath_prepend(tmp_path)
    checks = {name: (verdict, detail) for name, verdict, detail in checkup._packages()}
    assert checks == {
        "autorl": ("ok", "9"),
        "core": ("broken", "absent not installed: pip install absent"),
        "suite": ("missing", 'inner not installed: pip install "autorl[suite]"'),
        "part": ("ok", "whole 9, found 9"),
    }


def test_the_doctor_fails_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    found = as_json("doctor", "--out", tmp_path / "file" / "studies", code=1)
    checks = {check["name"]: check["verdict"] for check in found}
    assert checks["write permission"] == "broken"


def test_help_of_the_doctor_needs_no_compiler():
    code = (
        "import sys; from autorl.cli.app import app\n"
        "try: app(['doctor', '--help'])\n"
        "except SystemExit: print(sorted({'numba', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--warm" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_help_lists_every_command_and_its_options():
    commands = [name for section in SECTIONS.values() for name in section]
    text = autorl("--help").stdout
    assert all(f"  {name} " in text for name in commands)
    assert autorl().stdout == text
    assert autorl("--version").stdout == f"autorl {__version__}\n"
    assert "..." not in text.split("A study:")[1]
    for name in commands:
        assert "Usage: " in autorl(name, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["tune"], "FILE|SPACE"),
        (["tune", "a.yaml", "--wrong"], "--wrong"),
        (["tune", "a.yaml", "--runs", "10%"], "--runs: should be a number, got '10%'"),
        (["tune", "a.yaml", "--seed", "x"], "--seed: should be a whole number, got 'x'"),
        (["best", "x", "--top", "0"], "--top"),
        (["tunee"], "tunee"),
        (["resume", "x", "--workers", "0"], "--workers: should be greater than or equal to 1"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, part):
    assert part in autorl(*arguments, code=2).stderr
