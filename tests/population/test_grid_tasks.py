"""MiniGrid tasks inside the engine: what is refused, resumed and learnt. None of it needs the package."""

from __future__ import annotations

import numpy as np
import pytest
from segments import segment

from autorl.core.seeds import digest
from autorl.core.types import EnvironmentSpec, InputError, TrainerSpec
from autorl.population import engine
from autorl.population.environments import GRID_TASKS, find_environment
from autorl.population.environments.minigrid import OBSERVATIONS
from autorl.population.hyperparameters import record
from autorl.trainers import load

DOOR_KEY = GRID_TASKS["MiniGrid-DoorKey-5x5-v0"]
_FLAT, _ONE_HOT, _WITH_MISSION = OBSERVATIONS
_SMALL = {"n_envs": 3, "n_steps": 100, "batch_size": 60, "n_epochs": 2, "net_width": 9}


@pytest.mark.parametrize(
    ("name", "kwargs", "wrappers", "message"),
    [
        ("MiniGrid-DoorKey-5x5-v1", {}, (), "MiniGrid-DoorKey-5x5-v0"),
        ("MiniGrid-Unlock-v0", {"max_steps": 9}, (), "takes none"),
        ("MiniGrid-Unlock-v0", {}, _FLAT[:1], "FlatObsWrapper"),
        ("MiniGrid-Unlock-v0", {}, ({_WITH_MISSION[0]: {"maxStrLen": 9}},), "FlatObsWrapper"),
        ("CartPole-v1", {}, _FLAT, "use an sb3/\\* trainer for wrappers"),
    ],
)
def test_what_the_engine_lacks_is_refused(name, kwargs, wrappers, message):
    with pytest.raises(InputError, match=message):
        find_environment(name, kwargs, wrappers)


def _segment(folder, wrappers, after=None, until=600):
    environment = EnvironmentSpec(DOOR_KEY.id, wrappers=wrappers)
    place, of_run = folder / f"a{until}", {"after": after, "horizon": 600, "evaluate_at": ()}
    return segment("population/ppo", environment, _SMALL, until, place, **of_run)


def test_a_checkpoint_goes_on_with_its_own_observations_alone(tmp_path):
    trainer = load(TrainerSpec("population/ppo"))
    first = trainer.train(_segment(tmp_path, (), until=300), lambda report: None)
    # The chain that is meant where none is named.
    second = trainer.train(_segment(tmp_path, _FLAT, first), lambda report: None)
    assert second.reached == 600
    with pytest.raises(InputError, match="OneHotPartialObsWrapper"):
        trainer.train(_segment(tmp_path, _ONE_HOT, first), lambda report: None)


# Steps, and the median greedy return over five seeds that is reached: thresholds lie well below what was
# measured, the least of the optimal play being about 0.9.
_LEARNT = {"MiniGrid-Empty-Random-5x5-v0": (40_960, 0.9), "MiniGrid-DoorKey-5x5-v0": (204_800, 0.9)}
_PPO = {"n_envs": 8, "n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 1e-3}
_PPO |= {"ent_coef": 0.01}


@pytest.mark.slow
@pytest.mark.cpu_seconds(900)
@pytest.mark.parametrize("name", sorted(_LEARNT))
def test_ppo_learns(name):
    steps, threshold = _LEARNT[name]
    environment = GRID_TASKS[name]
    algorithm = engine.find_algorithm("ppo")
    hp = record(algorithm.settings, _PPO, steps)
    returns = []
    for seed in range(5):
        state = algorithm.create(environment, hp, digest(seed, "training") % 2**64, np.float32)
        bound = algorithm.bind(state, environment, hp)
        engine.train_to(bound, algorithm, state, hp, steps)
        metrics = engine.evaluation(bound, state, environment, range(50))
        returns.append(metrics["eval_return"])
    assert np.median(returns) > threshold
