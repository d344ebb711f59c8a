"""`target_kl` ends an update of PPO where Stable-Baselines3's own `train` ends it, in the middle of an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from autorl.population import ppo, rng
from autorl.population.environments import ENVIRONMENTS
from autorl.population.members import UPDATES, begin

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("torch")

from test_sb3_updates import (
    _as_engine_has_it,
    _assert_same,
    _copy,
    _pair,
    _parameters,
    _train,
    _world,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered"),  # hashing in plain Python
    pytest.mark.filterwarnings("ignore:You have specified a mini-batch size"),
]
PARTS = 6  # minibatches of an epoch
SETTING = {"n_envs": 3, "n_steps": 12, "batch_size": 6, "n_epochs": 4, "learning_rate": 5e-3}


def _minibatches(rollout, hp, member):
    """A stand-in for SB3's buffer: the engine's rollout, in the order of the permutations still to be drawn."""
    import torch
    from stable_baselines3.common.type_aliases import RolloutBufferSamples

    tables = (rollout.observations, rollout.actions, rollout.values, rollout.log_probs)
    tensors = [torch.tensor(t.copy()) for t in (*tables, rollout.advantages, rollout.returns)]
    counters = iter(range(int(member.counters[rng.SHUFFLE]), 10**6))
    seed = rng.stream(member.key[0], rng.SHUFFLE)

    class Buffer:
        values, returns = rollout.values, rollout.returns

        def get(self, batch_size):
            order = np.zeros(len(rollout.rewards), np.int64)
            rng.permute(order, rng.bits(seed, next(counters)))
            for rows in np.split(order, range(batch_size, len(order), batch_size)):
                yield RolloutBufferSamples(*(tensor[torch.tensor(rows)] for tensor in tensors))

    return Buffer()


@pytest.mark.parametrize("environment_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("target_kl", [0.0005, 0.002, 0.01, None])
def test_an_update_ends_where_stable_baselines3_ends_it(environment_id, target_kl, monkeypatch):
    environment = ENVIRONMENTS[environment_id]
    hp, state, model = _pair("PPO", environment, {**SETTING, "target_kl": target_kl}, monkeypatch)
    theirs = []
    step = model.policy.optimizer.step
    monkeypatch.setattr(model.policy.optimizer, "step", lambda: (theirs.append(1), step()))
    ends = []
    for _ in range(6):
        before = _copy(state)
        agent = ppo.make_agent(before["member"].parameters, environment, hp)
        begin(before["member"], _world(environment))
        ppo.collect_rollout(before["member"], agent, hp, _world(environment))
        model.rollout_buffer = _minibatches(agent.rollout, hp, before["member"])
        theirs.clear()
        model.train()
        agent = ppo.make_agent(state["member"].parameters, environment, hp)
        _train(ppo, state, environment, hp, agent)
        steps = int(state["member"].counts[UPDATES] - before["member"].counts[UPDATES])
        epochs = int(state["member"].counters[rng.SHUFFLE] - before["member"].counters[rng.SHUFFLE])
        assert steps == len(theirs)
        # The minibatch over the limit makes no step, and no later epoch is begun.
        assert epochs == min(steps // PARTS + 1, 4)
        _assert_same(_as_engine_has_it(model, "ppo", state, environment, hp), _parameters(model))
        ends.append(steps)
    if target_kl is None:
        assert ends == [4 * PARTS] * 6
    else:
        assert any(steps < 4 * PARTS for steps in ends)
    if target_kl == 0.002:
        middle = [steps for steps in ends if steps < 4 * PARTS and steps % PARTS]
        assert middle, "an update ended in the middle of an epoch"
