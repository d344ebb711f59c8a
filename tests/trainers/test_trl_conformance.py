"""The conformance kit of trainers on TRL: cut, continued, exploited and replayed like any other."""

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import one_thread  # noqa: F401

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec
from autorl.testing.trainers import Case, TrainerConformance

pytestmark = [pytest.mark.slow, pytest.mark.cpu_seconds(600)]  # the first to run builds the task

LETTERS = EnvironmentSpec("letters-goldproxy")
SMALL = FrozenMap(per_device_train_batch_size=16, guard=0)
GROUPS = {"num_generations": 4}
REUSED = GROUPS | {"num_iterations": 2, "steps_per_generation": 2}
SCHEDULED = {"learning_rate": 1e-3, "learning_rate.shape": "linear", "num_generations": 4}
SCHEDULED |= {"beta": 0.1, "beta.shape": "linear", "beta.end": 1.0}


def case(trainer, first, second, fixed, horizon=4, **more):
    configs = (Config(first), Config(second))
    spec = TrainerSpec(trainer, SMALL)
    return Case(spec, LETTERS, configs, horizon=horizon, episodes=16, fixed=fixed, **more)


class TestRLOO(TrainerConformance):
    case = case(
        "trl/rloo",
        {"learning_rate": 1e-3, "beta": 0.5, "temperature": 1.0, "weight_decay": 0.01} | GROUPS,
        {"learning_rate": 3e-4, "beta": 0.1, "temperature": 1.2, "weight_decay": 0.1} | GROUPS,
        ("num_generations", 2),
    )


class TestReusedGenerations(TrainerConformance):
    """Batches of completions are used for four optimizer steps: cuts fall at multiples of four."""

    case = case(
        "trl/grpo",
        {"learning_rate": 1e-3, "beta": 0.3, "epsilon": 0.2} | REUSED,
        {"learning_rate": 1e-4, "beta": 0.1, "epsilon": 0.1} | REUSED,
        ("num_iterations", 4),
        horizon=8,
        passes=True,
    )


class TestScheduled(TrainerConformance):
    """A learning rate and a beta that follow schedules over the horizon, wherever the run is cut."""

    case = case(
        "trl/rloo",
        {**SCHEDULED, "learning_rate.end": 1e-5},
        {**SCHEDULED, "learning_rate.end": 1e-2},
        ("num_generations", 2),
    )


class TestDPO(TrainerConformance):
    case = case(
        "trl/dpo",
        {"learning_rate": 1e-3, "beta": 0.1, "loss_type": "sigmoid+sft", "sft_weight": 0.5},
        {"learning_rate": 3e-4, "beta": 0.3, "loss_type": "sigmoid+sft", "sft_weight": 0.1},
        ("per_device_train_batch_size", 8),
    )


class TestAdapter(TrainerConformance):
    case = case(
        "trl/rloo",
        {"learning_rate": 1e-2, "beta": 0.5, "lora.r": 4, "lora.dropout": 0.0} | GROUPS,
        {"learning_rate": 3e-3, "beta": 0.1, "lora.r": 4, "lora.dropout": 0.1} | GROUPS,
        ("lora.r", 2),
    )


class TestReward(TrainerConformance):
    case = case(
        "trl/reward",
        {"learning_rate": 1e-3, "center_rewards_coefficient": 0.01},
        {"learning_rate": 1e-4, "center_rewards_coefficient": 0.1},
        ("per_device_train_batch_size", 8),
    )
