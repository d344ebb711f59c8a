"""The blocks of docs/coming-from-hydra-and-optuna.md run."""

import re
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import yaml

from autorl.study.callbacks import SHORT_NAMES, Callback

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "coming-from-hydra-and-optuna.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)


def blocks(kind):
    return [text for name, text in BLOCKS if name == kind]


def test_the_program_mirrors_its_study(tmp_path):
    (program,) = blocks("python")
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "raised" not in done.stderr
    study = optuna.load_study(study_name="hills", storage=f"sqlite:///{tmp_path}/trials.db")
    states = {trial.state.name for trial in study.get_trials()}
    assert states == {"COMPLETE", "PRUNED"}
    last = study.best_trial.user_attrs["proposals"][-1]
    assert str(last) == study.user_attrs["incumbent_proposal"]


def test_the_section_is_that_of_the_example():
    sweep, _, of_hydra = blocks("yaml")
    assert sweep == (ROOT / "examples" / "hydra" / "configs" / "app.yaml").read_text()
    assert yaml.safe_load(of_hydra)["callbacks"][0]["_target_"].endswith(".OptunaStorage")


def test_the_callback_of_a_study_file_is_there():
    (entry,) = yaml.safe_load(blocks("yaml")[1])["callbacks"]
    ((name, arguments),) = entry.items()
    module, _, kind = SHORT_NAMES[name].partition(":")
    callback = getattr(__import__(module, fromlist=[kind]), kind)
    assert issubclass(callback, Callback)
    assert arguments == {"storage": "sqlite:///trials.db"}


def test_the_keys_of_a_sweep_are_those_of_the_plugin():
    pytest.importorskip("hydra", reason="needs hydra-core, of the extra `hydra`")
    from dataclasses import fields

    from hydra_plugins.autorl_sweeper.sweeper import AutorlSweeperConf

    table = TEXT[TEXT.index("| key of `hydra.sweeper`") : TEXT.index("An argument such as")]
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.M))))
    keys = {item.name for item in fields(AutorlSweeperConf) if not item.name.startswith("_")}
    assert keys - named == {"budget", "resume", "sweeper_kwargs"}
