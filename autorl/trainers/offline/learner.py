"""Behaviour cloning and implicit Q-learning on transitions.

Both learn a policy from recorded actions by their likelihood. Behaviour cloning weighs all alike;
implicit Q-learning by exp(temperature * advantage), at most 100, with values by expectile
regression, so that no action outside the data is ever asked for its value.

Reference: Kostrikov, Nair and Levine (2021), Offline Reinforcement Learning with Implicit
Q-Learning, arXiv 2110.06169; the two critics, the target network and the bound are its appendix's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import create_mlp
from torch import nn
from torch.distributions import Categorical, Distribution, Normal

from autorl.core.types import InputError

Floats = NDArray[np.float32]
_KEY = "trainer.kwargs.dataset"


@dataclass(frozen=True)
class Transitions:
    """Steps of all episodes, one after the other: n rows.

    Attributes:
        observations: (n, d), dictionaries of arrays flattened as `FlattenObservation` does.
        actions: (n, k) in [-1, 1], or (n,) numbers of actions from 0 on.
        rewards: (n,)
        following: (n, d), the observations after.
        ended: (n,), 1 where nothing came after by the rules of the task, not by a time limit.
        action_space: of the data set.
    """

    observations: Floats
    actions: NDArray[Any]
    rewards: Floats
    following: Floats
    ended: Floats
    action_space: gym.Space[Any]


# One for a study; a second where a process serves two.
@lru_cache(maxsize=2)
def read_transitions(name: str) -> Transitions:
    """Read a data set by its name.

    Raises:
        InputError: it is not on this machine, is empty, or is of spaces that are not learnt from.
    """
    import minari

    try:
        dataset = minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"no data set {name!r} on this machine; a published one comes by "
            f"`minari download {name}`",
            key=_KEY,
        ) from error
    parts = [
        _of_episode(episode, dataset.observation_space, dataset.action_space)
        for episode in dataset.iterate_episodes()
    ]
    if not parts:
        raise InputError(f"the data set {name!r} has no episodes", key=_KEY)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    observations, actions, rewards, following, ended = columns
    return Transitions(observations, actions, rewards, following, ended, dataset.action_space)


def _of_episode(
    episode: Any, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> tuple[NDArray[Any], ...]:
    observations = flat(episode.observations, observation_space)
    actions = np.asarray(episode.actions)
    if isinstance(action_space, gym.spaces.Discrete):
        actions = (actions - action_space.start).astype(np.int64)
    else:
        actions = to_unit(actions, action_space)
    return (
        observations[:-1],
        actions,
        np.asarray(episode.rewards, np.float32),
        observations[1:],
        np.asarray(episode.terminations, np.float32),
    )


def flat(observations: Any, space: gym.Space[Any]) -> Floats:
    """Flatten observations to rows of numbers.

    Raises:
        InputError: they are neither arrays nor dictionaries of arrays.
    """
    if isinstance(space, gym.spaces.Dict):
        columns = [flat(observations[name], part) for name, part in space.spaces.items()]
        return np.concatenate(columns, axis=1)
    if not isinstance(space, gym.spaces.Box):
        raise InputError(
            f"learns from arrays and dictionaries of arrays, not from {type(space).__name__}",
            key=_KEY,
        )
    rows = np.asarray(observations, np.float32)
    return rows.reshape(len(rows), -1)


def to_unit(actions: NDArray[Any], space: Any) -> Floats:
    """Scale actions from their bounds to [-1, 1].

    Raises:
        InputError: they have no bounds.
    """
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        raise InputError(f"learns bounded or numbered actions, not {space}", key=_KEY)
    low = space.low.reshape(-1)
    high = space.high.reshape(-1)
    rows = np.asarray(actions, np.float32).reshape(len(actions), -1)
    return np.asarray(2 * (rows - low) / (high - low) - 1, np.float32)


def from_unit(actions: Floats, space: Any) -> NDArray[Any]:
    """Scale actions from [-1, 1] to the bounds of a space."""
    low = space.low.reshape(-1)
    high = space.high.reshape(-1)
    rows = low + (np.clip(actions, -1, 1) + 1) / 2 * (high - low)
    return np.asarray(rows.reshape(len(rows), *space.shape), space.dtype)


_HEAVIEST = 100.0  # of the weights by advantage
_LOG_STD = (-5.0, 2.0)
APPLIED = ("learning_rate", "batch_size", "gamma", "tau", "expectile", "temperature")
"""Hyperparameters that may change in a run."""


class Policy(nn.Module):
    """Gives a distribution of actions.

    They are numbered, or normal around a point in [-1, 1].
    """

    def __init__(self, inputs: int, layers: Sequence[int], actions: int, discrete: bool) -> None:
        super().__init__()
        self.discrete = discrete
        self.body = perceptron(inputs, layers, actions)
        self.log_std = nn.Parameter(torch.zeros(actions), requires_grad=not discrete)

    def forward(self, observations: torch.Tensor) -> Distribution:
        outputs = self.body(observations)
        if self.discrete:
            return Categorical(logits=outputs)
        spread = self.log_std.clamp(*_LOG_STD).exp()
        return Normal(torch.tanh(outputs), spread)

    def log_likelihood(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-likelihood of actions: (rows,)."""
        of_parts: torch.Tensor = self(observations).log_prob(actions)
        return of_parts if self.discrete else of_parts.sum(-1)


