from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from population_helpers import (
    CARTPOLE,
    PENDULUM,
    SMALL,
    advanced,
    close,
    make,
    ppo_parts,
    torch_mlp,
)

from autorl.population import engine, ppo
from autorl.population.hyperparameters import CONSTANT, scheduled
from autorl.population.networks import layer_views
from autorl.population.normalisation import begin_observed


def _random_rollout(rollout, environment, generator):
    n = len(rollout.rewards)
    rollout.observations[:] = generator.normal(size=rollout.observations.shape)
    if environment.n_actions:
        rollout.actions[:, 0] = generator.integers(environment.n_actions, size=n)
    else:
        rollout.actions[:] = generator.normal(size=rollout.actions.shape)
    for column in (rollout.values, rollout.advantages, rollout.returns):
        column[:] = generator.normal(size=n)
    rollout.log_probs[:] = -np.abs(generator.normal(size=n))


def _sb3_loss(torch, flat, agent, hp, rollout, batch, environment, clip_range, ent_coef):
    """The loss of Stable-Baselines3's `PPO.train`, by autograd."""
    split = len(agent.actor.parameters)
    end = split + len(agent.critic.parameters)
    x = torch.tensor(rollout.observations[batch])
    outputs = torch_mlp(torch, flat[:split], agent.actor, x)
    values = torch_mlp(torch, flat[split:end], agent.critic, x)[:, 0]
    actions = torch.tensor(rollout.actions[batch])
    if environment.n_actions:
        policy = torch.distributions.Categorical(logits=outputs)
        log_prob, entropy = policy.log_prob(actions[:, 0]), policy.entropy()
    else:
        policy = torch.distributions.Normal(outputs, flat[end:].exp().expand_as(outputs))
        log_prob, entropy = policy.log_prob(actions).sum(1), policy.entropy().sum(1)
    advantages = torch.tensor(rollout.advantages[batch])
    if hp.normalize_advantage and len(batch) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(log_prob - torch.tensor(rollout.log_probs[batch]))
    surrogate = torch.min(
        advantages * ratio, advantages * torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    )
    old = torch.tensor(rollout.values[batch])
    if np.isfinite(hp.clip_range_vf):
        values = old + torch.clamp(values - old, -hp.clip_range_vf, hp.clip_range_vf)
    value_loss = ((torch.tensor(rollout.returns[batch]) - values) ** 2).mean()
    return -surrogate.mean() - ent_coef * entropy.mean() + hp.vf_coef * value_loss


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 9),
    depth=st.integers(1, 3),
    activation=st.sampled_from(["tanh", "relu"]),
    rows=st.integers(1, 40),
    continuous=st.booleans(),
    normalize=st.booleans(),
    clip_range=st.floats(0.01, 0.6),
    clip_range_vf=st.sampled_from([None, 0.1, 0.7]),
    ent_coef=st.floats(0.0, 0.5),
    vf_coef=st.floats(0.0, 2.0),
)
def test_the_gradient_is_that_of_sb3s_loss(
    seed,
    width,
    depth,
    activation,
    rows,
    continuous,
    normalize,
    clip_range,
    clip_range_vf,
    ent_coef,
    vf_coef,
):
    torch = pytest.importorskip("torch")
    environment = PENDULUM if continuous else CARTPOLE
    config = {"net_width": width, "net_depth": depth, "activation": activation, "vf_coef": vf_coef}
    config |= {"normalize_advantage": normalize, "clip_range_vf": clip_range_vf, "n_steps": 45}
    _, hp, state = make("ppo", seed, environment, np.float64, **config)
    generator = np.random.default_rng(seed)
    parameters = state["member"].parameters
    parameters += 0.3 * generator.normal(size=len(parameters)) * (parameters != 0.0)
    if continuous:
        parameters[-1] = generator.normal(scale=0.3)
    agent, rollout = ppo_parts(hp, state, environment)
    _random_rollout(rollout, environment, generator)
    batch = generator.permutation(45)[:rows]
    divergence = ppo.loss_gradient(agent, hp, batch, (clip_range, ent_coef))

    flat = torch.tensor(parameters, requires_grad=True)
    loss = _sb3_loss(torch, flat, agent, hp, rollout, batch, environment, clip_range, ent_coef)
    loss.backward()
    expected = flat.grad.numpy()
    assert close(agent.gradient, expected)
    assert divergence >= -1e-12  # an average of non-negative terms


