"""Studies for the tests of trackers: complete, stopped and failed runs, in two sessions."""

import pytest

from autorl import SeedPlan, tune
from autorl.space import Hyperparameter, define_space
from autorl.study.callbacks import RunInfo, StudyInfo

SPACE = {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5}}}
STUDY = {
    "runs": 6,
    "steps": 4,
    "seeds": SeedPlan(2, 2),
    "optimizer": "random",
    "stop": "median",
    "rungs": 2,
    "name": "hills",
    "test": {"top": 1, "baseline": False},
}


def climb(trial):
    for step in range(1, trial.until + 1):
        if trial.config["x"] > 0.8:
            raise ValueError("too steep")
        trial.report(step, {"value": trial.config["x"] * step, "seen": trial.seed})
        if trial.should_stop():
            return


class Stopped(Exception):
    pass


def sessions(folder, callbacks, segments=5, **options):
    """Interrupt a study after some segments, and take it up again with other callbacks.

    Args:
        folder: that keeps it.
        callbacks: makes those of a session.
    """

    def interrupt(progress):
        if progress.finished_segments >= segments:
            raise Stopped

    arguments = STUDY | options
    with pytest.raises(Stopped):
        tune(climb, SPACE, out=folder, callbacks=callbacks(), progress=interrupt, **arguments)
    return tune(climb, SPACE, out=folder, callbacks=callbacks(), **arguments)


def rows_of(result):
    """The runs of a study by number; they are of every kind that the tests ask about."""
    rows = {row["run"]: row for row in result.trials().to_dict("records")}
    kinds = {(row["role"], row["state"]) for row in rows.values()}
    assert {("tuning", "complete"), ("tuning", "stopped"), ("test", "complete")} <= kinds
    assert ("tuning", "crash") in kinds
    return rows


def curve_of(row):
    """Every evaluation of a run: step and value."""
    return {step: pytest.approx(row["params_x"] * step) for step in range(1, row["steps"] + 1)}


def study_info(folder):
    return StudyInfo(
        name="hills",
        folder=folder,
        trainers=("population/ppo",),
        environment="CartPole-v1",
        optimizer="random",
        objectives=({"metric": "value", "reduce": "last", "direction": "maximize"},),
        steps=40,
        seed=0,
        id="0123456789abcdef" * 4,
        space=define_space([Hyperparameter.real("x", 0.0, 1.0)]),
        aggregate="mean",
        stop=None,
    )


def run_info(run=7, start=0, until=40, parent_run=None, config=None):
    return RunInfo(
        run=run,
        proposal=3,
        config=config or {"x": 0.25, "units": (64, 64), "kind": "relu", "norm": True},
        seed=1,
        role="tuning",
        start=start,
        until=until,
        parent_run=parent_run,
    )
