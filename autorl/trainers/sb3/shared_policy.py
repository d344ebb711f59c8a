"""PettingZoo: agents that are alike learn and play by one policy.

`environment: {id: "pettingzoo.classic.rps_v2:parallel_env"}` names the function of a module that
makes an environment of PettingZoo's parallel interface. Each of its agents is an environment of
Stable-Baselines3: `n_envs` counts agents, a multiple of those of one game, and so do steps. No
state of such an environment is saved: a run that is cut begins new games.

Reference: Terry et al. (2021), PettingZoo: Gym for Multi-Agent Reinforcement Learning, NeurIPS;
Gupta et al. (2017), Cooperative Multi-Agent Control Using Deep Reinforcement Learning (parameter
sharing), AAMAS Workshops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from autorl.core.plain_values import plain
from autorl.core.plugins import named_class
from autorl.core.types import EnvironmentSpec, InputError
from autorl.trainers.trained_task import made_of


class SharedPolicyVecEnv(VecEnv):
    """Shows the agents of several games as environments side by side.

    Args:
        games: of PettingZoo's parallel interface, equal but for their random streams. All agents of
            a game end together, and it begins anew by itself.
    """

    def __init__(self, games: Sequence[Any]) -> None:
        self.games = list(games)
        self.agents = list(games[0].possible_agents)
        self._actions: Any = None
        first = self.agents[0]
        super().__init__(
            len(self.games) * len(self.agents),
            games[0].observation_space(first),
            games[0].action_space(first),
        )

    def reset(self) -> Any:
        """Begin every game, with a seed where one was given."""
        observations: list[Any] = []
        for number, game in enumerate(self.games):
            seen, _ = game.reset(seed=self._seeds[number * len(self.agents)])
            observations += [seen[agent] for agent in self.agents]
        self._reset_seeds()
        self._reset_options()
        return stacked(observations, self.observation_space)

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Make one step of every game."""
        observations: list[Any] = []
        rewards: list[float] = []
        dones: list[bool] = []
        infos: list[dict[str, Any]] = []
        for number, game in enumerate(self.games):
            begin = number * len(self.agents)
            chosen = self._actions[begin : begin + len(self.agents)]
            seen, gained, terminated, truncated, remarks = game.step(
                named_actions(self.agents, chosen, self.action_space)
            )
            over = is_over(self.agents, terminated, truncated)
            of_game = [dict(remarks.get(agent, {})) for agent in self.agents]
            if over:
                for agent, info in zip(self.agents, of_game, strict=True):
                    info["terminal_observation"] = seen[agent]
                    info["TimeLimit.truncated"] = truncated[agent] and not terminated[agent]
                seen, _ = game.reset()
            observations += [seen[agent] for agent in self.agents]
            rewards += [float(gained[agent]) for agent in self.agents]
            dones += [over] * len(self.agents)
            infos += of_game
        return (
            stacked(observations, self.observation_space),
            np.array(rewards, np.float32),
            np.array(dones),
            infos,
        )

    def close(self) -> None:
        """Close every game."""
        for game in self.games:
            game.close()

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Answer `freeze`, the one method: no state can be saved."""
        if method_name != "freeze":
            raise AttributeError(f"agents of a game have no method {method_name!r}")
        return [b""] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Read an attribute of the game of each agent."""
        games = [self.games[number // len(self.agents)] for number in self._get_indices(indices)]
        # Stable-Baselines3 asks for it and warns where it is missing.
        if attr_name == "render_mode":
            return [getattr(game, attr_name, None) for game in games]
        return [getattr(game, attr_name) for game in games]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError("attributes of a game are set by environment.kwargs")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


def make_game(spec: EnvironmentSpec, folders: tuple[str, ...] = ()) -> Any:
    """Make one game, and check that its agents are alike.

    Raises:
        InputError: it cannot be made, its agents differ, or there are wrappers of Gymnasium.
    """
    assert spec.id is not None
    make = named_class(spec.id, "environment.id", folders=folders)
    if spec.wrappers:
        raise InputError(
            "wrappers are for environments of one agent: write a function `parallel_env` that "
            "wraps the game",
            key="environment.wrappers",
        )
    try:
        game = make(**plain(spec.kwargs))
    except TypeError as error:
        raise InputError(
            f"{spec.id!r} does not take these arguments: {error}", key="environment.kwargs"
        ) from error
    game.made_of = made_of(spec)
    agents = list(game.possible_agents)
    for agent in agents[1:]:
        for kind in ("observation_space", "action_space"):
            spaces = [getattr(game, kind)(which) for which in (agents[0], agent)]
            if spaces[0] != spaces[1]:
                raise InputError(
                    f"one policy for all needs agents that are alike: the {kind} of {agents[0]} is "
                    f"{spaces[0]}, that of {agent} is {spaces[1]}",
                    key="environment.id",
                )
    return game


def make_games(spec: EnvironmentSpec, n_envs: int, folders: tuple[str, ...]) -> VecEnv:
    """Make as many games as have `n_envs` agents.

    Raises:
        InputError: no number of games has so many, or they were to have processes of their own.
    """
    game = make_game(spec, folders)
    check_agents(spec, len(game.possible_agents), n_envs)
    further = n_envs // len(game.possible_agents) - 1
    games = [game, *(make_game(spec, folders) for _ in range(further))]
    return VecMonitor(SharedPolicyVecEnv(games))


def check_agents(spec: EnvironmentSpec, agents: int, n_envs: int) -> None:
    """Check that environments make up whole games, in one process."""
    if n_envs % agents:
        raise InputError(
            f"{spec.id} has {agents} agents, each of which counts as an environment: expected a "
            f"multiple of {agents}, got {n_envs}",
            key="environment.n_envs",
        )
    if spec.vec_env != "dummy":
        raise InputError(
            f"games of several agents share one process, got {spec.vec_env!r}",
            key="environment.vec_env",
        )


def played(
    policy: Any, spec: EnvironmentSpec, seeds: Sequence[int], folders: tuple[str, ...]
) -> Iterator[tuple[int, float, int]]:
    """Play a game for each seed, all agents by one policy.

    Yields:
        Its index, the mean over agents of their undiscounted returns, its length.
    """
    game = make_game(spec, folders)
    agents = list(game.possible_agents)
    observations = game.observation_space(agents[0])
    actions = game.action_space(agents[0])
    slots = range(len(agents))
    try:
        for index, seed in enumerate(seeds):
            seen, _ = game.reset(seed=seed)
            total = 0.0
            length = 0
            over = False
            while not over:
                rows = stacked([seen[agent] for agent in agents], observations)
                chosen = policy.actions(policy.normalised(rows), [game] * len(agents), slots)
                seen, gained, terminated, truncated, _ = game.step(
                    named_actions(agents, chosen, actions)
                )
                total += sum(float(gained[agent]) for agent in agents) / len(agents)
                length += 1
                over = is_over(agents, terminated, truncated)
            for slot in slots:
                policy.forget(slot)
            yield index, total, length
    finally:
        game.close()


def named_actions(agents: Sequence[Any], chosen: Any, space: gym.Space[Any]) -> dict[Any, Any]:
    """Name actions by their agents, those of a few as plain numbers."""
    discrete = isinstance(space, gym.spaces.Discrete)
    return {
        agent: int(action) if discrete else action
        for agent, action in zip(agents, chosen, strict=True)
    }


def is_over(agents: Sequence[Any], terminated: Any, truncated: Any) -> bool:
    """Tell whether a game is over for its agents.

    Raises:
        ValueError: the game is over for some of them only.
    """
    ended = [bool(terminated[agent] or truncated[agent]) for agent in agents]
    if any(ended) and not all(ended):
        first = agents[ended.index(True)]
        raise ValueError(
            f"{first} ended before the others: agents that share a policy here end together; "
            "black_death of SuperSuit keeps them to the end of a game"
        )
    return all(ended)


def stacked(observations: list[Any], space: Any) -> Any:
    """Stack observations as SB3's vectorised environments give them."""
    if isinstance(observations[0], dict):
        return {
            key: stacked([item[key] for item in observations], space[key])
            for key in observations[0]
        }
    return np.stack([np.asarray(item) for item in observations]).astype(space.dtype)
