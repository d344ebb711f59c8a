"""The conformance kit of trainers on `rlhf/ppo`: cut, continued, exploited and replayed like any other."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="PPO on language models needs torch")
pytest.importorskip("transformers", reason="needs the extra rlhf")

import torch

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec
from autorl.testing.trainers import Case, TrainerConformance

pytestmark = [pytest.mark.slow, pytest.mark.cpu_seconds(600)]  # the first to run builds the task

TASK = EnvironmentSpec("sort-verifiable", FrozenMap({"digits": 2, "sft_steps": 5}))
# A batch of completions is used for two optimizer steps: cuts fall at multiples of two.
SMALL = FrozenMap(batch_size=8, num_ppo_epochs=2, guard=0)


@pytest.fixture(scope="module", autouse=True)
def _one_thread_and_own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTORL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(before)


class TestPPO(TrainerConformance):
    case = Case(
        TrainerSpec("rlhf/ppo", SMALL),
        TASK,
        configs=(
            Config(learning_rate=1e-3, kl_coef=0.05, temperature=1.0, kl_estimator="k1"),
            Config(learning_rate=3e-4, kl_coef=0.2, temperature=1.2, kl_estimator="k3"),
        ),
        horizon=4,
        episodes=8,
        passes=True,
        fixed=("num_ppo_epochs", 1),
    )


STEPS = {
    "reward.process": "autorl.trainers.language.tasks.sorting:steps",
    "reward.process_separator": " ",
    "reward.process_delta": True,
}


class TestRewardsAtEachStep(TrainerConformance):
    """Rewards at each step, in other weights and with another threshold of Clip, in ReMax."""

    case = Case(
        TrainerSpec("rlhf/ppo", FrozenMap({**SMALL, "advantage": "remax"})),
        TASK,
        configs=(
            Config(STEPS | {"reward.process_weight": 0.5, "learning_rate": 1e-3}),
            Config(STEPS | {"reward.process_weight": 1.0, "reward.process_clip": 0.5}),
        ),
        horizon=4,
        episodes=8,
        passes=True,
        fixed=("num_ppo_epochs", 1),
    )


SCHEDULED = {"learning_rate": 1e-3, "kl_coef": 0.05, "kl_coef.shape": "linear"}


class TestScheduled(TrainerConformance):
    """A learning rate and a KL coefficient that follow schedules, wherever the run is cut.

    Both begin at the same values: what is read back is the value at the step.
    """

    case = Case(
        TrainerSpec("rlhf/ppo", SMALL),
        TASK,
        configs=(
            Config(
                {**SCHEDULED, "learning_rate.shape": "linear", "learning_rate.end": 1e-5}
                | {"kl_coef.end": 0.5}
            ),
            Config(
                {**SCHEDULED, "learning_rate.shape": "cosine", "learning_rate.end": 1e-2}
                | {"kl_coef.end": 0.0}
            ),
        ),
        horizon=4,
        episodes=8,
        passes=True,
        fixed=("value_init", "zero"),
    )
