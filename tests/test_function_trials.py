"""Functions `f(trial)` of `tune`: pruning without a checkpoint, in threads and in processes."""

import os
import subprocess
import sys
import textwrap
import threading

import pandas as pd
import pytest
from refusals import expect_error

import autorl
from autorl import InputError, SeedPlan, StudyError, TrialStopped, tune

SPACE = {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5}}}
STUDY = {
    "runs": 24,
    "steps": 20,
    "seeds": SeedPlan(2, 1),
    "optimizer": "random",
    "stop": "median",
    "rungs": 4,
    "parallelism": 3,
}


def climb(trial):
    height = 0.0
    for step in range(1, trial.until + 1):
        height += trial.config["x"] + (trial.seed % 7) * 0.01
        trial.report(step, height)
        if trial.should_stop():
            return None
    return height


def table(result):
    """The trials without what a clock has measured."""
    return result.trials().drop(columns=["wall_seconds", "peak_memory_mb"])


def test_the_table_is_the_same_with_one_worker_and_several_threads():
    alone = tune(climb, SPACE, **STUDY)
    stopped = table(alone).query("state == 'stopped'")
    assert 4 <= len(stopped) < len(table(alone)) - 4
    assert set(stopped["steps"]) <= {10, 15}  # never at the first rung, which is grace
    result = tune(climb, SPACE, workers=3, **STUDY)
    assert result == alone
    pd.testing.assert_frame_equal(table(result), table(alone))


def test_the_table_is_the_same_in_processes():
    options = STUDY | {
        "runs": 6,
        "seeds": SeedPlan(1, 1),
        "optimizer": {"name": "random", "peers": 1, "grace": 0},
    }
    alone = tune(climb, SPACE, **options)
    assert "stopped" in set(table(alone)["state"])
    result = tune(climb, SPACE, workers=2, executor="processes", **options)
    assert result == alone
    pd.testing.assert_frame_equal(table(result), table(alone))


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_is_trained_twice(workers):
    trained = []

    def counted(trial):
        for step in range(1, trial.until + 1):
            trained.append((trial.id, step))
            trial.report(step, trial.config["x"])
            if trial.should_stop():
                return

    result = tune(counted, SPACE, workers=workers, **STUDY)
    assert len(trained) == len(set(trained)) == result.trials()["environment_steps"].sum()
    assert "stopped" in set(result.trials()["state"])


def test_a_function_that_never_asks_is_ended_by_its_next_report():
    ends = []

    def stubborn(trial):
        try:
            for step in range(1, trial.until + 1):
                trial.report(step, trial.config["x"])
        except TrialStopped:
            ends.append("stopped")
            raise
        ends.append("whole")

    result = tune(stubborn, SPACE, **STUDY)
    states = result.trials()["state"].value_counts()
    assert (ends.count("stopped"), ends.count("whole")) == (states["stopped"], states["complete"])


def test_without_a_rule_a_function_is_called_in_the_thread_of_tune_and_never_stopped():
    threads = set()

    def whole(trial):
        threads.add(threading.get_ident())
        return climb(trial)

    result = tune(whole, SPACE, runs=6, steps=5, seeds=SeedPlan(1, 1), optimizer="random")
    assert threads == {threading.get_ident()}
    assert set(result.trials()["state"]) == {"complete"}


def test_several_run_at_once():
    everyone = threading.Barrier(4)  # nobody passes before four are there

    def together(trial):
        everyone.wait(timeout=600)
        return trial.config["x"]

    options = {"seeds": SeedPlan(4, 4), "optimizer": "random", "runs": 8, "parallelism": 1}
    result = tune(together, SPACE, workers=4, test={"top": 1, "baseline": False}, **options)
    assert result.counts == {"scored": 2}


def test_processes_have_an_interpreter_of_their_own():
    def where(trial):
        return {"value": trial.config["x"], "pid": os.getpid()}

    def told(config, seed):
        return {"value": config["x"], "pid": os.getpid()}

    class Pids(autorl.Callback):
        def __init__(self):
            self.pids = set()

        def on_report(self, study, run, step, metrics):
            self.pids.add(metrics["pid"])

    options = {"seeds": SeedPlan(1, 1), "optimizer": "random", "runs": 2, "workers": 2}
    for function in (where, told):
        seen = Pids()
        tune(function, SPACE, executor="processes", callbacks=[seen], **options)
        assert len(seen.pids) >= 3
        assert os.getpid() not in seen.pids


def fails_in_a_process(trial):
    trial.report(1, trial.config["x"])
    raise ZeroDivisionError("no")


def dies_in_a_process(trial):
    os.abort()


