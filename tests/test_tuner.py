"""The Python front door: `tune`, and the embedded `Tuner`."""

import dataclasses
import pickle
import re
import subprocess
import sys
import textwrap

import pytest
from refusals import expect_error

from autorl import (
    Finished,
    InputError,
    SeedPlan,
    Study,
    StudyError,
    Tuner,
    Waiting,
    optimizers,
    tune,
)
from autorl.core.plain_text import number

SPACE = {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5}}}


def value(trial, noise=0.1):
    return -((trial.config["x"] - 0.3) ** 2) + noise * ((trial.seed * 7919 % 101) / 101 - 0.5)


def drive(tuner, rounds, reverse=False):
    """Ask until `Waiting`, tell all (backwards if `reverse`), `rounds` times; what was asked."""
    asked = []
    for _ in range(rounds):
        open_ = []
        while True:
            try:
                open_.append(tuner.ask())
            except (Waiting, Finished):
                break
        asked += [(trial.id, dict(trial.config), trial.seed) for trial in open_]
        for trial in reversed(open_) if reverse else open_:
            tuner.tell(trial, value(trial))
    return asked


@pytest.mark.parametrize("optimizer", ["random", "tpe"])
def test_the_same_calls_give_the_same_trials_in_whatever_order_a_batch_is_told(optimizer):
    asked = [
        drive(Tuner(SPACE, optimizer, seeds=SeedPlan(2, 0), parallelism=3), 8, reverse)
        for reverse in (0, 0, 1)
    ]
    assert asked[0] == asked[1] == asked[2]
    assert len(asked[0]) > 20


def test_a_trial_per_tuning_seed_then_waiting():
    tuner = Tuner(SPACE, "random", seeds=SeedPlan([4, 9], 0))
    first, second = tuner.ask(), tuner.ask()
    assert (first.seed, second.seed) == (4, 9)
    assert first.config == second.config == {"x": 0.5}, "the default configuration comes first"
    assert (first.start, first.until, first.checkpoint, first.role) == (0, 1, None, "tuning")
    expect_error("2 open trials", tuner.ask, kind=Waiting)
    tuner.tell(second, 1.0)
    expect_error(r"tell the open trial first.*`parallelism` is 1", tuner.ask, kind=Waiting)
    tuner.tell(first, 3.0)
    assert tuner.ask().config != first.config
    assert tuner.result().tuning == 2.0


def test_a_trial_is_told_once():
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0))
    trial = tuner.ask()
    tuner.tell(trial, 1.0)
    for again in (lambda: tuner.tell(trial, 1.0), lambda: tuner.fail(trial)):
        expect_error(r"trial 0\.0 is not open", again)


def test_a_metric_of_a_constraint_and_of_a_point_on_the_way_is_needed_too():
    bounds = [{"metric": "cost", "max": 1.0}, {"metric": "environment_steps", "max": 1e9}]
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0), constraints=bounds, fidelity=10)
    trial = tuner.ask()
    expect_error("needs metric 'cost'; told: value", tuner.tell, trial, 1.0)
    expect_error("needs metric 'value'; told: cost", tuner.report, trial, 5, {"cost": 1.0})
    tuner.report(trial, 5, {"cost": 1.0, "value": 1})
    tuner.tell(trial, {"cost": 1.0, "value": 2})
    assert tuner.result().tuning == 2.0


@pytest.mark.parametrize("kind", ["crash", "timeout", "out_of_memory", "diverged"])
def test_failures_keep_their_kind(kind):
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0))
    tuner.tell(tuner.ask(), 1.0)
    tuner.fail(tuner.ask(), kind)
    tuner.tell(tuner.ask(), 2.0)
    assert tuner.result().counts == {kind: 1, "scored": 2}


def test_lost_is_handed_out_again_and_nonsense_is_refused():
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0))
    trial = tuner.ask()
    expect_error("unknown kind of failure 'oops'; known: crash", tuner.fail, trial, "oops")
    for _ in range(3):
        tuner.fail(trial, "lost")
        assert tuner.ask() == trial
    tuner.tell(trial, float("nan"))
    expect_error("no proposal was scored", tuner.result, kind=StudyError)


@pytest.mark.parametrize("saves", [True, False])
def test_trials_that_are_continued_get_their_checkpoint_back(saves):
    optimizer = {"name": "random", "stop": "median", "rungs": 2, "peers": 1, "grace": 0}
    tuner = Tuner(SPACE, optimizer, seeds=SeedPlan(2, 0), fidelity=100, budget={"runs": 12})
    told, continued = {}, []
    while True:
        try:
            trial = tuner.ask()
        except Finished:
            break
        if trial.until == 100:
            continued.append(trial)
        told[trial.id] = f"/mine/{trial.id}"
        tuner.tell(trial, value(trial, 0), checkpoint=told[trial.id] if saves else None)
    assert continued
    for trial in continued:
        assert trial.start == (50 if saves else 0)
        assert (trial.checkpoint in told.values()) if saves else trial.checkpoint is None
        assert trial.checkpoint is None or trial.checkpoint.endswith(f".{trial.seed}")


