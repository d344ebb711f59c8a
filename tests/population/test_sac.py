from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from population_helpers import OFF_POLICY, PENDULUM, TWO, advanced, close, made_up_agent, torch_mlp

from autorl.population import sac


def _policy(torch, outputs, size, noise):
    """SB3's squashed Gaussian: action and log-probability for given normal draws."""
    mean, log_std = outputs[:, :size], torch.clamp(outputs[:, size:], -20, 2)
    gaussian = torch.distributions.Normal(mean, log_std.exp())
    drawn = mean + log_std.exp() * noise
    action = torch.tanh(drawn)
    return action, gaussian.log_prob(drawn).sum(1) - torch.log(1 - action**2 + 1e-6).sum(1)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 9),
    depth=st.integers(1, 3),
    activation=st.sampled_from(["tanh", "relu"]),
    rows=st.integers(1, 12),
    two=st.booleans(),
    gamma=st.floats(0.0, 1.0),
    ent_coef=st.one_of(st.just("auto"), st.floats(0.0, 2.0)),
    target_entropy=st.one_of(st.just("auto"), st.floats(-3.0, 3.0)),
)
def test_the_three_gradients_are_those_of_sb3s_losses(
    seed, width, depth, activation, rows, two, gamma, ent_coef, target_entropy
):
    torch = pytest.importorskip("torch")
    environment = TWO if two else PENDULUM
    config = {
        "net_width": width,
        "net_depth": depth,
        "activation": activation,
        "batch_size": rows,
        "gamma": gamma,
    }
    config |= {"ent_coef": ent_coef, "target_entropy": target_entropy}
    hp, agent, parameters, target = made_up_agent(
        "sac", seed, environment, buffer_size=30, **config
    )
    n, inputs, size = rows, environment.observation_size, environment.action_size
    alpha = math.exp(parameters[-1]) if ent_coef == "auto" else ent_coef
    with np.errstate(over="ignore"):
        sac.critic_targets(agent, hp, alpha, np.uint64(seed))
    next_noise = torch.tensor(agent.noise[:n].copy())
    sac.take_rows(agent.replay, None, agent.batch, 0, agent.observations)
    sac.forward(agent.actor, agent.observations, n)
    with np.errstate(over="ignore"):
        for r in range(n):
            agent.log_probs[r] = sac.squashed_sample(
                agent.actor.outputs[r],
                np.uint64(seed + 1),
                r * size,
                agent.noise[r],
                agent.actions[r],
            )
    noise = torch.tensor(agent.noise[:n].copy())
    assume(
        np.abs(agent.actions[:n]).max() < 1 - 1e-5
    )  # beyond, 1 - a^2 has lost its digits in any implementation
    sac.temperature_gradient(agent, hp)
    sac.critic_gradient(agent)
    critic_gradient = agent.gradient.copy()
    sac.actor_gradient(agent, alpha)

    flat, old = torch.tensor(parameters, requires_grad=True), torch.tensor(target)
    a, c = len(agent.actor.parameters), len(agent.first.parameters)
    batch = torch.tensor(agent.replay.rows[agent.batch])
    s, following, action = (
        batch[:, :inputs],
        batch[:, inputs : 2 * inputs],
        batch[:, 2 * inputs : 2 * inputs + size],
    )

    def critics(values, x, u):
        both = torch.cat([x, u], 1)
        return [
            torch_mlp(torch, values[i * c : (i + 1) * c], agent.first, both)[:, 0] for i in range(2)
        ]

    with torch.no_grad():
        next_action, next_log_prob = _policy(
            torch, torch_mlp(torch, flat[:a], agent.actor, following), size, next_noise
        )
        low = torch.minimum(*critics(old, following, next_action)) - alpha * next_log_prob
        y = batch[:, -2] + (1 - batch[:, -1]) * gamma * low
    chosen, log_prob = _policy(torch, torch_mlp(torch, flat[:a], agent.actor, s), size, noise)
    entropy = -float(size) if target_entropy == "auto" else target_entropy
    temperature_loss = -(flat[-1] * (log_prob + entropy).detach()).mean()
    critic_loss = 0.5 * sum(((q - y) ** 2).mean() for q in critics(flat[a:], s, action))
    actor_loss = (alpha * log_prob - torch.minimum(*critics(flat[a:], s, chosen))).mean()

    def gradient(loss):
        return torch.autograd.grad(loss, flat, retain_graph=True)[0].numpy()

    assert gradient(temperature_loss)[-1] == pytest.approx(agent.gradient[-1], rel=1e-10, abs=1e-12)
    assert close(critic_gradient[a:-1], gradient(critic_loss)[a:-1])
    assert close(agent.gradient[:a], gradient(actor_loss)[:a])


def test_a_fixed_temperature_stays_and_a_learned_one_moves():
    fixed = advanced("sac", 1, (6,), PENDULUM, **OFF_POLICY, ent_coef=0.3)["member"]
    learned = advanced("sac", 1, (6,), PENDULUM, **OFF_POLICY)["member"]
    assert fixed.parameters[-1] == pytest.approx(math.log(0.3))
    assert learned.parameters[-1] != 0.0