class Learner:
    """A policy in training.

    Args:
        implicit: whether by implicit Q-learning, else by behaviour cloning.
        data: what is learnt from.
        values: hyperparameters by name, all of them.
        generator: draws the minibatches.
    """

    def __init__(
        self,
        implicit: bool,
        data: Transitions,
        values: Mapping[str, Any],
        generator: torch.Generator,
    ) -> None:
        self.implicit = implicit
        self.data = data
        self.generator = generator
        self.action_space: Any = data.action_space
        size = data.observations.shape[1]
        space = data.action_space
        discrete = isinstance(space, Discrete)
        width = int(space.n) if isinstance(space, Discrete) else data.actions.shape[1]
        layers = [int(number) for number in values["net_arch"]]
        self.moments: tuple[Floats, Floats] | None = None
        if values["standardize"]:
            # A column that never changes has no deviation to divide by.
            deviation = np.maximum(data.observations.std(axis=0), 1e-3)
            self.moments = (data.observations.mean(axis=0), deviation)
        self.policy = Policy(size, layers, width, discrete)
        self.optimizers = {"policy": torch.optim.Adam(self.policy.parameters())}
        self.networks: dict[str, nn.Module] = {"policy": self.policy}
        if implicit:
            inputs = size if discrete else size + width
            outputs = width if discrete else 1
            critics = [perceptron(inputs, layers, outputs) for _ in range(2)]
            self.critics = nn.ModuleList(critics)
            self.targets = copy.deepcopy(self.critics)
            self.values = perceptron(size, layers, 1)
            for name in ("critics", "values"):
                self.networks[name] = getattr(self, name)
                self.optimizers[name] = torch.optim.Adam(self.networks[name].parameters())
            self.networks["targets"] = self.targets
        self.settings = {name: values[name] for name in APPLIED if name in values}
        self.set_learning_rate(float(values["learning_rate"]))
        self._rows = {
            "observations": self._standardized(data.observations),
            "following": self._standardized(data.following),
            "actions": torch.as_tensor(data.actions),
            "rewards": torch.as_tensor(data.rewards),
            "ended": torch.as_tensor(data.ended),
        }

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of every optimizer."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = rate

    def update(self) -> None:
        """Make one update, by a minibatch drawn with replacement."""
        size = int(self.settings["batch_size"])
        chosen = torch.randint(len(self.data.rewards), (size,), generator=self.generator)
        batch = {name: column[chosen] for name, column in self._rows.items()}
        weights = self._update_values(batch) if self.implicit else torch.ones(size)
        likelihood = self.policy.log_likelihood(batch["observations"], batch["actions"])
        self._step("policy", -(weights * likelihood).mean())

    def predict(self, observations: Floats, deterministic: bool = True) -> tuple[Any, None]:
        """Choose actions, as the models of Stable-Baselines3 do."""
        rows = np.asarray(observations, np.float32).reshape(len(observations), -1)
        with torch.no_grad():
            distribution = self.policy(self._standardized(rows))
            if self.policy.discrete:
                drawn = distribution.probs.argmax(-1) if deterministic else distribution.sample()
                return drawn.numpy() + int(self.action_space.start), None
            drawn = distribution.mean if deterministic else distribution.sample()
        return from_unit(drawn.numpy(), self.action_space), None

    def get_vec_normalize_env(self) -> None:
        """Say that observations are standardised in here."""

    ep_info_buffer = None
    """It plays no episodes while it trains."""

    def applied(self) -> dict[str, Any]:
        """Read every hyperparameter back from what trains."""
        rates = {
            group["lr"]
            for optimizer in self.optimizers.values()
            for group in optimizer.param_groups
        }
        if len(rates) > 1:
            raise RuntimeError(f"learning rates of the optimizers disagree: {sorted(rates)}")
        hidden = [layer for layer in self.policy.body if isinstance(layer, nn.Linear)][:-1]
        return {
            **self.settings,
            "learning_rate": rates.pop(),
            "net_arch": tuple(layer.out_features for layer in hidden),
            "standardize": self.moments is not None,
        }

    def finite(self) -> bool:
        """Tell whether every parameter is a finite number."""
        return all(bool(torch.isfinite(weights).all()) for weights in self._parameters())

    def state(self) -> dict[str, Any]:
        """Return weights and moments of the optimizers."""
        parts: dict[str, Any] = {
            f"network.{name}": dict(network.state_dict()) for name, network in self.networks.items()
        }
        return parts | {
            f"optimizer.{name}": optimizer.state_dict()
            for name, optimizer in self.optimizers.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take on what `state` returned.

        Learning rates stay those of now.
        """
        rate = self.applied()["learning_rate"]
        for name, network in self.networks.items():
            network.load_state_dict(state[f"network.{name}"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[f"optimizer.{name}"])
        self.set_learning_rate(rate)

    def _update_values(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Update values and critics.

        Returns:
            The weight of each action by its advantage: (rows,).
        """
        settings = self.settings
        with torch.no_grad():
            judged = torch.stack([self._judged(old, batch) for old in self.targets]).amin(0)
        values = self.values(batch["observations"]).squeeze(-1)
        advantage = judged - values
        expectile = float(settings["expectile"])
        asymmetry = torch.where(advantage > 0, expectile, 1 - expectile)
        self._step("values", (asymmetry * advantage.square()).mean())
        with torch.no_grad():
            later = self.values(batch["following"]).squeeze(-1)
            discount = float(settings["gamma"]) * (1 - batch["ended"])
            target = batch["rewards"] + discount * later
        errors = [self._judged(critic, batch) - target for critic in self.critics]
        self._step("critics", torch.stack([error.square().mean() for error in errors]).sum())
        share = float(settings["tau"])
        with torch.no_grad():
            for old, new in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                old.lerp_(new, share)
        exponents: torch.Tensor = float(settings["temperature"]) * advantage.detach()
        return exponents.exp().clamp(max=_HEAVIEST)

    def _judged(self, critic: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what a critic says of the recorded actions: (rows,)."""
        if self.policy.discrete:
            of_all: torch.Tensor = critic(batch["observations"])
            return of_all.gather(-1, batch["actions"].unsqueeze(-1)).squeeze(-1)
        pairs = torch.cat([batch["observations"], batch["actions"]], dim=-1)
        of_pairs: torch.Tensor = critic(pairs)
        return of_pairs.squeeze(-1)

    def _step(self, name: str, loss: torch.Tensor) -> None:
        optimizer = self.optimizers[name]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def _standardized(self, rows: Floats) -> torch.Tensor:
        if self.moments is None:
            return torch.as_tensor(rows)
        mean, deviation = self.moments
        return torch.as_tensor((rows - mean) / deviation)

    def _parameters(self) -> Iterable[torch.Tensor]:
        for network in self.networks.values():
            yield from network.parameters()


def perceptron(inputs: int, layers: Sequence[int], outputs: int) -> nn.Sequential:
    """Make layers with rectifiers between them."""
    return nn.Sequential(*create_mlp(inputs, outputs, list(layers)))
