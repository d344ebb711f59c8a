"""TD3 over stacked members: the stations of `autorl.population.td3`, with the losses differentiated by torch.

References: see `autorl.population.td3`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autorl.population import rng as purposes
from autorl.population import td3 as native
from autorl.population.environments import Environment
from autorl.population.networks import layer_table, parameter_count
from stacked import rng
from stacked.environments import STACKED
from stacked.members import Hyper, Members, adam, advance, draws, forward, stack_members
from stacked.replay import StackedReplay


class StackedTD3:
    """P members of TD3. Counts of steps and updates, memory and network shape are common to all; rates are not.

    Args:
        states: new native states (`autorl.population.td3.create`), one per member.
        records: their hyperparameters.
    """

    def __init__(
        self, states: Sequence[Any], environment: Environment, records: Sequence[Any]
    ) -> None:
        self.environment, self.functions, self.hyper = (
            environment,
            STACKED[environment.id],
            Hyper(records),
        )
        self.members = stack_members(states, environment)
        actor, critic = native.network_sizes(environment, records[0], 1)
        self.actor, self.critic = layer_table(actor), layer_table(critic)
        self.split, self.size = parameter_count(actor), parameter_count(critic)
        self.actors, self.critics = slice(0, self.split), slice(self.split, None)
        self.target = self.members.parameters.clone()
        self.actor_updates = 0
        self.noise = torch.zeros(
            (*self.members.lengths.shape, environment.action_size), dtype=torch.float64
        )
        self.activation, self.horizon = (
            self.hyper.static("activation"),
            self.hyper.static("horizon"),
        )
        rows = states[0]["replay"].rows
        self.replay = StackedReplay(len(states), rows.shape[0], rows.shape[1], False)

    def advance(self, iterations: int) -> None:
        """Train every member for a number of rounds of steps and updates."""
        steps, updates = (self.hyper.static(name) for name in ("train_freq", "gradient_steps"))
        for _ in range(iterations):
            for _ in range(steps):
                self.step_environments()
            if self.members.steps > self.hyper.static("learning_starts"):
                count = updates if updates >= 0 else steps * self.members.states.shape[1]
                for _ in range(count):
                    self.update()

    def judge(self, critics: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """(P, critics, rows) values."""
        pairs = torch.cat([observations, actions], -1)
        parts = critics.split(self.size, 1)
        values = [forward(part, self.critic, self.activation, pairs)[..., 0] for part in parts]
        return torch.stack(values, 1)

    @torch.no_grad()
    def step_environments(self) -> None:
        """One step of every environment of every member with a noisy action, remembered."""
        members, bounds = self.members, torch.tensor(self.environment.bounds)
        observations = self.functions.observe(members.states)
        size = self.environment.action_size
        seed, counter = draws(members, purposes.ACTION, (members.states.shape[1], size, 2))
        actions = torch.tanh(
            forward(members.parameters[:, self.actors], self.actor, self.activation, observations)
        )[..., :size]
        seed = seed[..., 0]
        if members.steps < self.hyper.static("learning_starts"):
            actions = 2.0 * rng.uniform(seed, 2 * counter[..., 0]) - 1.0
        progress = members.steps / self.horizon
        sigma = self.hyper.scheduled("noise_std", progress)[:, None, None]
        actions = self.noisy(actions, sigma * rng.normal(seed, counter[..., 1]))
        applied = bounds[0] + 0.5 * (bounds[1] - bounds[0]) * (1.0 + actions)
        ended = members.lengths + 1.0 >= self.environment.time_limit
        final, rewards, terminated, _ = advance(members, self.environment, applied)
        self.noise = torch.where((terminated | ended)[..., None], 0.0, self.noise)
        ends = terminated[..., None].to(torch.float64)
        self.replay.add(torch.cat([observations, final, actions, rewards[..., None], ends], -1))

    def noisy(self, actions: Tensor, noise: Tensor) -> Tensor:
        """Actions with exploration noise, within [-1, 1]; `noise` are the scaled normal draws."""
        kind = self.hyper.static("noise_type")
        if kind == native.NO_NOISE:
            return actions
        if kind == native.ORNSTEIN_UHLENBECK:
            decay = 1.0 - native.THETA * native.NOISE_DT
            self.noise = decay * self.noise + math.sqrt(native.NOISE_DT) * noise
            noise = self.noise
        return (actions + noise).clamp(-1.0, 1.0)

    def update(self) -> None:
        """One gradient step of the critics of every member on a fresh minibatch, and of the actors where it is due."""
        members, n = self.members, self.hyper.static("batch_size")
        _, counter = draws(members, purposes.UPDATE, ())
        batch = self.replay.sample_uniform(
            rng.bits(rng.stream(members.key, purposes.REPLAY), counter), n
        )
        seed = rng.bits(rng.stream(members.key, purposes.UPDATE), counter)
        rows = self.replay.take(batch)
        members.updates += 1
        self.descend(self.critic_loss, self.critics, members, rows, self.targets(rows, seed))
        if members.updates % self.hyper.static("policy_delay") == 0:
            self.actor_updates += 1
            of_actor = Members(**{**vars(members), "updates": self.actor_updates})
            self.descend(self.actor_loss, self.actors, of_actor, rows)
            tau = self.hyper.column("tau")[:, None]
            self.target = (1.0 - tau) * self.target + tau * members.parameters

    @torch.no_grad()
    def targets(self, rows: Tensor, seed: Tensor) -> Tensor:
        """(P, n) values the critics move to."""
        inputs, size = self.environment.observation_size, self.environment.action_size
        following = rows[..., inputs : 2 * inputs]
        n = rows.shape[1]
        noise = rng.normal(seed[:, None], torch.arange(n * size)[None, :]).reshape(-1, n, size)
        noise = noise * self.hyper.column("target_policy_noise")[:, None, None]
        limit = self.hyper.column("target_noise_clip")[:, None, None]
        noise = torch.maximum(torch.minimum(noise, limit), -limit)
        actions = torch.tanh(
            forward(self.target[:, self.actors], self.actor, self.activation, following)
        )
        actions = (actions[..., :size] + noise).clamp(-1.0, 1.0)
        value = self.judge(self.target[:, self.critics], following, actions).amin(1)
        return rows[..., -2] + self.hyper.column("gamma")[:, None] * (1.0 - rows[..., -1]) * value

    def critic_loss(self, critics: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        """Sum over members and critics of the mean squared errors."""
        inputs = self.environment.observation_size
        values = self.judge(critics, rows[..., :inputs], rows[..., 2 * inputs : -2])
        return (values - targets[:, None]).square().mean(-1).sum()

    def actor_loss(self, actors: Tensor, rows: Tensor) -> Tensor:
        """Sum over members of -mean Q1."""
        observations = rows[..., : self.environment.observation_size]
        size = self.environment.action_size
        outputs = forward(actors, self.actor, self.activation, observations)[..., :size]
        critics = self.members.parameters[:, self.critics]
        return -self.judge(critics, observations, torch.tanh(outputs))[:, 0].mean(-1).sum()

    def descend(self, loss: Any, part: slice, members: Members, *arguments: Tensor) -> None:
        """One step of Adam for the parameters in `part` along the gradient of `loss`."""
        gradient = torch.func.grad(loss)(members.parameters[:, part], *arguments)
        rate = self.hyper.scheduled("learning_rate", members.steps / self.horizon)
        adam(members, gradient, rate, self.hyper.column("optimizer_eps"), part)
