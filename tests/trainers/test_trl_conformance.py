"""The conformance kit of trainers on TRL: cut, continued, exploited and replayed like any other."""

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec
from autorl.testing.trainers import Case, TrainerConformance

pytestmark = [pytest.mark.slow, pytest.mark.cpu_seconds(600)]  # the first to run builds the task

LETTERS = EnvironmentSpec("letters-goldproxy")
SMALL = FrozenMap(per_device_train_batch_size=16, guard=0)
REUSED = {"num_generations": 4, "num_iterations": 2, "steps_per_generation": 2}
SCHEDULED = {"learning_rate": 1e-3, "learning_rate.shape": "linear", "num_generations": 4}
SCHEDULED |= {"beta": 0.1, "beta.shape": "linear", "beta.end": 1.0}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class TestRLOO(TrainerConformance):
    case = Case(
        TrainerSpec("trl/rloo", SMALL),
        LETTERS,
        configs=(
            Config(
                learning_rate=1e-3, beta=0.5, num_generations=4, temperature=1.0, weight_decay=0.01
            ),
            Config(
                learning_rate=3e-4, beta=0.1, num_generations=4, temperature=1.2, weight_decay=0.1
            ),
        ),
        horizon=4,
        episodes=16,
        fixed=("num_generations", 2),
    )


class TestReusedGenerations(TrainerConformance):
    """Batches of completions are used for four optimizer steps: cuts fall at multiples of four."""

    case = Case(
        TrainerSpec("trl/grpo", SMALL),
        LETTERS,
        configs=(
            Config(learning_rate=1e-3, beta=0.3, epsilon=0.2, **REUSED),
            Config(learning_rate=1e-4, beta=0.1, epsilon=0.1, **REUSED),
        ),
        horizon=8,
        episodes=16,
        passes=True,
        fixed=("num_iterations", 4),
    )


class TestScheduled(TrainerConformance):
    """A learning rate and a beta that follow schedules over the horizon, wherever the run is cut."""

    case = Case(
        TrainerSpec("trl/rloo", SMALL),
        LETTERS,
        configs=(
            Config({**SCHEDULED, "learning_rate.end": 1e-5}),
            Config({**SCHEDULED, "learning_rate.end": 1e-2}),
        ),
        horizon=4,
        episodes=16,
        fixed=("num_generations", 2),
    )


class TestDPO(TrainerConformance):
    case = Case(
        TrainerSpec("trl/dpo", SMALL),
        LETTERS,
        configs=(
            Config(learning_rate=1e-3, beta=0.1, loss_type="sigmoid+sft", sft_weight=0.5),
            Config(learning_rate=3e-4, beta=0.3, loss_type="sigmoid+sft", sft_weight=0.1),
        ),
        horizon=4,
        episodes=16,
        fixed=("per_device_train_batch_size", 8),
    )


class TestReward(TrainerConformance):
    case = Case(
        TrainerSpec("trl/reward", SMALL),
        LETTERS,
        configs=(
            Config(learning_rate=1e-3, center_rewards_coefficient=0.01),
            Config(learning_rate=1e-4, center_rewards_coefficient=0.1),
        ),
        horizon=4,
        episodes=16,
        fixed=("per_device_train_batch_size", 8),
    )
