"""Trainers of other packages: named as `module:Class`, or registered as an entry point."""

import json
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autorl import trainers, tune
from autorl.cli import app
from autorl.core.types import InputError, TrainerSpec
from autorl.study.setup import executor_name
from autorl.study.spec import load_spec
from autorl.trainers.registry import GROUP

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"


def block(language):
    """The trainer's code block of a language in the document, as a user would copy it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return next(text for text in blocks if "HillTrainer" in text)


@pytest.fixture
def study_file(tmp_path, monkeypatch):
    (tmp_path / "my_trainers.py").write_text(block("python"))
    (tmp_path / "study.yaml").write_text(block("yaml"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # what a study appends is taken away again
    monkeypatch.delitem(sys.modules, "my_trainers", raising=False)
    trainers.load.cache_clear()
    yield tmp_path / "study.yaml"
    sys.modules.pop("my_trainers", None)
    trainers.load.cache_clear()


def test_the_documents_trainer_is_tuned_from_its_study_file(study_file):
    options = {"executor__name": "in_process", "seeds__test": 2, "seeds__tuning": 1}
    result = tune(study_file, out=study_file.parent / "s", **options)
    assert result.test is not None
    assert abs(result.incumbent.config["x"] - 0.3) < 0.2
    assert load_spec(study_file).steps == "environment steps"


def test_a_registered_trainer_has_its_name_in_the_list_and_in_study_files(study_file, monkeypatch):
    monkeypatch.syspath_prepend(str(study_file.parent))
    points = [
        EntryPoint("hills/steep", "my_trainers:HillTrainer", GROUP),
        EntryPoint("sb3/ppo", "my_trainers:HillTrainer", GROUP),
        EntryPoint("hills/broken", "my_trainers:Nothing", GROUP),
    ]
    monkeypatch.setattr("autorl.core.plugins._installed", lambda group, path: points)
    listed = trainers.names()
    assert listed["hills/steep"] == "climbs a hill: the score grows with every step"
    assert listed["hills/broken"].startswith("cannot be imported: AttributeError")
    assert "Stable-Baselines3" in listed["sb3/ppo"]
    assert type(trainers.load(TrainerSpec("hills/steep"))).__name__ == "HillTrainer"
    assert trainers.info("hills/steep").step_unit == "environment_steps"
    text = study_file.read_text().replace("my_trainers:HillTrainer", "hills/steep")
    study_file.write_text(text)
    assert executor_name(load_spec(study_file)) == "processes"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Trainer", "cannot be imported: ModuleNotFoundError"),
        ("json:JSONDecoder", "is no trainer: expected a subclass of autorl.trainers.Trainer"),
        ("json:nothing", "cannot be imported: AttributeError"),
        ("hills/step", "unknown trainer 'hills/step'"),
    ],
)
def test_what_is_no_trainer_is_one_line(tmp_path, name, message):
    assert json.JSONDecoder  # the module is there: it is the class that is none
    with pytest.raises(InputError, match=re.escape(message)) as error:
        trainers.load(TrainerSpec(name))
    assert "\n" not in str(error.value)
    assert trainers.info(name).step_unit is None


def test_a_study_whose_trainer_is_not_installed_can_be_looked_at(study_file):
    folder = str(study_file.parent / "s")
    options = {"executor__name": "in_process", "seeds__test": 2, "seeds__tuning": 1}
    tune(study_file, out=folder, **options)
    (study_file.parent / "my_trainers.py").unlink()
    sys.modules.pop("my_trainers", None)
    trainers.load.cache_clear()
    for command in (["watch", folder, "--once"], ["best", folder, "--format", "kwargs"]):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, done.exception) == (0, None), done.output