def test_test_trials_are_held_out_and_end_the_search(tmp_path):
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 3), path=tmp_path / "s")
    for score in (1.0, 5.0, 2.0):
        tuner.tell(tuner.ask(), score)
    trials = []
    for trial in tuner.test_trials():
        trials.append(trial)
        tuner.tell(trial, 4.0)
    assert {(trial.role, trial.seed) for trial in trials} == {
        ("test", seed) for seed in (100, 101, 102)
    }
    result = tuner.result()
    assert (result.incumbent.proposal, result.test.value, result.gap) == (1, 4.0, 1.0)
    tuner.close()
    again = Tuner(SPACE, "random", seeds=SeedPlan(1, 3), path=tmp_path / "s")
    with pytest.raises(Finished):
        again.ask()
    assert again.result() == result
    again.close()


def test_test_trials_with_open_tuning_trials():
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 1), parallelism=3, asynchronous=True)
    first, second = tuner.ask(), tuner.ask()
    assert first.config == {"x": 0.5}
    tuner.tell(second, 3.0)
    for trial in tuner.test_trials():
        tuner.tell(trial, 2.0)
    assert tuner.result().incumbent.proposal == 1


KILLED = """
    import os, signal, sys
    from autorl import SeedPlan, Tuner
    tuner = Tuner({space!r}, "tpe", seeds=SeedPlan(2, 0), path=sys.argv[1])
    for number in range(int(sys.argv[2])):
        trial = tuner.ask()
        tuner.tell(trial, -((trial.config["x"] - 0.3) ** 2) + 0.1 * ((trial.seed * 7919 % 101) / 101 - 0.5))
    tuner.ask()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_path_is_taken_up_again_after_a_kill(tmp_path):
    whole = drive(Tuner(SPACE, "tpe", seeds=SeedPlan(2, 0)), 8)
    for told in (3, 4):
        code = textwrap.dedent(KILLED).format(space=SPACE)
        command = [sys.executable, "-c", code, str(tmp_path / "s"), str(told)]
        assert subprocess.run(command, check=False).returncode == -9
    tuner = Tuner(SPACE, "tpe", seeds=SeedPlan(2, 0), path=tmp_path / "s")
    trial = tuner.ask()
    assert (trial.id, dict(trial.config), trial.seed) == whole[7]
    tuner.close()
    with pytest.raises(InputError, match="holds a study of another file"):
        Tuner(SPACE, "random", seeds=SeedPlan(2, 0), path=tmp_path / "s")


# -- tune --------------------------------------------------------------------------------------------------------------


def plain(config, *, seed):
    return config["x"] + seed / 1000


def everything(config, **offered):
    assert {"seed", "until", "report", "checkpoint", "role", "horizon"} <= set(offered)
    if offered["folder"] is not None:
        (offered["folder"] / "state").write_text("trained")
    return {"value": config["x"]}


def reporting(config, *, seed, until, report):
    report(until, config["x"])


@pytest.mark.parametrize(
    "function", [plain, everything, reporting, lambda config, seed: config["x"]]
)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_tune_a_function(function, direction):
    result = tune(
        function, SPACE, runs=12, seeds=SeedPlan(2, 2), optimizer="random", direction=direction
    )
    assert result.counts == {"scored": 6}
    assert (result.incumbent.config["x"] > 0.5) == (direction == "maximize")
    assert len(result.test.seeds) == 2
    assert result.folder is None


def test_out_keeps_the_study_and_takes_it_up_again(tmp_path, monkeypatch):
    calls = []

    def counted(config, *, seed):
        calls.append(seed)
        return config["x"]

    options = {"runs": 6, "seeds": SeedPlan(1, 2), "optimizer": "random", "out": tmp_path / "s"}
    first = tune(counted, SPACE, **options)
    done = len(calls)
    monkeypatch.chdir(tmp_path)
    assert tune(counted, SPACE, workers=1, **options) == first, (
        "from another folder, with the workers named"
    )
    assert len(calls) == done
    expect_error("holds a study of another file", tune, counted, SPACE, **options | {"runs": 7})


def test_who_opens_the_study_of_a_function_is_told_to_run_its_program(tmp_path):
    def inner(config, *, seed):
        return config["x"]

    tune(inner, SPACE, runs=3, seeds=SeedPlan(1, 1), optimizer="random", out=tmp_path / "s")
    expect_error("was given to `tune` by a program: run that again", Study.open, tmp_path / "s")


def test_what_is_wrong_is_said():
    expect_error("needs a search space", tune, plain)
    expect_error("only a function needs a space", tune, "population/ppo", SPACE)
    expect_error("unknown key 'rums'.*did you mean 'runs'", tune, plain, SPACE, rums=3)
    expect_error("file not found", tune, "nowhere.yaml")
    with pytest.raises(InputError, match="needs an argument 'learning_rate' nobody gives"):
        tune(lambda config, learning_rate: 1.0, SPACE)


@pytest.mark.parametrize(
    "option",
    [
        {"workers": 2},
        {"executor": "threads", "executor__workers": 4},
        {"executor": {"name": "processes", "workers": 2}},
    ],
)
@pytest.mark.parametrize("function", [plain, everything])
def test_workers_change_no_result(function, option, tmp_path):
    options = {
        "runs": 12,
        "steps": 8,
        "seeds": SeedPlan(2, 1),
        "optimizer": {"name": "random", "stop": "median", "rungs": 2},
    }
    alone = tune(function, SPACE, out=tmp_path / "alone", **options)
    several = tune(function, SPACE, out=tmp_path / "several", **options, **option)
    assert dataclasses.replace(several, folder=alone.folder) == alone


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"known keys: .* more") as refused:
        Tuner(SPACE, workers=3)
    assert not {"runs", "workers", "trainer"} & set(re.findall(r"\w+(?=,)", str(refused.value)))


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("n_trials", "here it is `runs`"),
        ("n_jobs", "here it is `workers`"),
        ("maximize", "here it is `direction='maximize'`"),
        ("pruner", "here it is `stop='median'`"),
        ("optimiser", "did you mean 'optimizer'"),
        ("direktion", "did you mean 'direction'"),
    ],
)
def test_an_option_of_others_and_a_misspelt_one_are_answered_with_ours(option, answer):
    expect_error(answer, tune, plain, SPACE, **{option: 3})


@pytest.mark.parametrize("call", [Tuner, lambda space, **options: tune(plain, space, **options)])
def test_several_directions_are_several_objectives(call):
    with pytest.raises(InputError, match=r"several objectives.*objective=\[\{"):
        call(SPACE, direction=["maximize", "minimize"])


def test_a_result_is_printed_in_a_few_lines():
    result = tune(plain, SPACE, runs=6, seeds=SeedPlan(1, 2), optimizer="random")
    lines = str(result).splitlines()
    assert len(lines) == 4
    assert number(result.test.iqm) in lines[1]
    assert lines[1].endswith("2 held-out seeds")
    assert "1 tuning seed;" in lines[2]
    assert lines[3].endswith(f"x={result.best_params['x']!r}")
    untested = dataclasses.replace(result, entries=())
    assert str(untested).splitlines()[1] == "not tested on held-out seeds"


def test_a_tuple_is_neither_choices_nor_bounds():
    for space in ({"x": (0.0, 1.0)}, {"hyperparameters": {"x": (0.0, 1.0)}}):
        with pytest.raises(InputError, match=r"space.x: \(0.0, 1.0\) is a tuple.*uniform") as error:
            tune(plain, space, runs=6)
        assert error.value.key == "space.x"


def test_an_optimizer_is_given_as_its_class():
    options = {"runs": 6, "seeds": SeedPlan(1, 1)}
    by_name = tune(plain, SPACE, optimizer="random", **options)
    by_class = tune(plain, SPACE, optimizer=optimizers.find("random"), **options)
    assert by_class.incumbent == by_name.incumbent
    assert Tuner(SPACE, optimizers.find("random")).ask().config["x"] == 0.5

    class Inner:
        pass

    with pytest.raises(InputError, match="put it into a module") as refused:
        tune(plain, SPACE, optimizer=Inner, **options)
    assert refused.value.key == "optimizer"


# -- names of other libraries ------------------------------------------------------------------------------------------


def test_a_trial_is_no_failure_that_the_study_has_stopped():
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0))
    trial = tuner.ask()
    for kind in ("pruned", "stopped"):
        expect_error(r"is no failure.*`stop: median`, `rungs`", tuner.fail, trial, kind)
    assert not hasattr(trial, "should_prune")
    assert pickle.loads(pickle.dumps(trial)) == trial
    tuner.tell(trial, 1.0)


def test_a_function_with_a_report_is_told_of_the_trial():
    def pruning(config, *, seed, until, report):
        report(1, config["x"])
        if report.should_prune():
            return 0.0

    with pytest.raises(StudyError, match=r"`f\(trial\)`, which has.*should_stop"):
        tune(pruning, SPACE, runs=12, steps=2, seeds=SeedPlan(1, 1))
