"""space, trainers, optimizers, doctor, help."""

import subprocess
import sys

import pytest
import yaml
from cli_support import SPACE, as_json, autorl

from autorl import optimizers, trainers
from autorl.cli import app
from autorl.space import load_space


def test_a_space_is_printed_with_its_rules_and_samples(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**SPACE, "constraints": ["rate <= x + 1"]}))
    text = autorl("space", path, "--sample", 3).stdout
    for part in ("0.0001 to 1", "log", "a, b", "kind == b", "rate <= x + 1"):
        assert part in text
    found = as_json("space", path, "--sample", 3)
    space = load_space(path)
    assert found["hash"] == space.hash
    assert len(found["samples"]) == 3
    assert all(space.is_valid(config) for config in found["samples"])
    assert found["samples"] == as_json("space", path, "--sample", 3)["samples"]
    assert found["samples"] != as_json("space", path, "--sample", 3, "--seed", 1)["samples"]


def test_a_wrong_space_names_file_and_line(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("hyperparameters:\n  x: {type: float, lower: 1.0, upper: 0.0}\n")
    error = autorl("space", path, code=2).stderr
    assert error.startswith(f"autorl: {path}:2: hyperparameters.x")
    assert error.count("\n") == 1


def test_a_search_space_is_no_study(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SPACE))
    assert "is a search space, not a study" in autorl("tune", path, code=2).stderr


def test_every_trainer_is_listed():
    assert as_json("trainers") == trainers.names()
    text = autorl("trainers").stdout
    assert all(name in text for name in trainers.names())


def test_every_optimizer_is_listed_with_its_options():
    found = {one["name"]: one for one in as_json("optimizers")["optimizers"]}
    assert set(found) | set(as_json("optimizers")["not_installed"]) == set(optimizers.names())
    options = {option.name for option in optimizers.describe("tpe").options}
    assert {option["name"] for option in found["tpe"]["options"]} == options
    text = autorl("optimizers", "tpe").stdout
    assert all(name in text for name in options)
    assert "hyperband" not in text


def test_an_unknown_optimizer_is_bad_input():
    assert "'tpe'" in autorl("optimizers", "tppe", code=2).stderr


def test_the_doctor_finds_this_installation_sound(tmp_path):
    checks = {check["name"]: check for check in as_json("doctor", "--out", tmp_path)}
    assert {
        "python",
        "autorl",
        "core",
        "cores",
        "cuda",
        "write permission",
        "child processes",
    } <= set(checks)
    assert checks["core"]["verdict"] == "ok"
    assert "optuna" in checks["core"]["detail"]
    assert checks["child processes"]["verdict"] == "ok"


def test_the_doctor_fails_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    checks = {
        check["name"]: check
        for check in as_json("doctor", "--out", tmp_path / "file" / "studies", code=1)
    }
    assert checks["write permission"]["verdict"] == "broken"


def test_algorithms_are_named_to_be_compiled():
    error = autorl("doctor", "ppo", code=2).stderr
    assert "autorl doctor --warm ppo" in error
    assert error.count("\n") == 1


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
    commands = [command.name or command.callback.__name__ for command in app.registered_commands]
    text = autorl("--help").stdout
    assert all(f"  {name} " in text for name in commands)
    assert autorl().stdout == text
    assert "..." not in text.split("Commands:")[1]
    for name in commands:
        assert "Usage: " in autorl(name, "--help").stdout


def test_the_version_is_the_package_s():
    from autorl import __version__

    assert autorl("--version").stdout == f"autorl {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["tune"], "FILE|SPACE"),
        (["tune", "a.yaml", "--wrong"], "--wrong"),
        (["tune", "a.yaml", "--runs", "many"], "--runs"),
        (["best", "x", "--top", "0"], "--top"),
        (["tunee"], "tunee"),
        (["resume", "x", "--workers", "0"], "--workers"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, part):
    error = autorl(*arguments, code=2).stderr
    assert part in error
    assert error.count("\n") == 1
