"""Boundary of user code and executor: every exception keeps its reason; a forked child does not
report."""

import errno
import os
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from segments import segment_of

from autorl.core.types import (
    Checkpoint,
    CheckpointError,
    Config,
    Fence,
    FrozenMap,
    InputError,
    Status,
    TrainerSpec,
)
from autorl.executors.worker import NO_STORAGE, run_segment
from autorl.store.checkpoints import unfinished
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.study.tuner import tune
from autorl.trainers import load


class Odd(BaseException):
    """Not an `Exception`, as some libraries have for what must not be caught."""


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def segment(**values):
    made = {"trainer": TrainerSpec("python"), "config": Config(x=1.0), "evaluate_at": (10,)}
    return segment_of("0.0", **made | values)


def outcome_of(error, **values):
    def f(config, *, seed):
        raise error

    spec = TrainerSpec("python", FrozenMap(function=f))
    return run_segment(load, segment(trainer=spec, **values), lambda report: None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (SystemExit("out of luck"), "SystemExit: out of luck"),
        (GeneratorExit("why"), "GeneratorExit: why"),
        (Odd("of its own"), "Odd: of its own"),
        (ValueError("half \udc80 a character"), "ValueError: half \\udc80 a character"),
        (InputError("half \ud800"), "half \\ud800"),
        (Speechless(), "Speechless: a message that cannot be read (RuntimeError)"),
    ],
)
def test_an_exception_of_any_class_is_a_crash_with_its_reason(tmp_path, error, message):
    log = tmp_path / "logs" / "0.0.log"
    outcome = outcome_of(error, log=str(log))
    assert (outcome.status, outcome.message) == (Status.CRASH, message)
    assert type(error).__name__ in log.read_text(encoding="utf-8")


class OutOfMemoryError(RuntimeError):
    """As torch has one."""


def wrapped(cause):
    error = InputError("my_rewards:judge failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), Status.OUT_OF_MEMORY),
        (OutOfMemoryError("Tried to allocate 20 MiB"), Status.OUT_OF_MEMORY),
        (wrapped(OutOfMemoryError()), Status.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: out of memory"), Status.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you"), Status.OUT_OF_MEMORY),
        (RuntimeError("RESOURCE_EXHAUSTED: 3 GiB"), Status.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: device-side assert triggered"), Status.CRASH),
        (ValueError("out of memory"), Status.CRASH),
    ],
)
def test_a_library_without_memory_is_no_crash(error, status):
    assert outcome_of(error).status is status


def test_the_peak_of_memory_is_the_gpu_s_the_process_s_or_what_is_told(monkeypatch):
    def peak(metrics):
        spec = TrainerSpec("python", FrozenMap(function=lambda config, *, seed: metrics))
        outcome = run_segment(load, segment(trainer=spec), lambda report: None)
        return outcome.cost["peak_memory_mb"]

    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak({"value": 1.0}) >= own / (2**20 if sys.platform == "darwin" else 2**10)
    most = (3 * 2**20, 5 * 2**20)
    of_gpu = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, max_memory_allocated=most.__getitem__
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=of_gpu))
    assert peak({"value": 1.0}) == 5.0
    assert peak({"value": 1.0, "peak_memory_mb": 7.0}) == 7.0


def test_a_study_records_messages_and_names_of_metrics_it_cannot_encode():
    def f(config, *, seed):
        if config["x"] > 0.5:
            raise ValueError("\udc80")
        return {"value": config["x"], "\udcff": 1.0}

    result = tune(
        f, {"x": "uniform(0, 1)"}, runs=8, seeds={"tuning": 1, "test": 1}, optimizer="random"
    )
    assert result.counts["scored"] + result.counts["crash"] == 8
    assert result.counts["crash"] > 0


