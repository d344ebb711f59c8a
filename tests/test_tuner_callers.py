"""The `Tuner` in threads, coroutines and processes, and what may be given to it on the way."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pandas as pd
import pytest
from refusals import expect_error

from autorl import Callback, Finished, SeedPlan, StudyError, Tuner, Waiting

SPACE = {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5}}}
OPTIONS = {"optimizer": "tpe", "seeds": SeedPlan(2, 0), "budget": {"runs": 40}, "parallelism": 4}


def value(trial):
    return -((trial.config["x"] - 0.3) ** 2) + 0.1 * ((trial.seed * 7919 % 101) / 101 - 0.5)


def table(tuner):
    return tuner.result().trials()


def in_turn(**more):
    tuner = Tuner(SPACE, **OPTIONS, **more)
    while True:
        try:
            trial = tuner.ask()
        except Finished:
            return table(tuner)
        tuner.tell(trial, value(trial))


def test_threads_share_a_tuner_and_the_table_is_that_of_one(tmp_path):
    tuner = Tuner(SPACE, path=tmp_path / "s", **OPTIONS)

    def work():
        told = 0
        while True:
            try:
                trial = tuner.ask(wait=True)
            except Finished:
                return told
            tuner.tell(trial, value(trial))
            told += 1

    with ThreadPoolExecutor(4) as pool:
        told = [future.result() for future in [pool.submit(work) for _ in range(4)]]
    assert sum(told) == 40
    pd.testing.assert_frame_equal(table(tuner), in_turn())
    tuner.close()


def test_coroutines_share_a_tuner_and_the_table_is_that_of_one():
    async def work(tuner):
        while True:
            try:
                trial = await tuner.ask_async()
            except Finished:
                return
            await asyncio.sleep(0)
            await tuner.tell_async(trial, value(trial))

    async def everyone(tuner):
        await asyncio.gather(*(work(tuner) for _ in range(50)))

    tuner = Tuner(SPACE, **OPTIONS)
    asyncio.run(everyone(tuner))
    pd.testing.assert_frame_equal(table(tuner), in_turn())


def test_a_coroutine_that_is_cancelled_loses_no_trial():
    async def cancelled(tuner):
        asked = asyncio.ensure_future(tuner.ask_async())
        await asyncio.sleep(0)  # asked for, and not received
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        return await tuner.ask_async()

    tuner = Tuner(SPACE, **OPTIONS)
    held = threading.Event()
    tuner._owner.submit(held.wait)  # so that the answer comes after the cancellation
    threading.Timer(0.2, held.set).start()
    first = asyncio.run(cancelled(tuner))
    assert first == Tuner(SPACE, **OPTIONS).ask()


def test_trials_are_trained_in_processes_and_told_here():
    tuner = Tuner(SPACE, **OPTIONS)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        while True:
            trials = []
            try:
                while True:
                    trials.append(tuner.ask())
            except (Waiting, Finished):
                if not trials:
                    break
            for trial, told in zip(trials, pool.map(value, trials), strict=True):
                tuner.tell(trial, told)
    pd.testing.assert_frame_equal(table(tuner), in_turn())


ELSEWHERE = """
import sys
from autorl import Tuner, InputError
try:
    Tuner({space!r}, path=sys.argv[1])
except InputError as error:
    print(error)
