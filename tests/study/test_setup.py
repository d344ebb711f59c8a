"""Setting up a study: its executor, its limits, and refusals before anything is trained."""

from types import SimpleNamespace

import pytest
from refusals import expect_error
from study_support import small_spec

from autorl import executors
from autorl.study import setup
from autorl.study.setup import (
    changeable,
    executor_name,
    local_executor_name,
    make_executor,
    trainer_loader,
)

DOWN = {"reduce": "time_to(0.5)", "direction": "minimize"}
METRICS = {"steps": 100, "metrics": ["eval_return_cvar_9"]}


def spec_of(*best, name=None, limits=None, needs_gpu=False, **executor):
    """A study of trainers that run best on these executors."""
    limits = {"segment_seconds": None, "memory_gb": None} | (limits or {})
    section = {"name": name, "devices": [], "workers": None, "address": None}
    section |= {"autoscaler": False} | executor
    return SimpleNamespace(
        executor=SimpleNamespace(**section),
        limits=SimpleNamespace(**limits),
        trainers={str(place): place for place in range(len(best))},
        environments=[SimpleNamespace(id="")],
        info=lambda place: SimpleNamespace(executor_for=lambda environment: best[place]),
        needs_gpu=needs_gpu,
        storage=executor.get("storage"),
    )


# -- which executor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("best", "stated", "name"),
    [
        (["processes"], None, "processes"),
        (["processes"], "threads", "threads"),
        (["processes"], "in_process", "in_process"),
        (["processes", "threads"], None, "processes"),
        (["processes", "threads"], "threads", "threads"),
        (["threads"], None, "threads"),
        (["threads"], "processes", "threads"),
        (["threads"], "in_process", "in_process"),
        (["threads", "in_process"], None, "processes"),
        (["in_process"], None, "in_process"),
        (["in_process", "in_process"], None, "in_process"),
        (["in_process"], "processes", "processes"),
        (["processes"], "ray", "processes"),
    ],
)
def test_segments_run_on_what_suits_their_trainers(best, stated, name):
    spec = spec_of(*best, name=stated)
    assert local_executor_name(spec) == name
    assert executor_name(spec) == (stated if stated == "ray" else name)


@pytest.mark.parametrize(
    "asking",
    [{"limits": {"segment_seconds": 60.0}}, {"limits": {"memory_gb": 1.0}}, {"needs_gpu": True}],
)
def test_what_limits_and_devices_ask_for_runs_in_a_process_of_its_own(asking):
    assert local_executor_name(spec_of("in_process", "in_process", **asking)) == "processes"


# -- how it is made ----------------------------------------------------------------------------------------------------


def test_who_asks_for_workers_that_in_process_has_not_is_told(tmp_path):
    spec = small_spec()
    load = trainer_loader(spec)
    assert expect_error("one at a time, not 2", make_executor, spec, load, 2).key == "--workers"
    assert type(make_executor(spec, load, 1)).__name__ == "InProcess"


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"executor": {"name": "ray", "autoscaler": True}}, "executor.autoscaler"),
        (
            {"executor": {"name": "processes", "workers": 2, "autoscaler": True}},
            "executor.autoscaler",
        ),
        ({"executor": {"name": "processes", "devices": [0]}}, "executor.devices"),
    ],
)
def test_what_an_executor_cannot_do_is_refused(monkeypatch, changes, key):
    monkeypatch.setattr(executors, "check", lambda *asked: None)
    assert expect_error(key, setup._check_executor, small_spec(**changes)).key == key


# -- hyperparameters ---------------------------------------------------------------------------------------------------


def test_what_a_continued_run_may_change_is_marked_and_supported():
    spec = small_spec()
    marked = {"x", "rate"}
    everything = changeable(spec, lambda trainer: SimpleNamespace(changes={*marked, "kind"}))
    assert everything == marked
    assert changeable(spec, lambda trainer: SimpleNamespace(changes={"x", "kind"})) == {"x"}
    assert changeable(spec, lambda trainer: SimpleNamespace(changes=())) == set()


# -- objectives that are times, tails and values of `info` -------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"optimizer": "asha"}, "time_to is of whole runs: asha compares"),
        ({"optimizer": {"name": "random", "stop": "median"}}, "whole runs: stop: median compares"),
        ({"failures": {"penalty": 3}}, "objective.reduce: time_to has a penalty of its own"),
        (
            {"objective": {"metric": "environment_steps", **DOWN}},
            "is of evaluations, environment_steps is a cost",
        ),
        ({"fidelity": METRICS}, "fidelity.metrics: unknown metric 'eval_return_cvar_9'"),
        ({"environment": {"info": {"cost": "sum"}}}, "environment.info: no `info` is read of"),
        ({"environment": {"info": {"return": "sum"}}}, "eval_return is a metric of every"),
        ({"environment": {"info": {"cost": "mean"}}}, "environment.info.cost: should be 'sum'"),
    ],
)
def test_what_an_objective_or_a_metric_cannot_be(changes, message):
    def checked():
        spec = small_spec(
            **{"optimizer": "random", "objective": {"reduce": "time_to(0.5)"}} | changes
        )
        setup.check(spec, trainer_loader(spec))

    if message is None:
        checked()
        return
    expect_error(message, checked)
