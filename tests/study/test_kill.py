"""Killed with SIGKILL at every event, and inside checkpoint writes, a study ends with the table of a quiet run."""

import gc
import os
import signal

import pytest
from study_support import RACING, follow, run_small, saved_segments, small_spec, table
from test_learned_stopping import LEARNED

from autorl.store import checkpoints
from autorl.study import Study

FIXED = {}
RACING = {**RACING, "budget": {"runs": 14}}
STOP = {"optimizer": {"name": "random", "stop": "median", "rungs": 3}}
ASHA = {"optimizer": {"name": "asha", "rungs": 3}, "budget": {"runs": 8}}
ADAPTIVE = {
    "evaluation": {"seeds": "adaptive", "share": 0.4},
    "seeds": {"tuning": 4, "test": 2},
    "budget": {"runs": 14},
}
BEST = {"objective": {"reduce": "best"}, "trainer": {"drift": 2.0}}  # which is in the middle
PBT = {
    "optimizer": {"name": "pbt", "population": 4, "generations": 4, "quantile": 0.5},
    "budget": {"runs": 8},
    "test": {"top": 1},
}
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

        def on_append(event):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        follow(study, on_append)

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


SLOW = pytest.mark.slow
STUDIES = {  # (stride, keys of the study file)
    "random": (EVERY, RACING),
    "tpe": (THIRD, {**RACING, "optimizer": "tpe"}),
    "sobol": (THIRD, {**RACING, "optimizer": "sobol"}),
    "cmaes": (THIRD, {**RACING, "optimizer": "cmaes"}),
    "nsga2": (THIRD, {**RACING, "optimizer": "nsga2"}),
    "gp": (EVERY, {**RACING, "optimizer": "gp"}),
    "fixed": (EVERY, FIXED),
    "stop": (THIRD, STOP),
    "failing": (THIRD, FAILING),
    "kept": (THIRD, {"keep": {"checkpoints": "lineage"}}),
    "asha": (EIGHTH, {"optimizer": "asha"}),
    "named baselines": (
        THIRD,
        {"budget": {"runs": 6}, "baselines": {"paper": {"x": 0.7}, "b": {}}},
    ),
    "adaptive": (EVERY, ADAPTIVE),
    "adaptive failing": (THIRD, {**ADAPTIVE, "trainer": {"crash": 0.3}}),
    "adaptive asha": (EIGHTH, {**ADAPTIVE, **ASHA}),
    "learned": (THIRD, LEARNED),
    "learned failing": (THIRD, {**LEARNED, **FAILING}),
    "cut at the best step": (THIRD, BEST),
    "cut of asha": (EIGHTH, {**BEST, "optimizer": "asha"}),
    "cut untested": (THIRD, {**BEST, "seeds": {"tuning": 2, "test": 0}}),
    "pbt": (EIGHTH, PBT),
    "pbt trained again": (
        EIGHTH,
        {**PBT, "budget": {"runs": 12}, "optimizer": {**PBT["optimizer"], "retrain": 2}},
    ),
    "pbt average": (THIRD, {**PBT, "optimizer": {**PBT["optimizer"], "exploit": "average"}}),
    "pbt asynchronous": (EVERY, {**PBT, "optimizer": {**PBT["optimizer"], "synchronous": False}}),
    "pb2": (EVERY, {**PBT, "optimizer": {**PBT["optimizer"], "name": "pb2"}}),
}
RARE = ("gp", "fixed", "pbt asynchronous", "pb2")


@pytest.mark.cpu_seconds(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW if name in RARE else ()) for name in STUDIES]
)
def test_killed_over_and_over_gives_the_same_table(tmp_path, name):
    stride, changes = STUDIES[name]
    run_small(tmp_path / "whole", **changes)
    killed_at_every_event(tmp_path / "killed", changes, stride)
    whole = table(tmp_path / "whole")
    assert table(tmp_path / "killed") == whole
    assert saved_segments(tmp_path / "killed") == saved_segments(tmp_path / "whole")
    assert any("@" in segment for segment, *_ in whole["segments"]) == name.startswith("cut")


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_killed_inside_a_checkpoint_write(tmp_path, monkeypatch, moment):
    changes = {"keep": {"checkpoints": "lineage"}}
    run_small(tmp_path / "whole", **changes)
    original = checkpoints.writing.__wrapped__

    def die(study):
        """Die in the third checkpoint write of this session."""
        from autorl.trainers import saved_state

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
        monkeypatch.setattr(saved_state, "writing", deadly_writing)

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


@pytest.mark.parametrize(
    "name", ["fixed", "random", "stop", "learned", "cut of asha", "named baselines"]
)
def test_one_and_three_workers_give_the_same_table(tmp_path, name):
    from autorl import executors, trainers

    _, changes = STUDIES[name]
    run_small(tmp_path / "alone", **changes)
    for workers in (1, 3):
        executor = executors.make("threads", trainers.load, workers)
        run_small(tmp_path / f"{workers}", executor=executor, **changes)
        assert table(tmp_path / f"{workers}") == table(tmp_path / "alone")
