"""Scratch files of a segment lie in the study, are counted, and go with the segment however it
ends."""

import os
from pathlib import Path

import pytest
from scripted import Scripted, full, study_with, toy_spec
from segments import segment_of

from autorl.core.types import Status, StudyError, TrainerSpec
from autorl.executors.worker import failure
from autorl.store.checkpoints import scratch, unfinished, writing
from autorl.study import attempts as attempt_files


def hidden(folder):
    """Everything below a study that is not finished."""
    return [str(path) for path in folder.rglob(".*")]


def segment_in(folder, **changes):
    places = {"folder": str(folder / "3.0"), "scratch": str(unfinished(folder, "3.0"))}
    return segment_of("3.0", trainer=TrainerSpec("synthetic"), **places | changes)


def test_scratch_lies_beside_the_checkpoint_in_writing_and_both_go(tmp_path):
    segment = segment_in(tmp_path)
    with scratch(segment) as output, writing(segment) as folder:
        assert output.parent == folder.parent == tmp_path / ".tmp-3.0"
        (output / "log").write_text("x")
        (folder / "state").write_text("y")
    assert [path.name for path in tmp_path.iterdir()] == ["3.0"]
    assert [path.name for path in (tmp_path / "3.0").iterdir()] == ["state"]


def test_without_a_study_scratch_is_a_temporary_folder(tmp_path):
    with scratch(segment_in(tmp_path, scratch="")) as output:
        (output / "log").write_text("x")
    assert not output.exists()
    assert list(tmp_path.iterdir()) == []


class Dying:
    """An executor whose workers write into their scratch folders and are then ended from outside with `kinds`."""

    slots = 8

    def __init__(self, *kinds, size=1000):
        self.kinds, self.size = list(kinds), size
        self.waiting, self.seen = [], []

    def submit(self, segments):
        for segment in segments:
            folder = Path(segment.scratch)
            self.seen.append((segment.id, sorted(path.name for path in folder.glob("*"))))
            for name in ("run-a", f"checkpoint-{os.getpid()}"):
                (folder / name).mkdir(parents=True)
                (folder / name / "half").write_bytes(b"0" * self.size)
        self.waiting += segments

    def poll(self, timeout):
        segment = self.waiting.pop(0)
        return (
            [failure(segment, self.kinds.pop(0), "ended from outside", 0.0)] if self.kinds else []
        )

    def cancel(self, segment):
        pass

    def close(self):
        pass


def dying_study(monkeypatch, folder, **changes):
    optimizer = Scripted(
        lambda number, seen: full(number / 20, until=50), keeps=lambda seen: range(99)
    )
    return study_with(monkeypatch, toy_spec(**changes), optimizer, folder=folder)


@pytest.mark.parametrize("kind", [Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASH])
def test_segments_that_were_ended_leave_nothing(monkeypatch, tmp_path, kind):
    study = dying_study(monkeypatch, tmp_path / "study", parallelism=5)
    pool = Dying(kind, kind, kind)
    with pytest.raises(StudyError, match="the first 3 proposals failed"):
        study.run(executor=pool)
    assert len(pool.seen) > 3, "others were running when the study gave up"
    assert hidden(tmp_path / "study") == []


def test_what_running_segments_write_counts_as_disk(monkeypatch, tmp_path):
    limit = 1 / 1024  # GiB: one MiB
    monkeypatch.setattr(attempt_files, "_LOOK_SECONDS", -1.0)  # with every outcome
    study = dying_study(monkeypatch, tmp_path / "study", parallelism=3, limits={"disk_gb": limit})
    with pytest.raises(StudyError, match=r"over limits.disk_gb"):
        study.run(executor=Dying(Status.CRASH, size=400_000))
    assert hidden(tmp_path / "study") == []