@pytest.mark.parametrize(
    ("function", "message"),
    [(fails_in_a_process, "ZeroDivisionError: no"), (dies_in_a_process, "SIGABRT")],
)
def test_what_goes_wrong_in_a_process_is_said(function, message):
    with pytest.raises(StudyError, match=message):
        tune(function, SPACE, runs=12, steps=2, seeds=SeedPlan(1, 1), executor="processes")


def test_a_function_that_cannot_be_sent_is_refused():
    lock = threading.Lock()

    def holding(trial):
        with lock:
            return trial.config["x"]

    with pytest.raises(InputError, match=r"cannot be sent to a worker process.*run it in threads"):
        tune(holding, SPACE, runs=4, executor="processes")
    assert tune(holding, SPACE, runs=2, seeds=SeedPlan(1, 0), workers=2).counts == {"scored": 2}


def test_a_run_that_ends_itself_is_scored_and_not_continued():
    def early(trial):
        for step in range(1, trial.until + 1):
            trial.report(step, trial.config["x"])
            if step == 7 and trial.config["x"] < 0.9:
                raise TrialStopped
        return 1.0

    rows = tune(early, SPACE, **STUDY).trials()
    tuning = rows[rows["role"] == "tuning"]
    low = tuning[tuning["params_x"] < 0.9]
    assert set(low["state"]) == {"stopped"}
    assert set(low["steps"]) == {7}
    assert list(low["value"]) == list(low["params_x"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda trial: trial.report(0, 1.0), r"report\(step, value\): steps count from 1"),
        (lambda trial: trial.report(-0.5, 1), r"expected.*report\(step, value\), got -0.5"),
        (lambda trial: trial.report(21, 1.0), "reported nothing up to step 5"),
        (lambda trial: 1.0, "returned without a report.*compares runs at step 5"),
        (lambda trial: None, "returned nothing and reported nothing"),
        (lambda trial: trial.should_prune(), r"has no attribute 'should_prune': ask `trial.should"),
        (lambda trial: bool(trial.should_stop), r"a function: write trial\.should_stop\(\)"),
        (lambda trial: trial.suggest_float("x", 0, 1), "the values are in `trial.config`"),
        (lambda trial: (trial.report(2, 1.0), trial.report(2, 1.0)), "expected a later step"),
    ],
)
def test_mistakes_are_said(function, message):
    expect_error(message, tune, function, SPACE, kind=StudyError, **STUDY)


def test_a_function_that_needs_more_than_the_trial_is_refused():
    expect_error("is given nothing else, but needs 'seed'", tune, lambda trial, seed: 1.0, SPACE)


KILLED = """
    import os, signal, sys
    sys.path.insert(0, {folder!r})
    from test_function_trials import SPACE, STUDY, climb
    import autorl

    class Kill(autorl.Callback):
        left = int(sys.argv[2])
        def on_outcome(self, study, run, outcome):
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)

    autorl.tune(climb, SPACE, out=sys.argv[1], workers=2, callbacks=[Kill()], **STUDY)
"""


def test_a_killed_study_goes_on_with_the_function_given_again(tmp_path):
    code = textwrap.dedent(KILLED).format(folder=os.path.dirname(__file__))
    for outcomes in ("9", "8"):
        command = [sys.executable, "-c", code, str(tmp_path / "s"), outcomes]
        assert subprocess.run(command, check=False).returncode == -9
    resumed = tune(climb, SPACE, out=tmp_path / "s", workers=2, **STUDY)
    whole = tune(climb, SPACE, **STUDY)
    pd.testing.assert_frame_equal(table(resumed), table(whole))
    assert (resumed.tuning, resumed.test, resumed.counts) == (
        whole.tuning,
        whole.test,
        whole.counts,
    )
    assert resumed.best_params == whole.best_params == dict(whole.incumbent.config)


def test_a_study_file_names_such_a_function_too(tmp_path):
    """Each segment is a call of its own there: the same table, more training."""
    study = {
        "trainer": f"python:{os.path.abspath(__file__)}:climb",
        "space": SPACE,
        "executor": {"name": "in_process"},
    }
    named = tune(study, **STUDY)
    pd.testing.assert_frame_equal(table(named), table(tune(climb, SPACE, **STUDY)))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"executor": "in_process", "workers": 2}, "choose `threads` or `processes`"),
        ({"executor": "ray"}, "for other machines name it in a study"),
        ({"workers": 2, "limits__segment_seconds": 9}, "only `processes`.*enforces limits"),
        ({"executor": "processes", "limits__memory_gb": 9}, "only `processes`.*enforces limits"),
        ({"constraints": [{"metric": "peak_memory_mb", "max": 9}]}, "peak_memory_mb: only `proc"),
    ],
)
def test_what_an_executor_cannot_do_is_refused(option, message):
    expect_error(message, tune, climb, SPACE, runs=6, **option)
