"""Studies and landscapes of an earlier commit open, resume and end with the tables that commit gave them.

`make_fixtures.py` says what is stored and how. What may differ on a machine is said by `INSTALLATION`: with the same
packages and CPU type everything is equal to the bit. Elsewhere numbers of a `portable` study agree to 1e-9; those of
compiled or fitted code may drift, so of the others what was recorded before the kill has to stay as it was, and the
study has to end whole. Another hash of our own code is a caution of `resume`, never a refusal.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import sqlite3
import tarfile
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner
from llvmlite.binding import get_host_cpu_name
from stored_tables import QUERY, tables, without_session
from typer.main import get_command

from autorl.cli import app
from autorl.landscapes import from_study

HERE = Path(__file__).parent
INDEX = json.loads((HERE / "index.json").read_text(encoding="utf-8"))
STUDIES = INDEX["studies"]
PORTABLE = 1e-9  # relative, where CPU or packages are others
KEPT = {
    "configs": 4,
    "evals": 4,
    "segments": 13,
    "scores": 8,
}  # columns that no later event changes


@functools.cache
def same_installation(name: str) -> bool:
    """Whether packages and CPU type are those of the machine that wrote a study."""
    stored = STUDIES[name].get("installation", INDEX["installation"])
    return get_host_cpu_name() == stored["cpu"] and all(
        _version(name) == version for name, version in stored["packages"].items()
    )


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cases(names, states=lambda study: [None]):
    """A parameter for each state of each study, marked as the study is."""
    parameters = []
    for name in names:
        study = STUDIES[name]
        missing = [module for module in study["needs"] if not importlib.util.find_spec(module)]
        marks = [pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")]
        if study["slow"]:
            marks += [pytest.mark.slow, pytest.mark.cpu_seconds(600)]
        for state in states(study):
            values = (name,) if state is None else (name, state)
            parameters.append(pytest.param(*values, marks=marks, id="-".join(values)))
    return parameters


@pytest.fixture
def unpack(tmp_path, monkeypatch):
    """Unpacks a study where the process works from then on; returns what is expected of it."""

    def unpack(name):
        with tarfile.open(HERE / "studies" / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)  # for rewards, as in `python -m autorl`
        return json.loads(Path("expected.json").read_text(encoding="utf-8"))

    return unpack


COMMAND = get_command(app)  # once: typer makes it anew at every call of the app


def autorl(*arguments, code=0):
    """Run `autorl` in this process, and return what it prints."""
    result = CliRunner().invoke(COMMAND, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}"
    return result.stdout


def as_json(*arguments, code=0):
    return json.loads(autorl(*arguments, "--json", code=code))


def differences(stored, now, relative, place=""):
    """Where two JSON values differ: numbers by more than `relative`, everything else at all."""
    if isinstance(stored, dict) and isinstance(now, dict):
        keys = [*stored, *(key for key in now if key not in stored)]
        pairs = [(f"{place}.{key}", stored.get(key), now.get(key)) for key in keys]
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        numbered = enumerate(zip(stored, now, strict=True))
        pairs = [(f"{place}[{number}]", *pair) for number, pair in numbered]
    else:
        return [] if equal(stored, now, relative) else [f"{place}: {stored!r}, now {now!r}"]
    return [
        line for part, first, second in pairs for line in differences(first, second, relative, part)
    ]


def equal(stored, now, relative):
    """Whether two plain values are equal, floats within `relative`, and a NaN to itself."""
    if not (isinstance(stored, float) and isinstance(now, float)):
        return type(stored) is type(now) and stored == now
    both_nan = math.isnan(stored) and math.isnan(now)
    return both_nan or math.isclose(stored, now, rel_tol=relative)


def tolerance(name):
    return 0.0 if same_installation(name) else PORTABLE


@pytest.mark.parametrize(("name", "state"), cases(STUDIES, lambda study: study["states"][:-1]))
def test_an_interrupted_study_ends_with_the_same_tables(name, state, unpack):
    expected, folder = unpack(name), Path(state)
    before = tables(folder)
    status = as_json("status", folder)
    assert sum(status["proposals"].values()) == len(before["proposals"])
    assert json.loads(autorl("best", folder, "--format", "json"))
    autorl("resume", folder, "--quiet")
    result = without_session(as_json("resume", folder))
    assert as_json("verify", folder)["problems"] == []
    after = tables(folder)
    for table, columns in KEPT.items():
        for key, row in before[table].items():
            assert differences(row[:columns], after[table][key][:columns], 0.0) == []
    assert not [row for row in after["proposals"].values() if "pending" in row]
    if STUDIES[name]["portable"] or same_installation(name):
        stored = expected["tables_of"].get(state, expected["tables"])
        assert differences(stored, after, tolerance(name)) == []
        if state not in expected["tables_of"]:
            assert differences(without_session(expected["result"]), result, tolerance(name)) == []


@pytest.mark.parametrize("name", cases(STUDIES))
def test_a_finished_study_gives_the_same_result(name, unpack):
    expected, folder = unpack(name), Path("finished")
    assert differences(expected["tables"], tables(folder), 0.0) == []
    autorl("report", folder, "--html", "report.html")
    assert "</html>" in Path("report.html").read_text(encoding="utf-8")
    events = number_of_events(folder)
    result = without_session(as_json("resume", folder))
    assert differences(without_session(expected["result"]), result, tolerance(name)) == []
    best = json.loads(autorl("best", folder, "--top", 3, "--format", "json"))
    assert differences(expected["best"], best, tolerance(name)) == []
    assert number_of_events(folder) == events, "nothing is trained or recorded"


def test_why_the_search_of_a_stored_study_is_over_was_not_recorded(unpack):
    unpack("grid")
    folder = Path("finished")
    events = number_of_events(folder)
    assert as_json("status", folder)["search_end"] == "not_recorded"
    assert "search ended  not recorded" in autorl("status", folder)
    assert "search ended: not recorded" in autorl("resume", folder)
    assert as_json("verify", folder)["problems"] == []
    assert number_of_events(folder) == events
    autorl("resume", "interrupted-0", "--quiet")
    assert as_json("status", "interrupted-0")["search_end"] == "budget"
    assert as_json("verify", "interrupted-0")["problems"] == []


def number_of_events(folder):
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        return connection.execute("SELECT count(*) FROM event").fetchone()


WITH_LANDSCAPE = [name for name, study in STUDIES.items() if study["landscape"]]


@pytest.mark.parametrize("name", WITH_LANDSCAPE)
def test_a_landscape_answers_the_same_and_is_written_the_same(name, unpack):
    expected, landscape = unpack(name), STUDIES[name]["landscape"]
    folders = [Path("landscape", landscape), Path("again", landscape)]
    from_study("finished", "again", landscape, licence="CC0-1.0", creator="autorl")
    for folder in folders:
        assert as_json("landscape", "query", folder, QUERY) == expected["query"]
    assert as_json("landscape", "validate", folders[0]) == []
    unhashed = installed_otherwise(folders[1])
    problems = as_json("landscape", "validate", folders[1], code=1 if unhashed else 0)
    assert {problem["rule"] for problem in problems} <= {"provenance_recorded"}
    assert sorted(problem["message"].split()[1] for problem in problems) == unhashed
    assert as_json("landscape", "query", "finished", QUERY) == expected["study_query"]
    stored, now = (manifest_of(folder) for folder in folders)
    assert now == stored


def installed_otherwise(landscape):
    """Packages that made the study and are not installed in that version: nothing hashes these."""
    packages = json.loads((landscape / "manifest.json").read_text())["packages"]
    return sorted(name for name, made in packages.items() if made["version"] != installed(name))


def installed(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def manifest_of(landscape):
    """The manifest without hashes of installed packages: their scripts name the environment's folder."""
    manifest = json.loads((landscape / "manifest.json").read_text())
    packages = manifest.pop("packages")
    versions = {name: package["version"] for name, package in packages.items()}
    return manifest | {"versions": versions, "own package": packages["autorl"]}


