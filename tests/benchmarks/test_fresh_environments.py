"""Every extra is tried in a fresh environment, by tests that are there."""

import tomllib
import zipfile

import fresh_environments
from fresh_environments import TRIALS
from new_user import REPOSITORY

METADATA = """\
Name: small
Requires-Dist: numpy>=2.0
Requires-Dist: typer!=0.17.0,>=0.15.4
Provides-Extra: offline
Requires-Dist: minari[hdf5]>=0.5.3; extra == 'offline'
Provides-Extra: bare
"""


def test_every_extra_has_a_trial():
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert {*TRIALS} == {"core", *declared["optional-dependencies"]} - {"all"}


def test_the_tests_of_a_trial_are_there():
    files = [part for trial in TRIALS.values() for part in trial.tests if part.startswith("tests/")]
    assert len(files) > len(TRIALS) / 2
    assert [name for name in files if not (REPOSITORY / name).exists()] == []


def test_what_a_wheel_asks_for_is_read_by_extra(tmp_path):
    wheel = tmp_path / "small-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small-1.dist-info/METADATA", METADATA)
    assert fresh_environments.required(wheel) == {
        "core": ["numpy>=2.0", "typer!=0.17.0,>=0.15.4"],
        "offline": ["minari[hdf5]>=0.5.3"],
        "bare": [],
    }


class Broken:
    """An environment in which nothing can be imported."""

    def __init__(self, scratch):
        self.scratch = scratch

    def make(self, extra):
        return self.scratch / extra

    def versions(self, extra, venv):
        return f"{extra} 1.0"

    def tried(self, extra, venv):
        if extra == "smac":
            raise fresh_environments.StepError("python -c: No module named 'smac'")
        return "3 passed"


def test_a_failed_step_is_a_row_and_the_next_extra_is_tried(tmp_path, capsys):
    assert not fresh_environments.rows(Broken(tmp_path), ["smac", "ray"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("| smac | smac 1.0 | FAILED: python -c: No module named 'smac' |")
    assert second.startswith("| ray | ray 1.0 | 3 passed |")
