"""Wheel and sdist hold what users need, and nothing that is not theirs."""

import subprocess
import sys
import tomllib
import zipfile

import new_user
import pytest
import yaml


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    pytest.importorskip("hatchling", reason="builds the packages by hatchling, which is missing")
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=new_user.REPOSITORY,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.slow
def test_packages_hold_what_they_need_and_no_more(packages, capsys):
    new_user.check_contents(packages)
    assert "contents of the packages" in capsys.readouterr().out
    (wheel,) = packages.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = [name for name in names if name.startswith("autorl/_shipped/")]
    for room in ("landscapes", "priors", "search_spaces"):
        tracked = subprocess.run(
            ["git", "ls-files", room],
            cwd=new_user.REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert {f"autorl/_shipped/{name}" for name in tracked} <= {*shipped}
        assert len(tracked) > 1


def test_the_recipe_of_conda_asks_for_what_the_core_needs():
    recipe = yaml.safe_load((new_user.REPOSITORY / "tools/conda/recipe.yaml").read_text())
    project = tomllib.loads((new_user.REPOSITORY / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == project["version"]
    run = [line.replace(" ", "").removeprefix("python-") for line in recipe["requirements"]["run"]]
    assert sorted(run) == sorted([f"python{project['requires-python']}", *project["dependencies"]])
