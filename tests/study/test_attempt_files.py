"""Files of attempts: places of their own, counted logs, removals."""

from dataclasses import replace
from pathlib import Path

import pytest
from segments import segment_of

from autorl.core.types import Fence, SegmentId
from autorl.store import Store
from autorl.study.attempts import AttemptFiles

NAME = SegmentId(3, 1)


def segment(save=True, number=3):
    return segment_of(SegmentId(number, 1), seed=1, save=save)


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "study", "name: x\n", "")
    (tmp_path / "study" / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "study" / "logs").mkdir(exist_ok=True)
    yield made
    made.offsite = None
    made.close()


def files_of(store, *, counts_logs=True):
    return AttemptFiles(store, counts_logs=counts_logs)


def folder_with(path: Path, size=5):
    path.mkdir(parents=True)
    (path / "state").write_bytes(b"x" * size)
    return path


def left(store):
    return sorted(path.name for path in store.checkpoints.iterdir())


# -- logs --------------------------------------------------------------------------------------------------------------


def test_what_ended_attempts_have_printed_is_counted(store):
    files = files_of(store)
    assert files.bytes_logged == 0
    first = files.placed(segment(), Fence(1, 0), copy=False)
    files.begin(first)
    assert files.bytes_logged == 0, "there is no log yet"
    Path(first.log).write_bytes(b"x" * 30)
    files.end(first)
    assert files.bytes_logged == 30
    second = files.placed(segment(), Fence(1, 1), copy=False)
    files.begin(second)
    Path(second.log).write_bytes(b"x" * 37)
    files.end(second)
    assert files.bytes_logged == 37, "both attempts share a log"
    silent = files.placed(segment(number=4), Fence(1, 0), copy=False)
    files.begin(silent)
    files.end(silent)
    assert files.bytes_logged == 37


# -- what is removed ---------------------------------------------------------------------------------------------------


def test_a_late_worker_writes_once_more_and_what_it_wrote_is_cleared(store):
    files = files_of(store)
    late = files.placed(segment(), Fence(1, 0), copy=False)
    folder_with(Path(late.folder))
    files.discard(late, late=True)
    assert left(store) == []
    folder_with(Path(late.folder))
    files.clear([])
    assert left(store) == []
    folder_with(Path(late.folder))
    files.clear([])
    assert left(store) == ["3.1-1-0"], "it was forgotten"


def test_what_the_study_does_not_own_is_left(store, tmp_path):
    elsewhere = folder_with(tmp_path / "mine")
    files_of(store).discard(replace(segment(), folder=str(elsewhere)))
    assert elsewhere.is_dir()
    assert store.checkpoints.is_dir()


def test_a_sweep_removes_what_a_kill_left_and_keeps_what_the_log_names(store):
    for name in (".tmp-9.0-1-0", ".old-9.0", "1.1-1-0", "1.1-1-1", "3.1-1-0", "3.1-2-0", "mine"):
        folder_with(store.checkpoints / name)
    files = files_of(store)
    saved = [str(store.checkpoints / "1.1-1-0" / "best"), "/elsewhere/1.1-1-1"]
    files.sweep([SegmentId(1, 1)], saved)
    # A trainer named a folder within its own; 3.1 has not ended; `mine` is nobody's segment.
    assert left(store) == ["1.1-1-0", "3.1-1-0", "3.1-2-0", "mine"]
    assert files.is_taken(NAME, Fence(1, 0))
    assert files.is_taken(NAME, Fence(2, 0))
    assert not files.is_taken(NAME, Fence(2, 1))
    assert not files.is_taken(SegmentId(1, 1), Fence(1, 0))
    files.remove_unnamed(NAME)
    assert left(store) == ["1.1-1-0", "mine"]
    assert not files.is_taken(NAME, Fence(1, 0))
