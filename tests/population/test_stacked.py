"""The native engine follows the oracle, whose gradients torch derives, from the first draw on."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from population_helpers import make

from autorl.population import rng as native_rng
from autorl.population.environments import ENVIRONMENTS

torch = pytest.importorskip("torch")

from stacked import environments, rng  # noqa: E402

_OFF_POLICY = {
    "learning_starts": 12,
    "batch_size": 8,
    "buffer_size": 60,
    "n_envs": 2,
    "net_width": 10,
}
_PPO = {"n_envs": 2, "n_steps": 16, "batch_size": 11, "n_epochs": 2, "net_width": 12}
# algorithm, environment, what all members share, what differs between three members, iterations
CASES = {
    "ppo": (
        "ppo",
        "CartPole-v1",
        _PPO,
        (
            {
                "learning_rate": 1e-3,
                "gamma": 0.9,
                "clip_range": 0.1,
                "learning_rate.shape": "linear",
                "learning_rate.end": 0.0,
            },
            {"normalize_advantage": False, "clip_range_vf": 0.3, "max_grad_norm": 5.0},
            {
                "ent_coef": 0.05,
                "vf_coef": 1.0,
                "gae_lambda": 0.5,
                "ent_coef.shape": "cosine",
                "ent_coef.end": 0.01,
            },
        ),
        4,
    ),
    "a2c": (
        "ppo",
        "Acrobot-v1",
        {
            **_PPO,
            "n_epochs": 1,
            "batch_size": 32,
            "optimizer": "rmsprop",
            "normalize_advantage": False,
            "net_depth": 1,
        },
        ({"learning_rate": 7e-4}, {"gae_lambda": 1.0}, {"gamma": 0.8}),
        4,
    ),
    "ppo-continuous": (
        "ppo",
        "Pendulum-v1",
        _PPO,
        ({"learning_rate": 1e-3}, {"ent_coef": 0.02, "activation": "tanh"}, {"gamma": 0.5}),
        4,
    ),
    "dqn": (
        "dqn",
        "CartPole-v1",
        {**_OFF_POLICY, "target_update_interval": 6},
        (
            {"learning_rate": 1e-3, "double": True},
            {"tau": 0.5, "exploration_fraction": 0.5},
            {"use_target_network": False},
        ),
        12,
    ),
    "dqn-prioritized": (
        "dqn",
        "MountainCar-v0",
        {**_OFF_POLICY, "prioritized": True, "gradient_steps": 2},
        ({"learning_rate": 1e-3}, {"priority_alpha": 1.0}, {"priority_beta": 1.0}),
        12,
    ),
    "sac": (
        "sac",
        "Pendulum-v1",
        {**_OFF_POLICY, "gradient_steps": 2, "train_freq": 3},
        ({"learning_rate": 1e-3}, {"gamma": 0.5, "reward_scale": 0.1}, {"target_entropy": 0.3}),
        12,
    ),
    "sac-fixed": (
        "sac",
        "MountainCarContinuous-v0",
        {**_OFF_POLICY, "ent_coef": 0.1, "gradient_steps": -1},
        ({"learning_rate": 1e-3}, {"gamma": 0.5}, {"reward_scale": 2.0}),
        12,
    ),
    "td3": (
        "td3",
        "Pendulum-v1",
        {**_OFF_POLICY, "gradient_steps": 3, "train_freq": 3},
        (
            {"learning_rate": 1e-3, "noise_std": 0.4, "noise_std.shape": "linear"}
            | {"noise_std.end": 0.1},
            {"gamma": 0.5, "tau": 0.2},
            {"target_policy_noise": 0.5, "target_noise_clip": 0.3, "noise_std": 0.1},
        ),
        12,
    ),
    "td3-ornstein-uhlenbeck": (
        "td3",
        "MountainCarContinuous-v0",
        {
            **_OFF_POLICY,
            "noise_type": "ornstein-uhlenbeck",
            "policy_delay": 3,
            "gradient_steps": -1,
            "n_critics": 1,
        },
        ({"noise_std": 0.5}, {"noise_std": 1.5, "learning_rate": 3e-4}, {"gamma": 0.5}),
        12,
    ),
}
STACKS = {"ppo": "StackedPPO", "dqn": "StackedDQN", "sac": "StackedSAC", "td3": "StackedTD3"}


@pytest.mark.parametrize("case", sorted(CASES))
def test_native_members_follow_the_oracle(case):
    name, environment_id, shared, differing, iterations = CASES[case]
    environment = replace(
        ENVIRONMENTS[environment_id], time_limit=13
    )  # truncations within the test
    configs = [{**shared, **own} for own in differing]
    native = [
        make(name, key, environment, np.float32, **config) for key, config in enumerate(configs)
    ]
    exact = [
        make(name, key, environment, np.float64, **config) for key, config in enumerate(configs)
    ]
    module = importlib.import_module(f"stacked.{name}")
    stack = getattr(module, STACKS[name])(
        [state for *_, state in exact], environment, [hp for _, hp, _ in exact]
    )
    bounds = [algorithm.bind(state, environment, hp) for algorithm, hp, state in native]
    first = np.stack([state["member"].parameters for *_, state in native])
    for _ in range(iterations):
        stack.advance(1)
        for bound in bounds:
            bound.advance(1)
        oracle = stack.members
        for p, (_, _, state) in enumerate(native):
            member = state["member"]
            assert member.counts[0] == oracle.steps
            assert member.counts[1] == oracle.updates
            assert np.array_equal(
                member.counters[native_rng.RESET], oracle.counters[native_rng.RESET, p]
            )
            np.testing.assert_allclose(
                member.parameters, oracle.parameters[p], rtol=3e-3, atol=3e-4
            )
            np.testing.assert_allclose(member.states, oracle.states[p], rtol=3e-3, atol=3e-3)
    assert stack.members.updates >= 4
    assert all(
        (member.parameters != start).any()
        for member, start in zip((s["member"] for *_, s in native), first, strict=True)
    )


def test_a_stacked_members_result_does_not_depend_on_its_companions():
    environment = ENVIRONMENTS["CartPole-v1"]
    module = importlib.import_module("stacked.ppo")
    made = [make("ppo", key, environment, np.float64, **_PPO) for key in range(3)]
    together = module.StackedPPO(
        [state for *_, state in made], environment, [hp for _, hp, _ in made]
    )
    together.advance(2)
    _, hp, state = make("ppo", 1, environment, np.float64, **_PPO)
    alone = module.StackedPPO([state], environment, [hp])
    alone.advance(2)
    torch.testing.assert_close(
        alone.members.parameters[0], together.members.parameters[1], rtol=1e-10, atol=1e-12
    )


def test_torch_draws_are_the_engines():
    keys = native_rng.bits_array(np.uint64(1), np.arange(50, dtype=np.uint64))
    signed, counters = torch.tensor(keys.view(np.int64)), torch.arange(50)
    unsigned = np.arange(50, dtype=np.uint64)
    assert np.array_equal(
        rng.bits(signed, counters).numpy().view(np.uint64), native_rng.bits_array(keys, unsigned)
    )
    assert np.array_equal(
        rng.uniform(signed, counters).numpy(), native_rng.uniform_array(keys, unsigned)
    )
    assert np.array_equal(
        rng.integer(signed, counters, 11).numpy(),
        native_rng.integer_array(keys, unsigned, np.uint64(11)),
    )
    assert np.array_equal(
        rng.stream(signed, 3).numpy().view(np.uint64),
        native_rng.stream_array(keys, np.array([3], np.uint64)),
    )
    np.testing.assert_allclose(
        rng.normal(signed, counters), native_rng.normal_array(keys, unsigned), atol=1e-14
    )
    assert np.array_equal(rng.permute(signed[:2], 20)[1], native_rng.permute_array(20, keys[1:2]))


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_stacked_environments_are_the_native_ones(name):
    native, stacked, generator = (
        ENVIRONMENTS[name],
        environments.STACKED[name],
        np.random.default_rng(0),
    )
    keys = np.arange(200, dtype=np.uint64)
    states = np.zeros((len(keys), native.state_size))
    for key, state in zip(keys, states, strict=True):
        native.reset(state, key)
    tensors = stacked.reset(torch.tensor(keys.view(np.int64)))
    np.testing.assert_allclose(tensors, states, atol=1e-12)
    for _ in range(30):
        if native.n_actions:
            actions = generator.integers(native.n_actions, size=(len(keys), 1)).astype(np.float64)
        else:
            actions = generator.uniform(-2.5, 2.5, size=(len(keys), 1))
        found = [
            native.step(state, action, np.uint64(0))
            for state, action in zip(states, actions, strict=True)
        ]
        tensors, rewards, terminated = stacked.step(tensors, torch.tensor(actions))
        np.testing.assert_allclose(tensors, states, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(rewards, [reward for reward, _ in found], rtol=1e-9, atol=1e-9)
        assert terminated.tolist() == [end for _, end in found]
        seen = np.zeros((len(keys), native.observation_size))
        for state, row in zip(states, seen, strict=True):
            native.observe(state, row)
        np.testing.assert_allclose(stacked.observe(tensors), seen, rtol=1e-7, atol=1e-7)
