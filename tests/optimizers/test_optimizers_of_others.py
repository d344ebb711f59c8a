"""Optimizers of other packages: named as `module:Class`, or registered as an entry point."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from refusals import expect_error
from typer.testing import CliRunner

from autorl import tune
from autorl.cli import app
from autorl.optimizers import describe, find, names
from autorl.optimizers.registry import GROUP, REGISTRY
from autorl.study.spec import load_spec

MODULE = '''
"""Two optimizers of a user, and what is none."""

from dataclasses import dataclass

from autorl.optimizers import BaseOptimizer, option


@dataclass(frozen=True)
class Options:
    shrink: float = option(0.5, "factor of the range at each proposal", minimum=0.1, maximum=0.9)
    seed: int | None = option(None, "of the draws")


class Shrinking(BaseOptimizer[Options]):
    """Draws around the middle of the space, ever closer."""

    Options = Options
    lag_free = True

    def _ask(self, rng):
        width = self.options.shrink ** len(self.history)
        units = 0.5 + width * (rng.random(len(self.problem.space.names)) - 0.5)
        return self._propose(self.problem.space.from_unit(units), "shrinking")


class Abstract(BaseOptimizer[Options]):
    Options = Options


class OtherKind(Shrinking):
    search_kind = "guess"
'''
DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"
STUDY = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": 0.5}},
    "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
    "fidelity": {"steps": 20, "evaluations": 2},
    "optimizer": {"name": "my_optimizers:Shrinking", "shrink": 0.6},
    "budget": {"runs": 6},
    "seeds": {"tuning": 1, "test": 2},
    "executor": {"name": "in_process"},
}


@pytest.fixture
def study_file(tmp_path, monkeypatch):
    (tmp_path / "my_optimizers.py").write_text(MODULE)
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY))
    monkeypatch.setattr(sys, "path", [*sys.path])  # what a study appends is taken away again
    monkeypatch.delitem(sys.modules, "my_optimizers", raising=False)
    yield tmp_path / "study.yaml"
    sys.modules.pop("my_optimizers", None)


def block(language, file):
    """The code block of a document that begins with the name of a file, as a user would copy it."""
    return re.search(rf"```{language}\n# {file}.*?\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]


def change(study_file, **optimizer):
    study_file.write_text(yaml.safe_dump({**STUDY, "optimizer": optimizer}))


def test_a_class_beside_the_study_file_searches(study_file):
    result = tune(study_file, out=study_file.parent / "s")
    assert result.test is not None
    assert result.incumbent.config["x"] == pytest.approx(0.5, abs=0.1)


def test_the_documents_optimizer_searches_from_its_study_file(study_file):
    folder = study_file.parent
    (folder / "my_optimizers.py").write_text(block("python", "my_optimizers.py"))
    (folder / "neighbour.yaml").write_text(block("yaml", "neighbour.yaml"))
    options = {"executor__name": "in_process", "seeds__test": 2, "seeds__tuning": 1}
    result = tune(folder / "neighbour.yaml", out=folder / "s", **options)
    assert result.test is not None
    assert result.incumbent.config["x"] == pytest.approx(0.7, abs=0.1)
    # Not the default, and not the proposal that was made before any score was known.
    assert (result.share.new, result.share.modelled) == (16, 14)


def test_what_its_class_declares_is_asked_of_it(study_file):
    assert load_spec(study_file).parallelism == 8  # lag-free: not an eighth of the budget


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({"shrinks": 0.5}, "optimizer.shrinks", "did you mean 'shrink'"),
        ({"shrink": 2.0}, "optimizer.shrink", "expected float in [0.1, 0.9], got 2.0"),
        ({"horizon": 5}, "optimizer.horizon", "the options of my_optimizers:Shrinking:"),
        ({"name": "my_optimizers:Shrink"}, "optimizer.name", "cannot be imported: AttributeError"),
        ({"name": "my_optimizer:Shrinking"}, "optimizer.name", "ModuleNotFoundError"),
        ({"name": "my_optimizers:Abstract"}, "optimizer.name", "does not define _ask"),
        ({"name": "my_optimizers:Options"}, "optimizer.name", "is no optimizer: expected a sub"),
        ({"name": "my_optimizers:Shrinking:x"}, "optimizer.name", "no optimizer 'my_optimizers:"),
        ({"name": "leaves:Shrinking"}, "optimizer.name", "cannot be imported: SystemExit: 3"),
        ({"name": "my_optimizers:OtherKind"}, "optimizer.name", "search_kind 'guess': expected"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_place(study_file, options, key, message):
    change(study_file, **{"name": "my_optimizers:Shrinking", **options})
    assert (
        expect_error(re.escape(message), tune, study_file, out=study_file.parent / "s").key == key
    )
    assert not (study_file.parent / "s").exists()


@pytest.mark.parametrize("name", ["horizon", "space", "budget", "initial", "folder"])
def test_an_option_named_like_an_argument_of_ours_is_refused(name):
    study = {**STUDY, "optimizer": {"name": "random", name: 5}}
    assert expect_error("unknown option", tune, study).key == f"optimizer.{name}"


def test_a_registered_optimizer_has_its_name_in_the_list_and_in_study_files(
    study_file, monkeypatch
):
    monkeypatch.syspath_prepend(str(study_file.parent))
    points = [
        EntryPoint("shrinking", "my_optimizers:Shrinking", GROUP),
        EntryPoint("tpe", "my_optimizers:Shrinking", GROUP),
        EntryPoint("broken", "my_optimizers:Nothing", GROUP),
    ]
    monkeypatch.setattr("autorl.core.plugins._installed", lambda group, path: points)
    assert set(names()) == {*REGISTRY, "shrinking", "broken"}
    assert describe("shrinking").summary == "Draws around the middle of the space, ever closer."
    assert find("tpe").__module__ == "autorl.optimizers.tpe"
    change(study_file, name="shrinking")
    assert tune(study_file, out=study_file.parent / "s").test is not None
    listed = CliRunner().invoke(app, ["list", "optimizers"])
    assert listed.exit_code == 0, listed.output
    assert "shrinking: Draws around the middle" in listed.output
    assert "broken: not installed: 'broken' cannot be imported: AttributeError" in listed.output


def test_a_study_whose_optimizer_is_not_installed_can_be_looked_at(study_file):
    folder = study_file.parent / "s"
    tune(study_file, out=folder)
    (study_file.parent / "my_optimizers.py").unlink()
    sys.modules.pop("my_optimizers", None)
    for command in (["watch", str(folder), "--once"], ["best", str(folder), "--format", "yaml"]):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, done.exception) == (0, None), done.output
