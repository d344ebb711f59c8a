"""Workers, nodes and drivers that are killed or stopped leave a study's table as it is.

The fast tests are of the harness itself: it must see what is wrong. The slow ones are a study in each place;
`benchmarks/worker_faults.py` delivers faults by the hundred.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import fault_machinery
import pytest
import worker_machinery
from fault_machinery import MARKER, Case, Library, Verdict
from patience import wait_until
from worker_machinery import (
    KINDS,
    Attempt,
    Recorded,
    ancestors,
    attempts,
    cases,
    send,
    study_problems,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "study"))

import worker_faults as benchmark
from study_support import run_small


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return Library(tmp_path_factory.mktemp("library"))


@pytest.mark.slow
@pytest.mark.cpu_seconds(300)
@pytest.mark.parametrize("kind", ["processes/asha", "slurm/tpe", "ray/pbt"])
def test_a_study_survives_a_fault_of_every_kind(library, kind):
    module = {"ray": "ray", "slurm": "submitit"}.get(kind.partition("/")[0], "os")
    pytest.importorskip(module, reason="its extra is not installed")
    number = KINDS.index(kind)
    verdict = fault_machinery.run(Case(0, "workers", number, kind), library, keep_bad=False)
    assert verdict.verdict == "equal", verdict.detail
    assert verdict.delivered, verdict.missed


# -- the harness sees what is wrong ----------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study with checkpoints that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    pbt = {"name": "pbt", "population": 2, "generations": 2}
    run_small(folder, optimizer=pbt, budget={"runs": 8}, keep={"checkpoints": "lineage"})
    return folder


@pytest.fixture
def ended(whole, tmp_path):
    """A study that has ended as well, and what was seen of it on the way."""
    study = tmp_path / "study"
    shutil.copytree(whole, study)
    recorded = Recorded(study)
    recorded.note()
    return study, recorded


def change(study, statement):
    with closing(sqlite3.connect(study / "study.sqlite")) as connection, connection:
        connection.execute(statement)


def checkpoint_file(study):
    return min(path for path in (study / "checkpoints").rglob("*") if path.is_file())


def write_again(study):
    """Write as a late worker would: the same bytes in a file of its own."""
    file = checkpoint_file(study)
    aside = file.with_name("aside")
    shutil.copy2(file, aside)
    aside.replace(file)


LAST = "(SELECT max(seq) FROM event WHERE kind = 'outcome')"
DOUBLE = (
    f"INSERT INTO event SELECT seq + 1000, kind, body, time, hash FROM event WHERE seq = {LAST}"
)
HARMS = {
    "events that had been recorded are lost or changed": lambda study: change(
        study, f"DELETE FROM event WHERE seq = {LAST}"
    ),
    "segments have two outcomes": lambda study: change(study, DOUBLE),
    "other numbers of events": lambda study: change(study, DOUBLE),
    "are replaced": write_again,
    "checkpoints are not those of the log": lambda study: checkpoint_file(study).write_text("x"),
    "checkpoints that had been recorded": lambda study: checkpoint_file(study).unlink(),
    "verify: no event names": lambda study: (study / "checkpoints" / "strange").mkdir(),
}


def test_a_study_that_nothing_happened_to_has_no_problems(whole, ended):
    assert study_problems(ended[0], whole, ended[1]) == []


@pytest.mark.parametrize("problem", HARMS)
def test_what_is_wrong_is_named(whole, ended, problem):
    study, recorded = ended
    HARMS[problem](study)
    assert problem in "; ".join(study_problems(study, whole, recorded))


def test_a_segment_is_given_away_once_another_attempt_has_it(whole):
    (name, epoch, number) = (path := next((whole / "checkpoints").iterdir())).name.rsplit("-", 2)
    assert path.is_dir()
    own = Attempt(name, int(epoch), int(number), 0)
    assert worker_machinery._given_away(whole, own, losses=0) == "no"
    earlier = Attempt(name, int(epoch), int(number) - 1, 0)
    assert worker_machinery._given_away(whole, earlier, losses=0) == "yes"
    assert worker_machinery._given_away(whole, Attempt("99.0", 1, 0, 0), losses=0) == ""


def test_who_trains_a_segment_is_known_by_its_working_folder(tmp_path):
    folder = tmp_path / ".tmp-3.1@8-2-0" / "run-x"
    folder.mkdir(parents=True)
    mark = f"test-{os.getpid()}"
    with subprocess.Popen(["sleep", "600"], cwd=folder, env={MARKER: mark}) as script:
        running = wait_until(lambda: attempts(mark))
        assert running == [Attempt("3.1@8", 2, 0, script.pid)]
        assert ancestors(script.pid)[0] == os.getpid()
        assert send(9, [script.pid])
    assert not send(9, [script.pid])
    assert attempts(mark) == ancestors(script.pid) == []


# -- cases and the page ----------------------------------------------------------------------------


def verdicts(*delivered, **values):
    return [
        Verdict(case, list(faults), "equal", missed=["node: too late"], **values)
        for case, faults in zip(cases(0, ["processes/tpe"]), delivered, strict=False)
    ]


def test_what_was_not_delivered_is_counted_by_itself(tmp_path, monkeypatch):
    left = verdicts(["driver", "worker"], ["worker"], [], ["driver"])
    monkeypatch.setattr(fault_machinery, "run", lambda case, library: left.pop(0))
    raw = benchmark.Raw(tmp_path / "raw.jsonl")
    rows = benchmark.run(3, 0, ["processes/tpe"], raw, tmp_path)
    assert benchmark.delivered(rows) == 3
    assert len(left) == 2
    (line,) = [row for row in benchmark.table(rows, ["processes/tpe"]) if row.startswith("| all")]
    assert line == "| all | 2 | 0 | 1 | 0 | 3 | 2 | 2 | 2 | 0 | 0 |"
    again = benchmark.Raw(tmp_path / "raw.jsonl")
    assert benchmark.run(3, 0, ["processes/tpe"], again, tmp_path) == rows
    assert len(left) == 2, "what the raw file has is not run again"
