"""Studies that are killed, harmed or signalled end with the table of a quiet run, or with one clear line.

The fast tests are a run that is killed, and tests of the harness itself: it must see what is wrong. The slow ones are a few
cases of each kind of study; `benchmarks/faults.py` runs hundreds.
"""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import time

import fault_errnos
import fault_machinery
import pytest
from fault_machinery import Case, Library, Place, Session, Verdict, judge, members, run
from fault_studies import KINDS, SLOW


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return Library(tmp_path_factory.mktemp("library"), seed=0)


def numbered(group, kind, count, start=0):
    """Cases of one kind."""
    return [Case(0, group, number, kind) for number in range(start, start + count)]


SHORT = [
    *numbered("kills", "racing", 1),
    *numbered("errnos", "racing", 1, start=4),  # logs that cannot be listed
    *numbered("errnos", "population/tpe", 1, start=21),  # a database that cannot be written
    *numbered("signals", "racing", 1),
    *numbered("faults", "racing", 1, start=15),
]


@pytest.mark.parametrize(
    "case",
    [SHORT[0], *(pytest.param(case, marks=pytest.mark.slow) for case in SHORT[1:])],
    ids=lambda case: f"{case.group} {case.number}",
)
def test_a_short_run(library, case):
    verdict = run(case, library, keep_bad=False)
    assert verdict.delivered
    assert verdict.verdict in ("equal", "refused"), verdict.detail


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", fault_machinery.GROUPS)
def test_every_kind_of_study_survives(library, kind, group):
    pytest.importorskip(KINDS[kind].needs or "numpy", reason="needs its libraries")
    few = {"kills": 1, "faults": 3, "errnos": 2, "signals": 2}[group]
    for case in numbered(group, kind, 1 if kind in SLOW else few, start=100):
        verdict = run(case, library, keep_bad=False)
        assert verdict.verdict != "bad", (
            f"{case.name}: {', '.join(verdict.delivered)}: {verdict.detail}"
        )


# -- the failing disk --------------------------------------------------------------------------------------------------

CALLING = """
import os, sys, time
from pathlib import Path
file, other, new = (Path(sys.argv[1]) / name for name in ("file", "other", "new"))
here, opened = os.open(file.parent, os.O_RDONLY), os.open(file, os.O_RDWR)
calls = {
    "open": [lambda: os.open(file, os.O_RDONLY), lambda: new.mkdir()],
    "read": [lambda: os.read(opened, 1), lambda: os.pread(opened, 1, 0)],
    "write": [lambda: os.write(opened, b"12"), lambda: os.pwrite(opened, b"12", 0)],
    "fsync": [lambda: os.fsync(opened), lambda: os.fdatasync(opened)],
    "rename": [lambda: os.rename(other, new), lambda: os.rename("other", "new", src_dir_fd=here)],
    "unlink": [lambda: os.unlink(other), lambda: os.unlink("other", dir_fd=here)],
    "list": [lambda: os.scandir(file.parent).close(), lambda: os.scandir(here).close()],
    "stat": [lambda: os.stat(file), lambda: os.stat("file", dir_fd=here)],
    "clock": [lambda: int(time.time() - begun)],
}
begun = time.time()
for call in calls[sys.argv[2]]:
    try:
        print(call())
    except OSError as error:
        print(error.errno)
"""
STALE = str(errno.ESTALE)
FAILING = [
    *((call, "fails", errno.ESTALE, 1, [STALE, STALE]) for call in fault_errnos.CALLS[1:-1]),
    (
        "open",
        "fails",
        errno.ESTALE,
        3,
        [STALE, STALE],
    ),  # the program opens a folder and a file first
    ("rename", "is done and fails", errno.EIO, 1, [str(errno.EIO)] * 2),
    ("write", "is short", errno.EIO, 1, ["1", "1"]),
    ("clock", "jumps", 3600, 2, ["3600"]),
]


@pytest.fixture
def called(tmp_path, tmp_path_factory):
    """Run a program whose calls fail by a plan; answers and the file of the counters."""
    failing = fault_errnos.build(tmp_path_factory.getbasetemp())
    if failing is None:
        pytest.skip("needs Linux and `cc`")
    place, counters = tmp_path / "disk" / "logs", tmp_path / "counters"
    place.mkdir(parents=True)
    (place / "file").write_text("123")
    (place / "other").write_text("123")

    def run_program(plan):
        command = [sys.executable, "-IS", "-c", CALLING, str(place), plan.call]
        variables = {**os.environ, **plan.variables(failing, place.parent, counters)}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.split(), counters

    return run_program


