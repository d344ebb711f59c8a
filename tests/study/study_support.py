"""Small studies on the synthetic trainer, and the table two runs of one study must agree on."""

from __future__ import annotations

import re
import sqlite3
from contextlib import nullcontext
from pathlib import Path

import pytest
from small_studies import OF_MIXED, TRAINER, recorded

from autorl.study import Study
from autorl.study.spec import load_spec

RACING = {"evaluation": {"seeds": "racing", "min": 1, "max": 3}, "seeds": {"tuning": 3, "test": 2}}


def small_spec(trainer=None, **changes):
    """A study of 8 proposals x 2 seeds, then 3 test seeds; `changes` are keys of the study file."""
    own = {"trainer": {"name": "synthetic", "kwargs": {**TRAINER, **(trainer or {})}}}
    return load_spec({**OF_MIXED, **own, "seeds": {"tuning": 2, "test": 3}, **changes})


def run_small(folder: Path, executor=None, **changes):
    study = Study.create(small_spec(**changes), folder)
    result = study.run(executor=executor)
    study.close()
    return result


def resume(folder: Path) -> None:
    """Run the study in a folder to its end."""
    study = Study.open(folder)
    study.run()
    study.close()


class StoppedError(Exception):
    """A study was left on the way, as the test wants it."""


def follow(study, tell):
    """Call `tell` with every event that has become durable."""
    write = study.store._write

    def written(entries):
        write(entries)
        for entry in entries:
            tell(entry.event)

    study.store._write = written


def stop_after(study: Study, events: int) -> list[int]:
    """Have a study raise `StoppedError` after so many more events; the list holds how many are left.

    Each event is a transaction of its own: a batch would be whole in the log.
    """
    study.store.batch = nullcontext
    left = [events]

    def on_append(event):
        left[0] -= 1
        if left[0] == 0:
            raise StoppedError

    follow(study, on_append)
    return left


def part_of(folder: Path, events: int, **changes) -> Path:
    """The folder of a study that stopped after so many events."""
    study = Study.create(small_spec(**changes), folder)
    stop_after(study, events)
    with pytest.raises(StoppedError):
        study.run()
    study.close()
    return folder


def segment_of(checkpoint: Path | str) -> str:
    """The segment of a checkpoint: the name of its folder without session and attempt."""
    return re.sub(r"-\d+-\d+$", "", Path(checkpoint).name)


def saved_segments(folder: Path) -> set[str]:
    """The segments whose checkpoints lie in the folder of a study."""
    return {segment_of(path) for path in (folder / "checkpoints").iterdir()}


def checkpoint_of(folder: Path, segment: str) -> Path:
    """The one checkpoint of a segment in the folder of a study."""
    (path,) = (folder / "checkpoints").glob(f"{segment}-*")
    return path


def table(folder: Path) -> dict[str, list[tuple]]:
    """Records of the study in a folder."""
    with sqlite3.connect(folder / "study.sqlite") as connection:
        return recorded(connection.execute)
