"""DQN over stacked members: the stations of `autorl.population.dqn`, with the loss differentiated by torch.

References: see `autorl.population.dqn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autorl.population import dqn as native
from autorl.population import rng as purposes
from autorl.population.environments import Environment
from autorl.population.networks import layer_table
from stacked import rng
from stacked.environments import STACKED
from stacked.members import Hyper, adam, advance, clipped, draws, forward, stack_members
from stacked.replay import StackedReplay


class StackedDQN:
    """P members of DQN. Counts of steps and updates, memory and network shape are common to all; rates are not.

    Args:
        states: new native states (`autorl.population.dqn.create`), one per member.
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
        self.target = self.members.parameters.clone()
        self.layers = layer_table(native.network_sizes(environment, records[0]))
        self.activation, self.horizon = (
            self.hyper.static("activation"),
            self.hyper.static("horizon"),
        )
        rows = states[0]["replay"].rows
        self.prioritized = bool(self.hyper.static("prioritized"))
        self.replay = StackedReplay(len(states), rows.shape[0], rows.shape[1], self.prioritized)

    def advance(self, iterations: int) -> None:
        """Train every member for a number of rounds of steps and updates."""
        members, n_envs = self.members, self.members.states.shape[1]
        target_period = max(self.hyper.static("target_update_interval") // n_envs, 1)
        tau, updates = self.hyper.column("tau")[:, None], self.hyper.static("gradient_steps")
        for _ in range(iterations):
            for _ in range(self.hyper.static("train_freq")):
                self.step_environments()
                if members.steps // n_envs % target_period == 0:
                    self.target = (1.0 - tau) * self.target + tau * members.parameters
            if members.steps > self.hyper.static("learning_starts"):
                for _ in range(
                    updates if updates >= 0 else self.hyper.static("train_freq") * n_envs
                ):
                    self.update()

    def values(self, parameters: Tensor, observations: Tensor) -> Tensor:
        """(P, rows, n_actions) Q-values."""
        return forward(parameters, self.layers, self.activation, observations)

    def exploration_rate(self) -> Tensor:
        """(P,) epsilon at the present step."""
        if self.members.steps < self.hyper.static("learning_starts"):
            return torch.ones(len(self.members.key), dtype=torch.float64)
        first, last = (
            self.hyper.column("exploration_initial_eps"),
            self.hyper.column("exploration_final_eps"),
        )
        progress = torch.tensor(self.members.steps / self.horizon, dtype=torch.float64)
        done = (progress / self.hyper.column("exploration_fraction")).clamp(max=1.0)
        return (1.0 - done) * first + done * last

    @torch.no_grad()
    def step_environments(self) -> None:
        """One epsilon-greedy step of every environment of every member, remembered."""
        members, epsilon = self.members, self.exploration_rate()
        observations = self.functions.observe(members.states)
        seed, counter = draws(members, purposes.ACTION, (members.states.shape[1],))
        best = self.values(members.parameters, observations).argmax(-1)
        other = rng.integer(seed, 2 * counter + 1, self.environment.n_actions)
        choice = torch.where(rng.uniform(seed, 2 * counter) < epsilon[:, None], other, best)
        actions = choice[..., None].to(torch.float64)
        final, rewards, terminated, _ = advance(members, self.environment, actions)
        ends = terminated[..., None].to(torch.float64)
        self.replay.add(torch.cat([observations, final, actions, rewards[..., None], ends], -1))

    def update(self) -> None:
        """One Huber update of every member towards its bootstrapped targets."""
        members, n, inputs = (
            self.members,
            self.hyper.static("batch_size"),
            self.environment.observation_size,
        )
        progress = members.steps / self.horizon
        seed, counter = draws(members, purposes.REPLAY, ())
        if self.prioritized:
            beta = self.hyper.scheduled("priority_beta", progress)
            batch, weights = self.replay.sample_by_priority(rng.bits(seed, counter), n, beta)
        else:
            batch, weights = (
                self.replay.sample_uniform(rng.bits(seed, counter), n),
                torch.ones(1, dtype=torch.float64),
            )
        rows = self.replay.take(batch)
        targets = self.targets(rows, inputs)
        gradient, errors = torch.func.grad(self.loss, has_aux=True)(
            members.parameters, rows, targets, weights
        )
        if self.prioritized:
            error = errors.abs() + self.hyper.column("priority_eps")[:, None]
            self.replay.set_priorities(batch, error ** self.hyper.column("priority_alpha")[:, None])
        members.updates += 1
        rate = self.hyper.scheduled("learning_rate", progress)
        gradient = clipped(gradient, self.hyper.column("max_grad_norm"))
        adam(members, gradient, rate, self.hyper.column("optimizer_eps"), slice(None))

    @torch.no_grad()
    def targets(self, rows: Tensor, inputs: int) -> Tensor:
        """(P, n) bootstrapped values of the minibatch."""
        following = rows[..., inputs : 2 * inputs]
        online = self.values(self.members.parameters, following)
        judge = self.values(self.target, following)
        judge = torch.where(
            self.hyper.column("use_target_network")[:, None, None] > 0, judge, online
        )
        choice = torch.where(
            self.hyper.column("double")[:, None] > 0, online.argmax(-1), judge.argmax(-1)
        )
        values = judge.gather(-1, choice[..., None])[..., 0]
        return rows[..., -2] + self.hyper.column("gamma")[:, None] * (1.0 - rows[..., -1]) * values

    def loss(
        self, parameters: Tensor, rows: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sum over members of mean(w * huber(Q(s, a) - y)); also the errors Q(s, a) - y."""
        inputs = self.environment.observation_size
        actions = rows[..., 2 * inputs].long()[..., None]
        current = self.values(parameters, rows[..., :inputs]).gather(-1, actions)[..., 0]
        losses = torch.nn.functional.smooth_l1_loss(current, targets, reduction="none")
        return (weights * losses).mean(1).sum(), (current - targets).detach()