@pytest.mark.parametrize(("call", "how", "number", "first", "answers"), FAILING)
def test_a_failing_disk_fails_as_planned(called, tmp_path, call, how, number, first, answers):
    said, counters = called(fault_errnos.Plan(call, how, number, "logs", first))
    assert said == answers
    assert fault_errnos.hits(counters)[0] == len(answers)
    assert (tmp_path / "disk" / "logs" / "new").exists() == (how == "is done and fails")


# -- the harness sees what is wrong ------------------------------------------------------------------------------------


@pytest.fixture
def ended(library, tmp_path):
    """A place whose study ended well, to be judged after it was harmed."""
    place = Place(tmp_path / "case", Case(0, "kills", 0, "racing"))
    shutil.copytree(library.whole("racing"), place.study)
    output, error = tmp_path / "out", tmp_path / "err"
    output.touch()
    error.touch()
    process = subprocess.Popen(["true"])
    process.wait()
    place.sessions.append(Session(process, output, error, place.marker))
    return place


def judged(place, library, code=0, **options):
    verdict = Verdict(Case(0, "kills", 0, "racing"), ["worker"])
    judge(place, verdict, library.reference("racing"), code, **options)
    return verdict


def test_a_study_that_nothing_happened_to_is_equal(ended, library):
    assert judged(ended, library).verdict == "equal"


def change_a_score(place):
    with sqlite3.connect(place.study / "study.sqlite") as connection:
        connection.execute(_ONE_EVAL)
    connection.close()


_ONE_EVAL = "UPDATE reports SET value = value + 1e-9 WHERE run_id = (SELECT min(run_id) FROM reports) AND step = 5"
HARMS = {
    "other reports": change_a_score,
    "half-written checkpoint": lambda place: (place.study / "checkpoints" / ".tmp-1.0-7").mkdir(
        parents=True
    ),
    "left in the temporary folder: autorl-x": lambda place: (place.temporary / "autorl-x").mkdir(),
    "left in the temporary folder: pymp-x": lambda place: (place.temporary / "pymp-x").mkdir(),
    "traceback": lambda place: place.sessions[-1].error.write_text(
        "Traceback (most recent call last):\n"
    ),
    "cannot be read": lambda place: (place.study / "study.sqlite").write_bytes(
        b"no database" * 100
    ),
}


@pytest.mark.parametrize("problem", HARMS)
def test_what_is_wrong_is_bad_and_named(ended, library, problem):
    HARMS[problem](ended)
    verdict = judged(ended, library)
    assert verdict.verdict == "bad"
    assert problem in verdict.detail


def test_a_process_that_is_left_is_bad_and_ended(ended, library, monkeypatch):
    monkeypatch.setattr(fault_machinery, "GRACE", 0.1)
    variables = {fault_machinery.MARKER: ended.marker}
    with subprocess.Popen(["sleep", "600"], env=variables, start_new_session=True) as left:
        # Popen answers as soon as the new program has closed its files: its variables can be read
        # a moment later.
        while not members(ended.marker):
            time.sleep(0.01)
        verdict = judged(ended, library)
        assert left.wait() == -9
    assert "1 processes left" in verdict.detail
    assert not members(ended.marker)


@pytest.mark.parametrize(
    ("code", "lines", "file_fault", "expected"),
    [
        (2, "autorl: study.yaml: was edited\n", True, "refused"),
        (1, "autorl: damaged\n", True, "refused"),
        (2, "", True, "bad"),
        (2, "one\ntwo\n", True, "bad"),
        (2, "autorl: refused\n", False, "bad"),
        (130, "autorl: interrupted\n", True, "bad"),
        (-9, "", True, "bad"),
    ],
)
def test_only_a_harmed_file_is_refused_in_a_line(ended, library, code, lines, file_fault, expected):
    ended.sessions[-1].error.write_text(lines)
    assert judged(ended, library, code, file_fault=file_fault).verdict == expected
