from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from segments import segment_of

from autorl.core.types import CheckpointError, Segment
from autorl.store.checkpoints import writing
from autorl.trainers.saved_state import read, write


def segment(folder: Path | str) -> Segment:
    return segment_of("s", until=1, horizon=1, folder=str(folder))


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "s"
    with writing(segment(final)) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "a").write_text("1")
        assert not final.exists()
        assert folder.parent == final.parent / ".tmp-s"
    assert (final / "inner" / "a").read_text() == "1"
    assert [path.name for path in final.parent.iterdir()] == ["s"]


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with writing(segment(tmp_path / "s")) as folder:
            (folder / "a").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_an_unrecorded_attempt_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "old").write_text("0")
    with writing(segment(tmp_path / "s")) as folder:
        (folder / "new").write_text("1")
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_segment_without_a_folder_cannot_save() -> None:
    with pytest.raises(ValueError, match="names no folder"), writing(segment("")):
        pass


def test_a_kill_during_the_save_leaves_no_checkpoint(tmp_path: Path) -> None:
    code = f"""
import os, signal
from autorl.store import checkpoints
from autorl.trainers import load
from autorl.core.types import *
checkpoints.sync_tree = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
spec = TrainerSpec("synthetic")
segment = Segment(id="s", trainer=spec, config=Config(x=0.1), seed=0, role="tuning", until=1, horizon=1,
                  save=True, folder={str(tmp_path / "s")!r})
load(spec).train(segment, print)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert not (tmp_path / "s").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".tmp-s"]


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "numbers": [1, 2**127, 0.1, True, None, "\u00e9"],
        "by number": {0: (1, (2.5,)), 7: b"\x00\xff"},
        "keys": {"$array": 0},
        "kind": np.dtype("float32"),
    }
    arrays = {"none": np.zeros((0, 3)), "one": np.array(3.5), "flags": np.array([True, False])}
    write(tmp_path / "state", {**state, "arrays": arrays})
    found = read(tmp_path / "state")
    for name, array in found.pop("arrays").items():
        assert (array.dtype, array.shape) == (arrays[name].dtype, arrays[name].shape)
        assert array.tobytes() == arrays[name].tobytes()
        assert array.flags.writeable
    assert found == state


def test_an_array_larger_than_the_file_is_not_made(tmp_path: Path) -> None:
    """A stranger's file could ask for any memory, or for objects."""
    for kind, shape in (("<f8", [2**60]), ("<f8", [-1]), ("|O", [1])):
        head = {"arrays": [[kind, shape, [0]]], "state": {"a": {"$array": 0}}}
        (tmp_path / "state").write_text(json.dumps(head) + "\n" + "x" * 8)
        with pytest.raises(CheckpointError, match="state: cannot be read"):
            read(tmp_path / "state")
