"""Schedules are functions of step / horizon, with shape and final value."""

import math

import numpy as np
import pytest

from autorl.core.types import Config, InputError
from autorl.space import load_space, resolve_schedules, schedule_function

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
    ],
)
def test_values_over_training(shape, values):
    config = {"lr": 1.0, "lr.shape": shape} | ({} if shape == "constant" else {"lr.end": 0.2})
    found = [resolve_schedules(config, step, 400)["lr"] for step in (0, 100, 200, 300, 400)]
    np.testing.assert_allclose(found, values, rtol=1e-12)
    assert resolve_schedules(config, 500, 400)["lr"] == pytest.approx(values[-1])
    assert schedule_function(config, "lr")(0.5) == found[2]


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
        InputError, match=r"lr\.shape: expected one of constant, linear, cosine, got 'exp'"
    ):
        resolve_schedules({"lr": 1.0, "lr.shape": "exp"}, 0, 10)
    with pytest.raises(InputError, match=r"lr\.end: the shape linear needs a final value"):
        resolve_schedules({"lr": 1.0, "lr.shape": "linear"}, 0, 10)
    with pytest.raises(InputError, match="horizon"):
        resolve_schedules({"lr": 1.0}, 0, 0)
