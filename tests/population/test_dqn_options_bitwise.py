"""With DQN's options, one by one and all together: cuts, archives, forks, companions and threads leave no trace."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from population_helpers import CARTPOLE, advanced, make, same

from autorl.population import engine
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load
from autorl.types import Config, EnvironmentSpec, FrozenMap, InputError, Segment, TrainerSpec

SMALL = {
    "learning_starts": 20,
    "batch_size": 10,
    "buffer_size": 90,
    "train_freq": 9,
    "n_envs": 2,
    "net_width": 9,
    "target_update_interval": 10,
    "tau": 0.5,
    "learning_rate": 3e-3,
}
ALL = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
OPTIONS = {**{name: {name: value} for name, value in ALL.items()}, "all": ALL}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_cuts_do_not_matter(option):
    config = {**SMALL, **OPTIONS[option]}
    whole = advanced("dqn", 4, (8,), **config)
    assert whole["member"].counts[1] > 4
    assert same(whole, advanced("dqn", 4, (4, 4), **config))
    assert same(whole, advanced("dqn", 4, (1, 6, 1), **config))
    assert not same(whole, advanced("dqn", 5, (8,), **config))


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_a_run_goes_on_from_its_archive(option, tmp_path):
    config = {**SMALL, **OPTIONS[option]}
    state = advanced("dqn", 6, (4,), **config)
    np.savez(tmp_path / "state.npz", **engine.to_arrays(state))
    algorithm, hp, _ = make("dqn", 6, **config)
    with np.load(tmp_path / "state.npz") as archive:
        restored = engine.from_arrays(algorithm, dict(archive))
    assert same(restored, state)
    algorithm.bind(restored, CARTPOLE, hp).advance(4)
    assert same(restored, advanced("dqn", 6, (8,), **config))


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_a_fork_lives_on_with_streams_of_its_own(option):
    config = {**SMALL, **OPTIONS[option]}
    parent = advanced("dqn", 7, (4,), **config)
    algorithm, hp, _ = make("dqn", 7, **config)
    first, again, other = (engine.fork(parent, key) for key in (100, 100, 101))
    for state in (first, again, other):
        algorithm.bind(state, CARTPOLE, hp).advance(3)
    assert same(first, again)
    assert not np.array_equal(first["member"].parameters, other["member"].parameters)
    algorithm.bind(parent, CARTPOLE, hp).advance(4)
    assert same(parent, advanced("dqn", 7, (8,), **config))


def test_companions_and_threads_do_not_matter():
    members = [(key, OPTIONS[option]) for option in sorted(OPTIONS) for key in range(3)]
    alone = [advanced("dqn", key, (6,), **{**SMALL, **extra}) for key, extra in members]
    states = [None] * len(members)

    def work(first):
        for index in range(first, len(members), 3):
            key, extra = members[index]
            states[index] = advanced("dqn", key, (2, 4), **{**SMALL, **extra})

    threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(left, right) for left, right in zip(alone, states, strict=True))


_KWARGS = {key: SMALL[key] for key in ("learning_starts", "batch_size", "net_width")}
_KWARGS |= {"buffer_size": 500, "train_freq": 4, "learning_rate": 1e-2, **ALL}
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
    segment = Segment(
        id="a",
        trainer=TrainerSpec("population/dqn", FrozenMap({**_KWARGS, **ALL})),
        environment=EnvironmentSpec("CartPole-v1"),
        config=Config(learning_rate=1e-3),
        seed=1,
        role="tuning",
        until=64,
        horizon=128,
        save=True,
        folder=str(tmp_path / "a"),
    )
    outcome = load(segment.trainer).train(segment, lambda report: None)
    after = replace(
        segment, id="b", parent=outcome.checkpoint, start=64, until=128, folder=str(tmp_path / "b")
    )
    assert load(after.trainer).train(after, lambda report: None).reached == 128
    changed = replace(after, config=Config(learning_rate=1e-3, **change))
    with pytest.raises(InputError, match=next(iter(change))):
        load(changed.trainer).train(changed, lambda report: None)
