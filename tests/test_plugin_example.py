"""`examples/plugin`: a trainer and an optimizer in a package of their own, which nothing here knows."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autorl import trainers
from autorl.cli import app
from autorl.optimizers.registry import REGISTRY

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
MADE_BY_TOOLS = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")


@pytest.fixture
def example(tmp_path):
    return shutil.copytree(EXAMPLE, tmp_path / "plugin", ignore=MADE_BY_TOOLS)


@pytest.fixture
def site(example, monkeypatch):
    """A folder where the package is installed as an installer would, without building it."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    site = example.parent / "site"
    shutil.copytree(example / "hallway", site / "hallway")
    about = site / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir()
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(site))
    trainers.load.cache_clear()
    yield site
    for module in [name for name in sys.modules if name.split(".")[0] == "hallway"]:
        del sys.modules[module]
    trainers.load.cache_clear()


def autorl(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


def elsewhere(*arguments, path):
    """Run Python in a process of its own that finds the package in `path`; its standard output."""
    paths = [str(path), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_result(printed):
    """The search has found what the default lacks: a learning rate that learns."""
    result = json.loads(printed)
    assert result["difference_to_default"]["low"] > 0
    assert result["new_configurations"]["by_model"] > 0


def test_its_names_are_listed_and_described(site):
    assert "tabular Q-learning in a slippery hallway" in autorl("list", "trainers")
    assert "one_plus_one: Steps from the best configuration" in autorl("list", "optimizers")
    (described,) = json.loads(autorl("list", "optimizers", "one_plus_one", "--json"))["optimizers"]
    assert described["options"][0]["name"] == "step"
    assert "one_plus_one" not in REGISTRY


def test_its_study_is_tuned_by_the_command_line(site, example):
    folder = example / "out"
    file = example / "study.yaml"
    here = ("--set", "executor.name=in_process")
    check_result(autorl("tune", file, "--out", folder, "--json", *here))
    assert "hallway/q_learning" in autorl("watch", folder, "--once")


def test_it_passes_the_kits(site, example):
    printed = elsewhere("-m", "pytest", "-q", "-p", "no:cacheprovider", example, path=site)
    assert re.search(r"^\d+ passed", printed, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("pip", "setuptools"))),
    reason="pip or setuptools is not installed",
)
def test_it_is_installed_and_runs_in_processes_of_its_own(example):
    site = example.parent / "installed"
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", site)
    elsewhere("-m", "pip", "install", *options, example, path=site)
    listed = elsewhere("-m", "autorl", "list", "trainers", path=site)
    assert "hallway/q_learning" in listed
    study = ("-m", "autorl", "tune", example / "study.yaml", "--out", example / "out", "--json")
    check_result(elsewhere(*study, path=site))
