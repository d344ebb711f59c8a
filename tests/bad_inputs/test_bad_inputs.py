"""300 bad inputs: one line each, no traceback, nothing written outside the folder that was given.

An input is bad if it cannot be meant. A replaced place may still leave a study, a table or a query
that works: `ACCEPTED` says which, and why.
"""

import re
import shutil
import sys
import traceback
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from autorl.cli import app
from autorl.landscapes import write_landscape

sys.path.append(str(Path(__file__).parents[1] / "landscapes"))
from bad_inputs import STUDY, bad_inputs
from landscape_samples import SPACE, manifest, tables

SEED, COUNT, LONGEST = 20261122, 300, 1_000
EVERY = 5  # so many of the fast tests run one


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A finished study, a landscape, a study file and a space to put into commands."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "good.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    (folder / "space.yaml").write_text(yaml.safe_dump(STUDY["space"], sort_keys=False))
    write_landscape(folder / "landscape", tables(), manifest(), SPACE)
    made = CliRunner().invoke(
        app, ["tune", str(folder / "good.yaml"), "--out", str(folder / "study"), "-q"]
    )
    assert made.exit_code == 0, made.output
    return folder


def contents(folder):
    """Every file below a folder, with what would change if it was written to."""
    stats = ((path, path.lstat()) for path in folder.rglob("*"))
    return {str(path): (stat.st_size, stat.st_mtime_ns, stat.st_mode) for path, stat in stats}


def problems(case, good, place, monkeypatch):
    """List faults in how a bad input ended, and its exit code."""
    cwd, out = place / "cwd", place / "out"
    for folder in (cwd, place / "home", place / "tmp"):
        folder.mkdir(parents=True)
    if any(name.startswith("copy/") for name in case.files):
        shutil.copytree(good / "landscape", cwd / "copy")
    for name, text in case.files.items():
        (cwd / name).write_bytes(
            text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        )
    own = {"study": place / "study", "landscape": good / "landscape", "file": good / "good.yaml"}
    own |= {"space": good / "space.yaml", "out": out}
    if any("{study}" in word for word in case.arguments):
        shutil.copytree(good / "study", place / "study")
    arguments = list(case.arguments)
    for name, path in own.items():
        arguments = [word.replace("{" + name + "}", str(path)) for word in arguments]
    monkeypatch.chdir(cwd)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(place / ("tmp" if name == "TMPDIR" else "home")))
    before = contents(place), contents(good)
    result = CliRunner().invoke(app, arguments)
    found = []
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        found.append("".join(traceback.format_exception(result.exception))[-1500:])
    if result.exit_code not in (0, 1, 2):
        found.append(f"exit code {result.exit_code}")
    if result.exit_code and len(result.stderr.splitlines()) != 1 and not result.stdout:
        found.append(f"{len(result.stderr.splitlines())} lines of error: {result.stderr[:300]!r}")
    long = [line for line in result.output.splitlines() if len(line) > LONGEST]
    found += [f"a line of {len(line)} characters: {line[:200]}" for line in long]
    allowed = (str(out), str(place / "study"))
    after = contents(place), contents(good)
    for first, second in zip(before, after, strict=True):
        changed = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
        outside = [
            name for name in changed if not name.startswith(allowed) and not Path(name).is_dir()
        ]
        found += [f"wrote {name}" for name in outside]
    if result.exit_code == 2 and out.exists() and case.kind in ("study", "command"):
        found.append("a folder was made of an input that is refused")
    return found, result.exit_code


def params(case):
    marks = () if case.number % EVERY == 0 else (pytest.mark.slow,)
    return pytest.param(case, id=f"{case.number}-{case.kind}", marks=marks)


@pytest.mark.parametrize("case", [params(case) for case in bad_inputs(SEED, COUNT)])
def test_a_bad_input_is_one_line_and_writes_nothing(case, good, tmp_path, monkeypatch):
    found, code = problems(case, good, tmp_path, monkeypatch)
    assert not found, f"{case.arguments} ({case.about}): {found}"
    if code == 0:
        assert accepted(case), f"{case.arguments} ({case.about}) was accepted"


ACCEPTED = {
    r"csv row \d+, column 3 = '(|NULL|nan)'": "a run without a score is one that failed",
    r"csv row \d+, column [34] = '(-1|2\.5|1e30|1e300|9+)'": "a number is a value, whatever it is",
    r"query SELECT '\x00'": "text may have any character; it is printed escaped",
    r"space forbidden = \[\]": "nothing is forbidden",
    r"space (constraints|conditions) = (\[\]|\{\})": "there are none",
    r"study (trainer|environment)\.kwargs(\.\w+)? = .*": "options of a trainer are its own; it says when it trains",
    r"command '0'": "a seed, a number of drawn configurations, a step",
}


def accepted(case):
    return any(re.fullmatch(rule, f"{case.kind} {case.about}") for rule in ACCEPTED)


def test_a_path_that_no_file_can_have_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("tune", "(" * 5000),
        ("watch", "x" * 5000),
        ("landscape", "info", "x" * 5000),
    ):
        result = CliRunner().invoke(app, list(arguments))
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert len(result.stderr) <= LONGEST + 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_space_is_not_quoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0:hunter2:/root:/bin/bash\n" * 200)
    study = {**STUDY, "space": str(secret)}
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(study))
    for arguments in (
        ("list", "spaces", str(secret)),
        ("tune", "bad.yaml", "--dry-run"),
        ("tune", "good", "--set", "space=secret"),
    ):
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 2
        assert "hunter2" not in result.output
        assert len(result.output.splitlines()) == 1


def test_bad_inputs_are_the_same_for_the_same_seed():
    assert bad_inputs(3, 60) == bad_inputs(3, 60)
    assert bad_inputs(3, 60) != bad_inputs(4, 60)
