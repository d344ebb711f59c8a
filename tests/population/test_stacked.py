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
