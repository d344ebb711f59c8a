"""SAC over stacked members: the stations of `autorl.population.sac`, with the losses differentiated by torch.

References: see `autorl.population.sac`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autorl.population import rng as purposes
from autorl.population import sac as native
from autorl.population.environments import Environment
from autorl.population.networks import layer_table, parameter_count
from autorl.population.policies import HALF_LOG_2PI
from stacked import rng
from stacked.environments import STACKED
from stacked.members import Hyper, adam, advance, draws, forward, stack_members
from stacked.replay import StackedReplay


class StackedSAC:
    """P members of SAC. Counts of steps and updates, memory and network shape are common to all; rates are not.

    Args:
        states: new native states (`autorl.population.sac.create`), one per member.
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
        actor, critic = native.network_sizes(environment, records[0], 2)
        self.actor, self.critic = layer_table(actor), layer_table(critic)
        self.split, self.size = parameter_count(actor), parameter_count(critic)
        self.actors, self.critics = (
            slice(0, self.split),
            slice(self.split, self.split + 2 * self.size),
        )
        self.temperature = slice(self.critics.stop, None)
        self.target = self.members.parameters[:, self.critics].clone()
        self.activation, self.horizon = (
            self.hyper.static("activation"),
            self.hyper.static("horizon"),
        )
        rows = states[0]["replay"].rows
        self.replay = StackedReplay(len(states), rows.shape[0], rows.shape[1], False)

    def advance(self, iterations: int) -> None:
        """Train every member for a number of rounds of steps and updates."""
        steps, updates, tau = (
            self.hyper.static(name) for name in ("train_freq", "gradient_steps", "tau")
        )
        for _ in range(iterations):
            for _ in range(steps):
                self.step_environments()
            if self.members.steps > self.hyper.static("learning_starts"):
                count = updates if updates >= 0 else steps * self.members.states.shape[1]
                for update in range(count):
                    self.update()
                    if update % self.hyper.static("target_update_interval") == 0:
                        online = self.members.parameters[:, self.critics]
                        self.target = (1.0 - tau) * self.target + tau * online

    def sample(self, actors: Tensor, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions in [-1, 1], (P, rows, action_size), and their log-probabilities, for given normal draws."""
        outputs = forward(actors, self.actor, self.activation, observations)
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(native.LOG_STD_LOW, native.LOG_STD_HIGH)
        action = torch.tanh(mean + log_std.exp() * noise)
        log_prob = (
            -0.5 * noise**2
            - log_std
            - HALF_LOG_2PI
            - torch.log(1.0 - action**2 + native.SQUASH_EPS)
        )
        return action, log_prob.sum(-1)

    def judge(
        self, critics: Tensor, observations: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(P, rows) values of both critics."""
        pairs = torch.cat([observations, actions], -1)
        first, second = critics[:, : self.size], critics[:, self.size :]
        return (
            forward(first, self.critic, self.activation, pairs)[..., 0],
            forward(second, self.critic, self.activation, pairs)[..., 0],
        )

    @torch.no_grad()
    def step_environments(self) -> None:
        """One step of every environment of every member with a drawn action, remembered."""
        members, bounds = self.members, torch.tensor(self.environment.bounds)
        observations = self.functions.observe(members.states)
        seed, counter = draws(
            members, purposes.ACTION, (members.states.shape[1], self.environment.action_size)
        )
        if members.steps < self.hyper.static("learning_starts"):
            actions = 2.0 * rng.uniform(seed, 2 * counter) - 1.0
        else:
            actions, _ = self.sample(
                members.parameters[:, self.actors], observations, rng.normal(seed, counter)
            )
        applied = bounds[0] + 0.5 * (bounds[1] - bounds[0]) * (1.0 + actions)
        final, rewards, terminated, _ = advance(members, self.environment, applied)
        rewards = rewards * self.hyper.column("reward_scale")[:, None]
        ends = terminated[..., None].to(torch.float64)
        self.replay.add(torch.cat([observations, final, actions, rewards[..., None], ends], -1))

    def update(self) -> None:
        """One gradient step of temperature, critics and actor of every member on a fresh minibatch."""
        members, n = self.members, self.hyper.static("batch_size")
        _, counter = draws(members, purposes.UPDATE, ())
        batch = self.replay.sample_uniform(
            rng.bits(rng.stream(members.key, purposes.REPLAY), counter), n
        )
        rows, seed = (
            self.replay.take(batch),
            rng.bits(rng.stream(members.key, purposes.UPDATE), counter),
        )
        members.updates += 1
        learned = self.hyper.static("ent_coef") < 0.0
        alpha = members.parameters[:, -1].exp() if learned else self.hyper.column("ent_coef")
        noise = self.noise(rng.stream(seed, 0), n)
        targets = self.targets(rows, alpha, self.noise(rng.stream(seed, 1), n))
        if learned:
            self.descend(self.temperature_loss, self.temperature, rows, noise)
        self.descend(self.critic_loss, self.critics, rows, targets)
        self.descend(self.actor_loss, self.actors, rows, alpha, noise)

    def noise(self, seed: Tensor, n: int) -> Tensor:
        """(P, n, action_size) normal draws of a minibatch, one seed per member."""
        size = self.environment.action_size
        return rng.normal(seed[:, None], torch.arange(n * size)[None, :]).reshape(-1, n, size)

    @torch.no_grad()
    def targets(self, rows: Tensor, alpha: Tensor, noise: Tensor) -> Tensor:
        """(P, n) soft values the critics move to."""
        inputs = self.environment.observation_size
        following = rows[..., inputs : 2 * inputs]
        actions, log_prob = self.sample(self.members.parameters[:, self.actors], following, noise)
        value = (
            torch.minimum(*self.judge(self.target, following, actions)) - alpha[:, None] * log_prob
        )
        return rows[..., -2] + self.hyper.column("gamma")[:, None] * (1.0 - rows[..., -1]) * value

    def temperature_loss(self, log_alpha: Tensor, rows: Tensor, noise: Tensor) -> Tensor:
        """Sum over members of -log_alpha * mean(log pi + target entropy)."""
        observations = rows[..., : self.environment.observation_size]
        _, log_prob = self.sample(self.members.parameters[:, self.actors], observations, noise)
        entropy = self.hyper.column("target_entropy")
        entropy = torch.where(entropy == math.inf, -float(self.environment.action_size), entropy)
        return -(log_alpha * (log_prob + entropy[:, None]).detach()).mean(1).sum()

    def critic_loss(self, critics: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
        """Sum over members of half the mean squared errors of both critics."""
        inputs = self.environment.observation_size
        both = self.judge(critics, rows[..., :inputs], rows[..., 2 * inputs : -2])
        return torch.stack([0.5 * (q - targets).square().mean(1).sum() for q in both]).sum()

    def actor_loss(self, actors: Tensor, rows: Tensor, alpha: Tensor, noise: Tensor) -> Tensor:
        """Sum over members of mean(alpha * log pi - min Q)."""
        observations = rows[..., : self.environment.observation_size]
        actions, log_prob = self.sample(actors, observations, noise)
        value = torch.minimum(
            *self.judge(self.members.parameters[:, self.critics], observations, actions)
        )
        return (alpha[:, None] * log_prob - value).mean(1).sum()

    def descend(self, loss: Any, part: slice, *arguments: Tensor) -> None:
        """One step of Adam for the parameters in `part` along the gradient of `loss`."""
        gradient = torch.func.grad(loss)(self.members.parameters[:, part], *arguments)
        rate = self.hyper.scheduled("learning_rate", self.members.steps / self.horizon)
        adam(self.members, gradient, rate, self.hyper.column("optimizer_eps"), part)
