"""Small studies on the synthetic trainer, run through the command line in this process."""

import copy
import json
import sqlite3
from pathlib import Path

import yaml
from small_studies import MIXED, OF_MIXED
from typer.testing import CliRunner

from autorl.cli import app

SPACE = copy.deepcopy(MIXED)
SPACE["hyperparameters"]["x"]["default"] = 0.1
STUDY = {**OF_MIXED, "space": SPACE, "seeds": {"tuning": 2, "test": 6}}


def study_file(folder: Path, name: str = "small.yaml", /, **changes) -> Path:
    """A study file of 8 proposals x 2 tuning seeds, then 6 test seeds; `changes` are its keys."""
    path = folder / name
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    return path


def autorl(*arguments, code=0):
    """Run `autorl` in this process: no exception may get out, and bad input is said in one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}"
    assert code != 2 or result.stderr.count("\n") == 1, result.stderr
    return result


def as_json(*arguments, code=0):
    """Run `autorl ... --json`; standard output must be one JSON document."""
    return json.loads(autorl(*arguments, "--json", code=code).stdout)


def finished_study(folder: Path, out: str = "study", **changes) -> Path:
    """A study that ran to its end."""
    autorl("tune", study_file(folder, **changes), "--out", folder / out, "--quiet")
    return folder / out


def query(folder: Path, sql: str, *parameters):
    """SQL over a study's database, by the standard library alone."""
    with sqlite3.connect(folder / "study.sqlite") as connection:
        return connection.execute(sql, parameters).fetchall()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