CHANGES = {
    "configs": "config = replace(config, '\"x\":0.', '\"x\":0.1')",
    "proposals": "until = until - 1",
    "runs": "environment_steps = environment_steps + 1",
    "evals": "value = value + 1e-7",
    "segments": "from_step = from_step + 1",
    "scores": "last = last + 1e-7",
    "tests": "value = value + 1e-7",
}


@pytest.mark.parametrize("table", CHANGES)
def test_one_other_number_is_seen(table, unpack):
    """In one row: one number of its own makes a finished study another, and damaged."""
    expected, folder = unpack("random"), Path("finished")
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection, connection:
        key = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
        row = f"({', '.join(key)}) = (SELECT {', '.join(key)} FROM {table} LIMIT 1)"
        connection.execute(f"UPDATE {table} SET {CHANGES[table]} WHERE {row}")
    lines = differences(expected["tables"], tables(folder), PORTABLE)
    assert len({line.split(":")[0] for line in lines}) == 1
    assert lines[0].startswith(f".{table}.")
    assert as_json("verify", folder, code=1)["problems"]


def test_a_trainer_that_computes_other_numbers_is_seen(unpack, monkeypatch):
    from autorl.trainers.synthetic import Synthetic

    score = Synthetic._score
    monkeypatch.setattr(Synthetic, "_score", lambda *given: score(*given) * (1 + 1e-7))
    expected, folder = unpack("random"), Path("interrupted-0")
    autorl("resume", folder, "--quiet")
    assert differences(expected["tables"], tables(folder), PORTABLE)


def test_every_stored_study_has_an_archive():
    assert {path.name for path in (HERE / "studies").iterdir()} == {
        f"{name}.tar.xz" for name in STUDIES
    }