def _collected(environment, **config):
    """One rollout, by the plain-Python form of the kernels; its member, agent and world."""
    _, hp, state = make("ppo", 3, environment, np.float64, **config)
    agent, rollout = ppo_parts(hp, state, environment)
    functions = (environment.reset, environment.step, environment.observe)
    world = ppo.World(*functions, *engine.limits(environment))
    with np.errstate(over="ignore"):
        begin_observed(agent.observer, state["member"], world)
        ppo.collect_rollout(state["member"], agent, hp, world)
    return hp, agent, rollout, state["member"]


def test_advantages_are_the_weighted_sums_of_td_errors():
    hp, agent, rollout, member = _collected(
        CARTPOLE, n_envs=2, n_steps=30, gamma=0.9, gae_lambda=0.7, net_width=8
    )
    assert rollout.dones.sum() > 0
    last = np.zeros((2, 4))
    last[:] = member.states
    ppo.forward(agent.critic, last, 2)
    for e in range(2):
        value = np.append(rollout.values[e::2], agent.critic.outputs[e, 0])
        reward, done = rollout.rewards[e::2], rollout.dones[e::2]
        for t in range(30):
            total, weight = 0.0, 1.0
            for k in range(t, 30):
                total += weight * (reward[k] + hp.gamma * (1 - done[k]) * value[k + 1] - value[k])
                weight *= hp.gamma * hp.gae_lambda * (1 - done[k])
            assert rollout.advantages[e::2][t] == pytest.approx(total, abs=1e-10)
    np.testing.assert_allclose(rollout.returns, rollout.advantages + rollout.values)


def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not():
    short = replace(CARTPOLE, time_limit=6)
    _, agent, rollout, _ = _collected(short, n_envs=1, n_steps=24, gamma=0.8, net_width=8)
    ends = np.flatnonzero(rollout.dones)
    assert len(ends) == 4
    final, key = np.zeros((1, 4)), np.uint64(0)
    for i in range(24):
        state = rollout.observations[i].astype(np.float64).copy()
        CARTPOLE.step(state, rollout.actions[i], key)
        final[0] = state
        ppo.forward(agent.critic, final, 1)
        bonus = 0.8 * agent.critic.outputs[0, 0] if i in ends else 0.0
        assert rollout.rewards[i] == pytest.approx(1.0 + bonus, rel=1e-9)
    _, _, rollout, _ = _collected(CARTPOLE, n_envs=2, n_steps=100, net_width=8)
    assert rollout.dones.sum() > 2
    assert (rollout.rewards == 1.0).all()  # no episode of a random policy reaches 500 steps


def test_padding_weights_stay_zero():
    state = advanced("ppo", 1, (3,), **{**SMALL, "net_width": 5})
    _, hp, _ = make("ppo", 1, **{**SMALL, "net_width": 5})
    agent, _ = ppo_parts(hp, state, CARTPOLE)
    for net in (agent.actor, agent.critic):
        for index in range(len(net.layers)):
            for values in layer_views(net.parameters, net.layers, index):
                assert (values != 0.0).any()
                values[:] = 0.0
        assert (net.parameters == 0.0).all()


def test_one_epoch_of_one_minibatch_is_a2c():
    """At ratio 1 the surrogate's gradient is A2C's: nothing is clipped, whatever the clip range."""
    a2c = {"n_steps": 5, "n_envs": 2, "batch_size": 10, "n_epochs": 1, "normalize_advantage": False}
    a2c |= {"optimizer": "rmsprop", "gae_lambda": 1.0, "learning_rate": 7e-4}
    narrow = advanced("ppo", 2, (20,), clip_range=0.01, **a2c)["member"]
    wide = advanced("ppo", 2, (20,), clip_range=100.0, **a2c)["member"]
    np.testing.assert_allclose(narrow.parameters, wide.parameters, rtol=0, atol=1e-6)
    assert narrow.counts[1] == 20


def test_a_constant_may_be_infinite():
    for progress in (0.0, 0.3, 1.0):
        assert scheduled(math.inf, math.inf, CONSTANT, progress) == math.inf


def test_an_infinite_clip_range_clips_nothing():
    parameters = []
    # No ratio of probabilities comes near 1e30 in single precision.
    for clip_range in (math.inf, 1e30):
        algorithm, hp, state = make("ppo", 3, **SMALL, clip_range=clip_range, learning_rate=0.1)
        algorithm.bind(state, CARTPOLE, hp).advance(2)
        parameters.append(state["member"].parameters)
    np.testing.assert_array_equal(*parameters)
    assert np.isfinite(parameters[0]).all()
