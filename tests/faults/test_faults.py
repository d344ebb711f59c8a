"""Studies that are killed, harmed or signalled end with the table of a quiet run, or with one clear line.

The fast tests are a run that is killed, and tests of the harness itself: it must see what is wrong. The slow ones are a few
cases of each kind of study; `benchmarks/faults.py` runs hundreds.
"""

import itertools
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import fault_files
import fault_machinery
import pytest
from fault_machinery import (
    Case,
    Library,
    Place,
    Session,
    Verdict,
    cases,
    events,
    judge,
    members,
    run,
)
from fault_studies import KINDS, SLOW

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import faults as benchmark


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return Library(tmp_path_factory.mktemp("library"), seed=0)


def numbered(group, kind, count, start=0):
    """Cases of one kind."""
    return [Case(0, group, number, kind) for number in range(start, start + count)]


SHORT = [
    *numbered("kills", "racing", 1),
    *numbered("signals", "racing", 1),
    *numbered("faults", "racing", 1, start=15),
]


@pytest.mark.parametrize(
    "case",
    [SHORT[0], *(pytest.param(case, marks=pytest.mark.slow) for case in SHORT[1:])],
    ids=lambda case: case.group,
)
def test_a_short_run(library, case):
    verdict = run(case, library, keep_bad=False)
    assert verdict.delivered
    assert verdict.verdict in ("equal", "refused"), verdict.detail


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", ["kills", "faults", "signals"])
def test_every_kind_of_study_survives(library, kind, group):
    pytest.importorskip(KINDS[kind].needs or "numpy", reason="needs its libraries")
    few = {"kills": 1, "faults": 3, "signals": 2}[group]
    for case in numbered(group, kind, 1 if kind in SLOW else few, start=100):
        verdict = run(case, library, keep_bad=False)
        assert verdict.verdict != "bad", (
            f"{case.name}: {', '.join(verdict.delivered)}: {verdict.detail}"
        )


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


_ONE_EVAL = "UPDATE evals SET value = value + 1e-9 WHERE run_id = (SELECT min(run_id) FROM evals) AND step = 5"
HARMS = {
    "other evals": change_a_score,
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


def test_only_a_killed_driver_may_leave_a_traceback_of_the_fork_server(ended, library):
    text = 'Traceback (most recent call last):\n  File "multiprocessing/forkserver.py", line 258\nEOFError\n'
    session = ended.sessions[-1]
    session.error.write_text(text)
    assert "traceback" in judged(ended, library).detail
    session.process.returncode = -9
    assert judged(ended, library).verdict == "equal"
    session.error.write_text(text + "Traceback (most recent call last):\n  another\n")
    assert "traceback" in judged(ended, library).detail


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
def test_one_line_and_exit_code_1_or_2_is_a_refusal_of_a_harmed_file_only(
    ended, library, code, lines, file_fault, expected
):
    ended.sessions[-1].error.write_text(lines)
    assert judged(ended, library, code, file_fault=file_fault).verdict == expected


def test_cases_follow_from_the_seed_and_take_every_kind_in_turn():
    first = list(itertools.islice(cases(3, "kills"), 14))
    assert [case.kind for case in first] == [*KINDS, *KINDS]
    again = itertools.islice(cases(3, "kills"), 14)
    assert [case.rng.random() for case in first] == [case.rng.random() for case in again]
    assert len({case.rng.random() for case in first}) == 14


def made_up(folder, number):
    """The files of a study, with contents of no meaning."""
    names = [
        "study.sqlite",
        "study.sqlite-wal",
        *(f"checkpoints/{segment}/state.npz" for segment in ("0.0", "1.0")),
    ]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(random.Random(f"{number} {name}").randbytes(400))
    (folder / "study.yaml").write_text(f"name: made up\nseed: {number + 1}\nbudget:\n  runs: 12\n")
    return folder


def test_faults_of_files_are_drawn_from_the_seed_and_change_something(tmp_path):
    source, stranger = made_up(tmp_path / "source", 1), made_up(tmp_path / "stranger", 2)
    said = {}
    for seed in range(40):
        study = tmp_path / f"{seed}"
        shutil.copytree(source, study)
        said[seed] = fault_files.harm(study, stranger, random.Random(seed))
        assert contents(study) != contents(source), said[seed]
    ways = {benchmark.family(text) for text in said.values()}
    verbs = ("truncated", "flipped", "exchanged", "deleted")
    every = {f"{verb} {what}" for verb in verbs for what in ("checkpoint", "database")}
    assert len(ways & every) >= 7
    again = tmp_path / "again"
    shutil.copytree(source, again)
    assert fault_files.harm(again, stranger, random.Random(7)) == said[7]


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_stopped_study_is_on_its_way(library):
    assert 0 < events(library.stopped("racing", 2)) < events(library.whole("racing"))


def test_a_study_that_was_over_before_it_was_killed_is_made_again(library, monkeypatch):
    """One run of the tests in six on a loaded machine had a stopped study that was a whole one."""
    whole = events(library.whole("racing"))
    late = [whole]  # the first kill comes after the last event
    wait_for_events = fault_machinery.wait_for_events

    def wait(session, study, count):
        wait_for_events(session, study, late.pop() if late else count)

    monkeypatch.setattr(fault_machinery, "wait_for_events", wait)
    assert 0 < events(library.stopped("racing", 3)) < whole
    assert not late


def test_the_page_counts_what_was_delivered(tmp_path):
    raw = benchmark.Raw(tmp_path / "raw.jsonl")
    verdicts = [
        Verdict(Case(0, "kills", 4, "racing"), ["driver", "worker"], "equal"),
        Verdict(Case(0, "kills", 5, "command"), ["script"], "bad", "other tests"),
        Verdict(Case(0, "kills", 11, "racing"), ["group"], "equal"),
    ]
    for verdict in verdicts:
        raw.add(verdict)
    again = benchmark.Raw(tmp_path / "raw.jsonl")
    rows = again.counted(0, ["racing", "command"], {"kills": 3, "faults": 0, "signals": 0})
    assert [row["name"] for row in rows] == ["0-kills-4", "0-kills-5"]
    lines = benchmark.table("Kills", rows, ["racing", "command"])
    assert "| racing | 2 | 1 | 1 | 0 | 0 | 0 | 0 |" in lines
    assert "| all | 3 | 2 | 1 | 0 | 1 | 0 | 0 |" in lines
    assert "Delivered: driver 1, script 1, worker 1." in lines
