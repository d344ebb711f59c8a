"""Secrets of a study file stand in `study.yaml` and nowhere else; what is shared names no folder of the machine."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from autorl.cli import app
from autorl.core import masking
from autorl.core.masking import masked, variables_by_name, without_folders
from autorl.core.types import FrozenMap, InputError, TrainerSpec
from autorl.trainers import load as load_trainer

SECRET = "b7c1-secret-of-mine-4f"
SCRIPT = """
import json, os, sys
values = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if float(values["--x"]) > 0.5:
    sys.exit("no access with " + os.environ["API_KEY"])
print(json.dumps({"step": int(values["--until"]), "eval_return": float(values["--x"])}))
"""


def autorl(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def study(folder, variables):
    (folder / "train.py").write_text(SCRIPT)
    kwargs = {
        "command": f"{{python}} {folder / 'train.py'} --until {{until}} --seed {{seed}} --api-key {SECRET}",
        "metrics": {"step": "step", "map": {"eval_return": "eval_return"}},
        "environment_variables": variables,
    }
    content = {
        "trainer": {"name": "command", "kwargs": kwargs},
        "environment": {
            "id": "mine",
            "kwargs": {"hub_token": SECRET, "data": str(folder / "data.csv")},
        },
        "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.1}},
        "fidelity": {"steps": 4, "evaluations": 1},
        "budget": {"runs": 3},
        "seeds": {"tuning": 1, "test": 2},
        "optimizer": "random",
        "executor": {"name": "in_process"},
        "landscape": {"id": "me/command/mine", "licence": "CC0", "creator": "me"},
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_a_secret_is_in_the_study_file_and_nowhere_else(tmp_path):
    file, folder = study(tmp_path, {"API_KEY": SECRET, "MODE": "offline"}), tmp_path / "out"
    shown = [autorl("tune", file, "--dry-run", *more).output for more in ((), ("--json",))]
    shown.append(autorl("tune", file, "--out", folder, "-q").output)
    shown += [autorl(command, folder).output for command in ("best", "report")]
    shown.append(autorl("watch", folder, "--once").output)
    shown += [autorl(command, folder, "--json").output for command in ("watch", "resume")]
    assert "no access with ***" in shown[5], "a failure that quotes the secret"
    from autorl.landscapes import from_study

    from_study(folder, tmp_path / "landscapes")
    written = [*folder.rglob("*"), *(tmp_path / "landscapes").rglob("*")]
    files = [path for path in written if path.is_file() and path.parent.name != "logs"]
    holding = [path for path in files if SECRET.encode() in path.read_bytes()]
    assert holding == [folder / "study.yaml"]
    assert not [text for text in shown if SECRET in text]
    report = (folder / "report.html").read_text()
    manifest = (tmp_path / "landscapes/me/command/mine/manifest.json").read_text()
    for text in (report, manifest):
        assert "API_KEY" in text
        assert "--api-key ***" in text
        assert "offline" not in text
        assert str(tmp_path) not in text
        assert ".../train.py" in text
    assert json.loads(manifest)["trainer"]["environment"]["kwargs"] == {
        "hub_token": "***",
        "data": ".../data.csv",
    }


def test_a_variable_without_a_value_is_that_of_the_process(tmp_path, monkeypatch):
    file, folder = study(tmp_path, {"API_KEY": None}), tmp_path / "out"
    monkeypatch.delenv("API_KEY", raising=False)
    for arguments in (("tune", file, "--out", folder), ("tune", file, "--dry-run")):
        refused = autorl(*arguments)
        assert refused.exit_code == 2
        line = f"autorl: {file}:11: trainer.kwargs.environment_variables.API_KEY: has no value here and is not set"
        assert refused.stderr.startswith(line), refused.output
        assert len(refused.stderr.splitlines()) == 1
        assert not folder.exists()
    monkeypatch.setenv("API_KEY", SECRET)
    done = autorl("tune", file, "--out", folder, "-q")
    assert done.exit_code == 0, done.output
    assert "no access with ***" in autorl("watch", folder, "--once").output
    assert yaml.safe_load((folder / "study.yaml").read_text())["trainer"]["kwargs"][
        "environment_variables"
    ] == {"API_KEY": None}
    monkeypatch.delenv("API_KEY")
    load_trainer.cache_clear()  # as in another process
    resumed = autorl("resume", folder, "--runs", "+1", "-q")
    assert resumed.exit_code == 2, "no run is trained, and failed, without it"
    assert len(resumed.stderr.splitlines()) == 1
    assert autorl("watch", folder, "--once").exit_code == 0


@pytest.mark.parametrize(
    "given",
    [
        ["API_KEY"],
        SECRET,
        {"": SECRET},
        {"A=B": SECRET},
        {"A": [SECRET]},
        {"A": {"B": SECRET}},
        {"A": SECRET + "\0"},
    ],
)
def test_variables_that_are_none_are_refused_without_their_values(given):
    options = FrozenMap(command="train {seed} {until}", metrics={}, environment_variables=given)
    with pytest.raises(InputError) as error:
        load_trainer(TrainerSpec("command", options))
    assert "trainer.kwargs.environment_variables" in str(error.value)
    assert SECRET not in str(error.value)


MASKED = {
    "train.py --api-key abc --lr 3": "train.py --api-key *** --lr 3",
    "--verbose --wandb_api_key=a=b y": "--verbose --wandb_api_key=*** y",
    "--hub-token 'a b' --z": "--hub-token *** --z",
    "pull https://me:word@host/x": "pull https://***@host/x",
    "HF_TOKEN=abcdef python t.py": "HF_TOKEN=*** python t.py",
    "--lr 0.1 --password hunter2": "--lr 0.1 --password ***",
    "the secret garden": "the secret garden",
    "pad_token=x --eos-token y --tokens 5": "pad_token=x --eos-token y --tokens 5",
}


@pytest.mark.parametrize("text", MASKED)
def test_secrets_of_command_lines_are_masked(text):
    assert masked(text) == MASKED[text]
    assert masked([text]) == [MASKED[text]]


def test_secrets_of_mappings_and_lists_are_masked():
    arguments = ["t.py", "--api-key", "***", "--lr", "1"]
    assert masked(["t.py", "--api-key", "abc", "--lr", "1"]) == arguments
    given = {"hub_token": "x", "pad_token": "p", "token": "t", "password": 7}
    given |= {"secret_weight": 0.1, "max_tokens": 4}
    after = given | {"hub_token": "***", "token": "***", "password": "***"}
    assert masked({"kwargs": given}) == {"kwargs": after}
    variables = "environment_variables"
    assert masked({variables: {"A": "x", "B": None}}) == {variables: {"A": "***", "B": None}}
    assert masked({variables: ["A=x"]}) == {variables: "***"}
    named = {"trainer": {"kwargs": {variables: {"A": None}, "n": [1]}}}
    assert variables_by_name({"trainer": {"kwargs": {variables: {"A": "x"}, "n": [1]}}}) == named


FOLDERS = {
    "/home/me/x/train.py": ".../train.py",
    "/home/my stuff/train.py": ".../train.py",
    "python /home/me/train.py --out /tmp/x": "python .../train.py --out .../x",
    "FileNotFoundError: '/home/me/s/a.txt'": "FileNotFoundError: '.../a.txt'",
    "~/x/y.py": ".../y.py",
    "{python} a/b.py": "{python} a/b.py",
    "http://a/b/c": "http://a/b/c",
    "sb3/ppo and 3/4": "sb3/ppo and 3/4",
    "/": "/",
}


@pytest.mark.parametrize("text", FOLDERS)
def test_folders_of_the_machine_are_cut(text):
    assert without_folders(text) == FOLDERS[text]


def test_a_shared_study_file_keeps_its_space():
    space = {"file": {"type": "categorical", "choices": ["/data/set/a", "/data/set/b"]}}
    document = {
        "path": "/home/me",
        "algorithms": {"a": {"trainer": {"kwargs": {"x": "/a/b/c"}}, "space": space}},
    }
    assert masking.shareable(document | {"space": space}) == {
        "algorithms": {"a": {"trainer": {"kwargs": {"x": ".../c"}}, "space": space}},
        "space": space,
    }


def test_only_long_values_are_masked_in_messages():
    after = masking.without_values("key abcdefgh, mode on", ["abcdefgh", "on", ""])
    assert after == "key ***, mode on"