def test_ctrl_c_is_the_user_s_where_the_driver_itself_trains():
    def f(config, *, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(f, {"x": "uniform(0, 1)"}, runs=4, optimizer="random")


FORKING = """
import os

def f(config, *, seed, until, report, checkpoint=None, folder=None):
    child = os.fork()
    if child == 0:
        {child}
        return 5.0
    os.waitpid(child, 0)
    if folder is not None:
        (folder / "state").write_text("parent")
    return 1.0
"""


@pytest.mark.parametrize(
    "child", ["pass", "report(until, 5.0)", "raise ValueError('child')", "raise SystemExit(2)"]
)
def test_a_forked_child_that_returns_is_not_the_training(tmp_path, child):
    (tmp_path / "forking.py").write_text(FORKING.format(child=child))
    study = {
        "trainer": "python:forking.py:f",
        "path": str(tmp_path),
        "space": {"x": "uniform(0, 1)"},
        "fidelity": {"steps": 10, "evaluations": 1},
        "budget": {"runs": 2},
        "seeds": {"tuning": 1, "test": 0},
        "optimizer": "random",
        "executor": {"name": "processes", "workers": 1},
        "keep": {"checkpoints": "lineage"},
    }
    study = Study.create(load_spec(study), tmp_path / "study")
    try:
        study.run()
        rows = study.store.query("SELECT value FROM reports WHERE metric = 'value'")
        assert rows == [(1.0,), (1.0,)]
        states = sorted((tmp_path / "study" / "checkpoints").glob("*/state"))
        assert [state.read_text() for state in states] == ["parent"] * 2
        assert study.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'") == [(0,)]
    finally:
        study.close()


def test_the_exit_code_of_a_forked_child_reaches_its_parent(tmp_path):
    seen = []

    def f(config, *, seed):
        acts = (int, lambda: 1 / 0, lambda: os._exit(4), lambda: exit(3), lambda: exit("no"))
        for act in acts:
            child = os.fork()
            if child == 0:
                act()
                return 5.0
            seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return 1.0

    spec = TrainerSpec("python", FrozenMap(function=f))
    outcome = run_segment(load, segment(trainer=spec), lambda report: None)
    assert (outcome.status, outcome.reports[-1].metrics["value"]) == (Status.DONE, 1.0)
    assert seen == [0, 1, 4, 3, 1]


@pytest.mark.parametrize("parent", [None, Checkpoint("p", "nowhere")])
def test_a_checkpoint_that_cannot_be_gone_on_from_is_damaged_and_not_charged(parent):
    """An error that the trainer finds counts as damage of the parent."""

    class Refusing:
        def train(self, segment, report):
            raise CheckpointError("is torn", file="state.npz")

    outcome = run_segment(lambda _: Refusing(), segment(parent=parent), lambda _: None)
    expected = (Status.CRASH, "") if parent is None else (Status.LOST, "state.npz: is torn")
    assert (outcome.status, outcome.damage) == expected


# -- disks that fail -------------------------------------------------------------------------------


def failing(function, code, *, at=0, done=False):
    """A function that fails at its call number `at`, before or after it has done its work."""
    calls = iter(range(1000))

    def called(*args, **values):
        fails = next(calls) == at
        result = None if fails and not done else function(*args, **values)
        if fails:
            raise OSError(code, os.strerror(code))
        return result

    return called


CODES = [errno.ESTALE, errno.EIO, errno.EROFS, errno.ENOSPC, errno.EFBIG]
PLACES = {
    "write": (Path, "open", {"at": 2}),
    "fsync of a file": (os, "fsync", {}),
    "fsync of the folder above": (os, "fsync", {"at": 2}),
    "rename": (Path, "rename", {}),
    "rename that is done": (Path, "rename", {"done": True}),
    "read of the parent": (Path, "open", {"at": 1}),
    "hash of the parent": (Path, "open", {}),
    "hash of what was saved": (Path, "open", {"at": 3}),
}


@pytest.fixture
def half_trained(tmp_path):
    """A segment that continues a checkpoint and saves one."""
    spec = TrainerSpec("synthetic")
    first = segment(trainer=spec, save=True, folder=str(tmp_path / "checkpoints" / "0.0-1-0"))
    first = replace(first, until=5, fence=Fence(1, 0))
    saved = run_segment(load, first, lambda report: None).checkpoint
    second = replace(first, id="1.0", parent=saved, start=5, until=10)
    return replace(second, folder=str(tmp_path / "checkpoints" / "1.0-1-0"))


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", PLACES)
def test_a_disk_that_fails_a_checkpoint_is_never_charged(half_trained, monkeypatch, place, code):
    where, name, how = PLACES[place]
    monkeypatch.setattr(where, name, failing(getattr(where, name), code, **how))
    outcome = run_segment(load, half_trained, lambda report: None)
    assert (outcome.status, outcome.preempted) == (Status.LOST, True)
    assert outcome.message.startswith(NO_STORAGE)
    assert os.strerror(code) in outcome.message
    monkeypatch.undo()
    again = replace(half_trained, fence=Fence(1, 1), folder=half_trained.folder[:-1] + "1")
    assert run_segment(load, again, lambda report: None).status is Status.DONE


@pytest.mark.parametrize("name", [None, "file of the user", "model.pt"])
@pytest.mark.parametrize("kind", [OSError, FileNotFoundError, RuntimeError])
@pytest.mark.parametrize("full", [False, True])
def test_an_error_is_the_disk_s_if_our_folder_fails(tmp_path, monkeypatch, name, kind, full):
    """Native writers tell no errno; a file of the user, and one that is not there, are the user's."""

    def f(config, *, seed, folder, checkpoint):
        path = str(folder / name if name == "model.pt" else tmp_path / "mine")
        if full:
            monkeypatch.setattr(tempfile, "TemporaryFile", failing(open, errno.ENOSPC))
        raise kind(5, "it failed", *([path] if name and kind is not RuntimeError else []))

    spec = TrainerSpec("python", FrozenMap(function=f))
    folder = tmp_path / "checkpoints" / "0.0-1-0"
    scratch = str(unfinished(folder.parent, folder.name))
    saving = segment(trainer=spec, save=True, folder=str(folder), scratch=scratch)
    outcome = run_segment(load, saving, lambda report: None)
    ours = full or (name == "model.pt" and kind is OSError)
    assert outcome.status is (Status.LOST if ours else Status.CRASH), outcome.message
