"""DQN with all its options behind the interface of trainers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from segments import segment, train

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.testing.trainers import Case, TrainerConformance

_KWARGS = {"learning_starts": 20, "batch_size": 10, "net_width": 9, "buffer_size": 500}
_KWARGS |= {"train_freq": 4, "learning_rate": 1e-2}
_KWARGS |= {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
_ANNEALED = {"priority_beta.shape": "linear", "priority_beta.end": 1.0, "priority_beta": 0.4}


class TestDQNWithAllOptions(TrainerConformance):
    case = Case(
        TrainerSpec("population/dqn", FrozenMap(_KWARGS)),
        EnvironmentSpec("CartPole-v1", n_envs=2),
        configs=(
            Config({"exploration_fraction": 0.8, "double": True, **_ANNEALED}),
            Config({"exploration_fraction": 0.3, "double": False, **_ANNEALED}),
        ),
        fixed=("n_steps", 5),
    )


@pytest.mark.parametrize("change", [{"n_steps": 1}, {"dueling": False}, {"prioritized": False}])
def test_what_shapes_network_and_memory_stays_for_a_whole_run(change, tmp_path):
    environment, config = "CartPole-v1", {"learning_rate": 1e-3}
    of_run = {"horizon": 128, "evaluate_at": ()}
    place = tmp_path / "a"
    first = segment("population/dqn", environment, config, 64, place, _KWARGS, **of_run)
    rest = of_run | {"until": 128, "folder": tmp_path / "b", "after": train(first)}
    after = segment("population/dqn", environment, config, options=_KWARGS, **rest)
    assert train(after).reached == 128
    changed = replace(after, config=Config(config | change))
    with pytest.raises(InputError, match=next(iter(change))):
        train(changed)
