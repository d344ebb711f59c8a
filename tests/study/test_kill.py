"""Killed with SIGKILL at every event, and inside checkpoint writes, a study ends with the table of a quiet run."""

import gc
import os
import signal

import pytest
from study_support import run_small, saved_segments, small_spec, table

from autorl.store import checkpoints
from autorl.study import Study

FIXED = {}
RACING = {
    "evaluation": {"seeds": "racing", "min": 1, "max": 3},
    "seeds": {"tuning": 3, "test": 2},
    "budget": {"runs": 14},
}
STOP = {"optimizer": {"name": "random", "stop": "median", "rungs": 3}}
FAILING = {
    "trainer": {"crash": 0.2, "nan": {"above": {"x": 0.8}, "seeds": [1]}},
    "budget": {"runs": 20},
}


def run_and_die(folder, changes, die):
    """Run a small study as `run_spec_and_die` does; `changes` are keys of its study file."""
    return run_spec_and_die(folder, small_spec(**changes), die)


def run_spec_and_die(folder, spec, die):
    """Run a study in a forked process that calls `die(study)` first; True if it lived to the end."""
    pid = os.fork()
    if pid == 0:
        gc.freeze()  # a collection would copy the pages of all that the tests have imported
        try:
            study = (
                Study.open(folder)
                if (folder / "study.yaml").exists()
                else Study.create(spec, folder)
            )
            die(study)
            study.run()
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3), "the study failed by itself"
    return os.WIFEXITED(status)


def after_events(count):
    """Die right after the `count`-th event of this session is durable."""

    def die(study):
        left = [count]

        def on_append(kind, body):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        study.store.on_append = on_append

    return die


EVERY = 2  # events of a session that dies: its own, then one more
THIRD = 4  # for what shares its events with a study that is killed at every one: a third of the sessions
EIGHTH = 9  # for long studies that share their events with those above


def killed_at_every_event(folder, changes, stride=EVERY):
    """Each session dies after `stride` events, its own among them: a kill hits every (stride - 1)-th other event."""
    for _ in range(400):
        if run_and_die(folder, changes, after_events(stride)):
            return
    raise AssertionError("the study never ended")


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(FIXED, marks=pytest.mark.slow), RACING],
    ids=["fixed", "racing"],
)
@pytest.mark.parametrize(
    ("optimizer", "stride"),
    [("random", EVERY), ("tpe", THIRD), ("sobol", THIRD), ("cmaes", THIRD), ("nsga2", THIRD)],
)
def test_killed_over_and_over_gives_the_same_table(tmp_path, optimizer, stride, seeds):
    changes = {**seeds, "optimizer": optimizer}
    run_small(tmp_path / "whole", **changes)
    killed_at_every_event(tmp_path / "killed", changes, stride)
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [FIXED, RACING], ids=["fixed", "racing"])
def test_killed_at_every_event_gives_the_same_table_gp(tmp_path, seeds):
    import torch

    torch.set_num_threads(1)
    changes = {**seeds, "optimizer": "gp"}
    run_small(tmp_path / "whole", **changes)
    killed_at_every_event(tmp_path / "killed", changes)
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


@pytest.mark.parametrize("stride", [THIRD, pytest.param(EVERY, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "changes",
    [STOP, FAILING, {"keep": {"checkpoints": "lineage"}}],
    ids=["stop", "failing", "kept"],
)
def test_killed_over_and_over_with_rungs_failures_and_checkpoints(tmp_path, changes, stride):
    run_small(tmp_path / "whole", **changes)
    killed_at_every_event(tmp_path / "killed", changes, stride)
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    assert saved_segments(tmp_path / "killed") == saved_segments(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_killed_inside_a_checkpoint_write(tmp_path, monkeypatch, moment):
    changes = {"keep": {"checkpoints": "lineage"}}
    run_small(tmp_path / "whole", **changes)
    original = checkpoints.writing.__wrapped__

    def die(study):
        """Die in the third checkpoint write of this session."""
        from autorl.trainers import _json_checkpoint

        writes = [0]

        def deadly(segment):
            writes[0] += 1
            inner = original(segment)
            folder = next(inner)
            yield folder
            if writes[0] == 3 and moment == "before the rename":
                os.kill(os.getpid(), signal.SIGKILL)
            next(inner, None)
            if writes[0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        deadly_writing = __import__("contextlib").contextmanager(deadly)
        monkeypatch.setattr(_json_checkpoint, "writing", deadly_writing)

    deaths = 0
    while not run_and_die(tmp_path / "killed", changes, die):
        deaths += 1
    assert deaths >= 5
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    assert not [
        path
        for path in (tmp_path / "killed" / "checkpoints").iterdir()
        if path.name.startswith(".")
    ]


@pytest.mark.parametrize("changes", [FIXED, RACING, STOP], ids=["fixed", "racing", "stop"])
def test_one_and_three_workers_give_the_same_table(tmp_path, changes):
    from autorl import executors, trainers

    run_small(tmp_path / "alone", **changes)
    for workers in (1, 3):
        executor = executors.make("threads", trainers.load, workers)
        run_small(tmp_path / f"{workers}", executor=executor, **changes)
        assert table(tmp_path / f"{workers}") == table(tmp_path / "alone")