"""


def test_another_process_on_the_folder_gets_one_line(tmp_path):
    with Tuner(SPACE, path=tmp_path / "s", **OPTIONS):
        code = ELSEWHERE.format(space=SPACE)
        command = [sys.executable, "-c", code, str(tmp_path / "s")]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"process {os.getpid()} on " in said
    assert "one process asks and tells" in said


def test_a_forked_child_is_refused():
    tuner = Tuner(SPACE, **OPTIONS)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            tuner.ask()
        except StudyError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"belongs to the process that made it" in os.read(reader, 1000)


def test_who_waits_hears_of_the_end():
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0), budget={"runs": 1})
    trial = tuner.ask()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(tuner.ask, wait=True)
        tuner.tell(trial, 1.0)
        with pytest.raises(Finished):
            waiting.result()


@pytest.mark.parametrize(
    "call",
    [
        lambda tuner, trial: tuner.ask(),
        lambda tuner, trial: tuner.ask(wait=True),
        lambda tuner, trial: asyncio.run(tuner.ask_async()),
        lambda tuner, trial: tuner.tell(trial, 1.0),
        lambda tuner, trial: asyncio.run(tuner.tell_async(trial, 1.0)),
        lambda tuner, trial: tuner.report(trial, 1, 1.0),
        lambda tuner, trial: tuner.fail(trial),
        lambda tuner, trial: tuner.enqueue({"x": 0.25}),
        lambda tuner, trial: next(tuner.test_trials()),
        lambda tuner, trial: tuner.result(),
        lambda tuner, trial: tuner.close(),
    ],
)
def test_a_callback_that_calls_its_tuner_is_refused(call, capsys):
    class Calling(Callback):
        def on_outcome(self, study, run, outcome):
            call(tuner, trial)

    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0), callbacks=[Calling()])
    trial = tuner.ask()
    tuner.tell(trial, 1.0)
    (said,) = capsys.readouterr().err.splitlines()
    assert "callback Calling raised StudyError: a callback cannot call its tuner" in said
    tuner.tell(tuner.ask(), 2.0)
    assert tuner.result().tuning == 2.0


@pytest.mark.parametrize("trial", [None, "0.0", 3])
def test_what_is_not_a_trial_is_refused(trial):
    tuner = Tuner(SPACE, **OPTIONS)
    for call in (tuner.fail, lambda it: tuner.tell(it, 1.0), lambda it: tuner.report(it, 1, 1.0)):
        expect_error("trial: expected a trial", call, trial)


def test_a_closed_tuner_says_so_and_closes_twice():
    tuner = Tuner(SPACE, **OPTIONS)
    tuner.close()
    tuner.close()
    expect_error("the tuner is closed", tuner.ask, kind=StudyError)


# -- enqueue -----------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["tpe", "random", {"name": "tpe", "stop": "median"}, "asha"])
def test_an_enqueued_configuration_comes_after_the_default(optimizer):
    tuner = Tuner(SPACE, optimizer, seeds=SeedPlan(1, 0), fidelity=100, budget={"runs": 30})
    tuner.enqueue({"x": 0.125})
    tuner.enqueue({"x": 0.25})
    begun = []
    while len(begun) < 4:
        trial = tuner.ask()
        if trial.start == 0:
            begun.append(trial.config["x"])
        tuner.tell(trial, value(trial), checkpoint="here")
    assert begun[:3] == [0.5, 0.125, 0.25]
    assert begun[3] not in begun[:3]
    origins = table(tuner).set_index("configuration")["origin"]
    assert list(origins[:3]) == ["default", "enqueued", "enqueued"]


def test_transfer_counts_no_enqueued_configuration_as_a_draw_of_an_arm(tmp_path):
    """Nor after the study was opened again: a function of the events."""
    optimizer = {"name": "transfer", "prior": "none"}
    options = {"seeds": SeedPlan(1, 0), "fidelity": 100, "budget": {"runs": 30}}
    with Tuner(SPACE, optimizer, path=tmp_path / "s", **options) as tuner:
        tuner.enqueue({"x": 0.125})
        for _ in range(4):
            trial = tuner.ask()
            tuner.tell(trial, value(trial))
        assert sorted(tuner._study.optimizer._arms) == [2, 3]
    with Tuner(SPACE, optimizer, path=tmp_path / "s", **options) as tuner:
        assert sorted(tuner._study.optimizer._arms) == [2, 3]


def test_what_was_enqueued_survives(tmp_path):
    with Tuner(SPACE, path=tmp_path / "s", **OPTIONS) as tuner:
        tuner.enqueue({"x": 0.125})
    with Tuner(SPACE, path=tmp_path / "s", **OPTIONS) as tuner:
        assert [tuner.ask().config["x"] for _ in range(4)] == [0.5, 0.5, 0.125, 0.125]
    with Tuner(SPACE, path=tmp_path / "s", **OPTIONS) as tuner:
        assert sorted(tuner.ask().config["x"] for _ in range(8)).count(0.125) == 2


def test_what_cannot_be_enqueued_is_refused():
    tuner = Tuner(SPACE, **OPTIONS)
    expect_error(r"x", tuner.enqueue, {"x": 2.0})
    expect_error("y", tuner.enqueue, {"x": 0.5, "y": 1})
    expect_error(r"enqueue: expected values by hyperparameter, got 'x'", tuner.enqueue, "x")
    grid = Tuner(SPACE, {"name": "grid"}, seeds=SeedPlan(1, 0))
    expect_error("grid has no place for other configurations", grid.enqueue, {"x": 0.3})


# -- reports -----------------------------------------------------------------------------------


def test_reports_are_points_of_the_curve():
    options = {"objective": {"metric": "value", "reduce": "auc"}}
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0), fidelity=10, **options)
    trial = tuner.ask()
    tuner.report(trial, 4, 1.0)
    for step in (4, 10):
        expect_error(f"report at step {step}", tuner.report, trial, step, 1.0)
    tuner.tell(trial, 3.0)
    assert tuner.result().tuning == 2.0
    expect_error("is not open", tuner.report, trial, 5, 1.0)
