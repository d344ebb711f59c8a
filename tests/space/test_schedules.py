"""Schedules are functions of step / horizon, with shape and final value."""

import ast
import math
import subprocess
import sys

import numpy as np
import pytest

from autorl.core.types import Config, InputError
from autorl.space import load_space, resolve_schedules, schedule_function
from autorl.space.schedules import SHAPES, remaining_schedule

LR = {"type": "float", "lower": 1e-5, "upper": 1e-2, "scale": "log", "default": 1e-3}


def space_with(schedule, **parts):
    rate = {**LR, "changeable": True, "schedule": schedule}
    return load_space({"hyperparameters": {"opt": ["adam", "sgd"], "lr": rate}, **parts})


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.8, 0.6, 0.4, 0.2]),
        (
            "cosine",
            [1.0, 0.2 + 0.4 * (1 + math.sqrt(0.5)), 0.6, 0.2 + 0.4 * (1 - math.sqrt(0.5)), 0.2],
        ),
        ("exponential", [1.0, 0.2**0.25, 0.2**0.5, 0.2**0.75, 0.2]),
        ("step", [1.0, 1.0, 0.2, 0.2, 0.2]),
        ("warmup", [0.2, 1 - 0.8 * 15 / 90, 1 - 0.8 * 40 / 90, 1 - 0.8 * 65 / 90, 0.2]),
    ],
)
def test_values_over_training(shape, values):
    config = {"lr": 1.0, "lr.shape": shape} | ({} if shape == "constant" else {"lr.end": 0.2})
    found = [resolve_schedules(config, step, 400)["lr"] for step in (0, 100, 200, 300, 400)]
    np.testing.assert_allclose(found, values, rtol=1e-12)
    assert resolve_schedules(config, 500, 400)["lr"] == pytest.approx(values[-1])
    assert schedule_function(config, "lr")(0.5) == found[2]


def test_a_warm_up_takes_a_tenth_of_the_horizon():
    config = {"lr": 1.0, "lr.shape": "warmup", "lr.end": 0.2}
    found = [resolve_schedules(config, step, 400)["lr"] for step in (0, 10, 20, 39, 40)]
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.98, 1.0])


def test_schedules_for_stable_baselines3_load_without_this_package():
    cloudpickle = pytest.importorskip("cloudpickle")
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    made = {shape: remaining_schedule(1.0, 0.2, shape) for shape in SHAPES if shape != "constant"}
    code = (
        "import sys, pickle; sys.modules['autorl'] = None\n"
        "made = pickle.load(sys.stdin.buffer)\n"
        "print({shape: value(0.25) for shape, value in made.items()})"
    )
    pickled = cloudpickle.dumps(made)
    answer = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True)
    assert not answer.stderr, answer.stderr
    ours = {
        shape: schedule_function({"lr": 1.0, "lr.shape": shape, "lr.end": 0.2}, "lr")(0.75)
        for shape in made
    }
    assert ast.literal_eval(answer.stdout.decode()) == pytest.approx(ours)


def test_helpers_are_dropped_and_the_rest_is_untouched():
    config = Config(
        {"ppo.lr": 1.0, "ppo.lr.shape": "linear", "ppo.lr.end": 0.0, "net": (64, 64), "week.end": 3}
    )
    assert resolve_schedules(config, 50, 100) == {"ppo.lr": 0.5, "net": (64, 64), "week.end": 3}


def test_expansion():
    space = space_with(["constant", "linear", "cosine"])
    assert space.names == ("opt", "lr", "lr.shape", "lr.end")
    end = space.hyperparameters["lr.end"]
    assert (*end.bounds, end.scale, end.default, end.changeable) == (1e-5, 1e-2, "log", 1e-5, True)
    assert space.hyperparameters["lr.shape"].choices == ("constant", "linear", "cosine")
    assert space.changeable == {"lr", "lr.end"}
    assert space.default() == {"opt": "adam", "lr": 1e-3, "lr.shape": "constant"}
    assert space.config({"lr.shape": "cosine"})["lr.end"] == 1e-5


@pytest.mark.parametrize("schedule", [["constant", "linear"], ["linear", "cosine"], ["linear"]])
def test_a_conditional_hyperparameter_takes_its_schedule_with_it(schedule):
    space = space_with(schedule, conditions={"lr": "opt == sgd"})
    assert space.default() == {"opt": "adam"}
    shape = {"lr.shape": "linear"} if len(schedule) > 1 else {}
    scheduled = {"lr": 1e-3, "lr.shape": "linear", "lr.end": 1e-5}
    assert space.config({"opt": "sgd", **shape}) == {"opt": "sgd", **scheduled}


def test_errors():
    with pytest.raises(
        InputError, match=r"lr\.shape: expected one of constant, linear, .*warmup, got 'exp'"
    ):
        resolve_schedules({"lr": 1.0, "lr.shape": "exp"}, 0, 10)
    with pytest.raises(InputError, match=r"lr\.end: the shape linear needs a final value"):
        resolve_schedules({"lr": 1.0, "lr.shape": "linear"}, 0, 10)
    between = {"lr": 1.0, "lr.shape": "exponential", "lr.end": 0.0}
    with pytest.raises(InputError, match=r"lr\.shape: exponential goes between numbers above 0"):
        resolve_schedules(between, 0, 10)
    with pytest.raises(InputError, match="exponential needs a lower bound above 0, got 0"):
        load_space({"lr": {"type": "float", "lower": 0, "upper": 1, "schedule": ["exponential"]}})
    with pytest.raises(InputError, match="horizon"):
        resolve_schedules({"lr": 1.0}, 0, 0)
