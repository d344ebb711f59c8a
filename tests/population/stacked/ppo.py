"""PPO over stacked members: the stations of `autorl.population.ppo`, with the loss differentiated by torch.

References: see `autorl.population.ppo`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autorl.population import ppo_agent
from autorl.population import rng as purposes
from autorl.population.descent import ADAM
from autorl.population.environments import Environment
from autorl.population.networks import layer_table, parameter_count
from stacked import rng
from stacked.environments import STACKED
from stacked.members import Hyper, adam, advance, clipped, draws, forward, rmsprop, stack_members


@dataclass
class Rollout:
    """(P, n_steps * n_envs, ...) transitions, time first; see `autorl.population.ppo.Rollout`."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    rewards: Tensor
    dones: Tensor
    advantages: Tensor
    returns: Tensor


class StackedPPO:
    """P members of PPO. n_steps, n_envs, batch_size, n_epochs, optimizer and network shape are common to all.

    Args:
        states: new native states (`autorl.population.ppo.create`), one per member.
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
        actor, critic = ppo_agent.network_sizes(environment, records[0])
        self.actor, self.critic = layer_table(actor), layer_table(critic)
        self.split = parameter_count(actor)
        self.end = self.split + parameter_count(critic)
        self.activation = self.hyper.static("activation")
        if torch.isfinite(self.hyper.column("target_kl")).any():
            raise ValueError("target_kl stops members at different times: not for stacked members")

    def advance(self, iterations: int) -> None:
        """Train every member for a number of rollouts."""
        for _ in range(iterations):
            rollout = self.collect_rollout()
            progress = self.members.steps / self.hyper.static("horizon")
            rate, clip, entropy = (
                self.hyper.scheduled(name, progress)
                for name in ("learning_rate", "clip_range", "ent_coef")
            )
            for _ in range(self.hyper.static("n_epochs")):
                seed, counter = draws(self.members, purposes.SHUFFLE, ())
                order = rng.permute(rng.bits(seed, counter), rollout.rewards.shape[1])
                for batch in torch.split(order, self.hyper.static("batch_size"), dim=1):
                    gradient = torch.func.grad(self.loss)(
                        self.members.parameters, rollout, batch, clip, entropy
                    )
                    self.descend(gradient, rate)

    def policy(self, parameters: Tensor, observations: Tensor) -> Any:
        """The distribution of actions, over the last dimension for continuous ones."""
        outputs = forward(parameters[:, : self.split], self.actor, self.activation, observations)
        if self.environment.n_actions:
            return torch.distributions.Categorical(logits=outputs, validate_args=False)
        deviation = parameters[:, None, self.end :].exp().expand_as(outputs)
        return torch.distributions.Independent(
            torch.distributions.Normal(outputs, deviation, validate_args=False),
            1,
            validate_args=False,
        )

    def value(self, parameters: Tensor, observations: Tensor) -> Tensor:
        """(P, rows) values."""
        return forward(
            parameters[:, self.split : self.end], self.critic, self.activation, observations
        )[..., 0]

    def sample(self, policy: Any, n_envs: int) -> Tensor:
        """Actions (P, n_envs, action_size), drawn as the native engine draws them."""
        if self.environment.n_actions:
            seed, counter = draws(self.members, purposes.ACTION, (n_envs,))
            below = policy.probs.cumsum(-1)[..., :-1] <= rng.uniform(seed, counter)[..., None]
            return torch.as_tensor(below.sum(-1, keepdim=True), dtype=torch.float64)
        seed, counter = draws(self.members, purposes.ACTION, (n_envs, self.environment.action_size))
        return torch.as_tensor(
            policy.base_dist.loc + policy.base_dist.scale * rng.normal(seed, counter)
        )

    def log_prob(self, policy: Any, actions: Tensor) -> Tensor:
        """(P, rows) log-probabilities."""
        found: Tensor = policy.log_prob(actions[..., 0] if self.environment.n_actions else actions)
        return found

    @torch.no_grad()
    def collect_rollout(self) -> Rollout:
        """n_steps steps of every environment of every member, and the advantages."""
        members, gamma = self.members, self.hyper.column("gamma")[:, None]
        bounds, parameters = torch.tensor(self.environment.bounds), self.members.parameters
        columns: list[tuple[Tensor, ...]] = []
        for _ in range(self.hyper.static("n_steps")):
            observations = self.functions.observe(members.states)
            policy, values = (
                self.policy(parameters, observations),
                self.value(parameters, observations),
            )
            actions = self.sample(policy, members.states.shape[1])
            applied = actions if self.environment.n_actions else actions.clamp(bounds[0], bounds[1])
            final, rewards, terminated, truncated = advance(members, self.environment, applied)
            rewards = rewards + gamma * self.value(parameters, final) * truncated
            dones = (terminated | truncated).to(torch.float64)
            columns.append(
                (observations, actions, self.log_prob(policy, actions), values, rewards, dones)
            )
        stacked = [
            torch.stack(column, 1) for column in zip(*columns, strict=True)
        ]  # (P, n_steps, n_envs, ...)
        last = self.value(parameters, self.functions.observe(members.states))
        advantages = self.advantages(stacked[3], stacked[4], stacked[5], last)
        return Rollout(*(x.flatten(1, 2) for x in (*stacked, advantages, advantages + stacked[3])))

    def advantages(self, values: Tensor, rewards: Tensor, dones: Tensor, last: Tensor) -> Tensor:
        """Generalised advantage estimates, (P, n_steps, n_envs)."""
        gamma, lam = self.hyper.column("gamma")[:, None], self.hyper.column("gae_lambda")[:, None]
        following, advantage, found = last, torch.zeros_like(last), []
        for t in reversed(range(values.shape[1])):
            alive = 1.0 - dones[:, t]
            delta = rewards[:, t] + gamma * alive * following - values[:, t]
            advantage = delta + gamma * lam * alive * advantage
            following = values[:, t]
            found.append(advantage)
        return torch.stack(found[::-1], 1)

    def loss(
        self, parameters: Tensor, rollout: Rollout, batch: Tensor, clip: Tensor, entropy: Tensor
    ) -> Tensor:
        """Sum over members of each one's loss on its rows `batch` (P, size): their gradients do not mix."""

        def rows(table: Tensor) -> Tensor:
            index = batch if table.dim() == 2 else batch[..., None].expand(-1, -1, table.shape[-1])
            return table.gather(1, index)

        clip, old = clip[:, None], rows(rollout.values)
        observations, actions = rows(rollout.observations), rows(rollout.actions)
        policy, values = self.policy(parameters, observations), self.value(parameters, observations)
        ratio = torch.exp(self.log_prob(policy, actions) - rows(rollout.log_probs))
        advantages = self.normalised(rows(rollout.advantages))
        surrogate = torch.minimum(
            advantages * ratio, advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
        ).mean(1)
        limit = self.hyper.column("clip_range_vf")[:, None]
        held = torch.where(
            limit == math.inf, values, old + torch.clamp(values - old, -limit, limit)
        )
        value_loss = (rows(rollout.returns) - held).square().mean(1)
        bonus: Tensor = entropy * policy.entropy().mean(1)
        return (self.hyper.column("vf_coef") * value_loss - surrogate - bonus).sum()

    def normalised(self, advantages: Tensor) -> Tensor:
        """Advantages of a minibatch with mean 0 and deviation 1, for the members that ask for it."""
        if advantages.shape[1] < 2:
            return advantages
        scaled = (advantages - advantages.mean(1, keepdim=True)) / (
            advantages.std(1, keepdim=True) + 1e-8
        )
        return torch.where(
            self.hyper.column("normalize_advantage")[:, None] > 0, scaled, advantages
        )

    def descend(self, gradient: Tensor, rate: Tensor) -> None:
        """One optimizer step of every member along its clipped gradient."""
        self.members.updates += 1
        gradient, epsilon = (
            clipped(gradient, self.hyper.column("max_grad_norm")),
            self.hyper.column("optimizer_eps"),
        )
        if self.hyper.static("optimizer") == ADAM:
            adam(self.members, gradient, rate, epsilon, slice(None))
        else:
            rmsprop(self.members, gradient, rate, epsilon)
