"""Plays evaluation episodes in fresh environments.

There is one reset seed per episode, and the training's normaliser is only read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.core.types import EnvironmentSpec
from autorl.statistics import episodes
from autorl.trainers._streams import preserved, seed_global
from autorl.trainers.sb3 import shared_policy
from autorl.trainers.sb3.environments import is_game, make_environment
from autorl.trainers.sb3.shared_policy import stacked

if TYPE_CHECKING:
    import gymnasium as gym
    from stable_baselines3.common.base_class import BaseAlgorithm

ACTION_MASKS = "action_masks"
"""The method by which an environment says which actions are valid (sb3-contrib)."""
_COMPONENTS = "component_returns"


def metrics_in(environment: EnvironmentSpec, components: int = 0) -> list[str]:
    """List the metrics of an evaluation in an environment.

    Args:
        environment: which reads values of `info` and asks for tails.
        components: of the reward.
    """
    infos = () if is_game(environment) else environment.info
    single = ["eval_return", "eval_length", *map(episodes.info_metric, ("success_rate", *infos))]
    single += map(episodes.component_metric, range(components))
    tails = episodes.tails_of(single, environment.metrics)
    return [*single, "eval_return_std", "train_return", *tails]


def evaluate(
    model: BaseAlgorithm,
    environment: EnvironmentSpec,
    seeds: Sequence[int],
    *,
    deterministic: bool = True,
    n_envs: int = 16,
    folders: tuple[str, ...] = (),
) -> dict[str, float]:
    """Measure one episode per seed, at most `n_envs` side by side.

    Environments are new at each call and no random stream of the training is touched, so when a run
    is evaluated, how often and on how many episodes has no effect on it.

    Returns:
        `eval_return`, `eval_return_std` (ddof 0, as SB3 prints it), `eval_length`;
        `eval_success_rate` where episodes
        end with `is_success` or `success` in their info; what the task reads of `info`;
        `eval_return_0`, `eval_return_1`, ... of a
        reward that is a vector; `train_return`: mean of the latest
        training episodes, if any; and tails that the task asks for.
    """
    with preserved():
        # A policy that is not deterministic draws its actions from torch's global generator.
        seed_global(seeds[0])
        # In the order of their seeds: a mean must not depend on which episode ended first.
        played = sorted(play_episodes(model, environment, seeds, deterministic, n_envs, folders))
    returns, lengths, infos, of_components = zip(*(episode[1:] for episode in played), strict=True)
    metrics = episodes.episode_metrics(
        np.array(returns), lengths, infos, environment, np.array(of_components)
    )
    if model.ep_info_buffer:
        # The latest 100 episodes (`stats_window_size`), as SB3 logs them.
        metrics["train_return"] = float(np.mean([info["r"] for info in model.ep_info_buffer]))
    return metrics


def play_episodes(
    model: BaseAlgorithm,
    environment: EnvironmentSpec,
    seeds: Sequence[int],
    deterministic: bool,
    n_envs: int,
    folders: tuple[str, ...],
    shown: Callable[[gym.Env[Any, Any]], None] = lambda env: None,
) -> Iterator[tuple[int, float, int, dict[str, float], tuple[float, ...]]]:
    """Yield (index, return, length, infos, components) of each episode, as they end.

    A free environment takes the next seed. `shown` is given an environment after each step.
    """
    policy = _Policy(model, deterministic)
    if is_game(environment):
        for index, returned, length in shared_policy.played(policy, environment, seeds, folders):
            yield index, returned, length, {}, ()
        return
    count = min(n_envs, len(seeds))
    envs = [make_environment(environment, folders) for _ in range(count)]
    try:
        running = {slot: slot for slot in range(len(envs))}  # environment -> episode
        infos: list[dict[str, float]] = [{} for _ in seeds]
        observations = {slot: envs[slot].reset(seed=seeds[slot])[0] for slot in running}
        pending = iter(range(len(envs), len(seeds)))
        while running:
            # The order of rows is that of the environments, whichever are still running.
            slots = sorted(running)
            rows = stacked([observations[slot] for slot in slots], envs[0].observation_space)
            actions = policy.actions(policy.normalised(rows), envs, slots)
            for slot, action in zip(slots, actions, strict=True):
                observations[slot], _, terminated, truncated, info = envs[slot].step(action)
                shown(envs[slot])
                episodes.add_info(infos[running[slot]], environment.info, "sum", info)
                if not (terminated or truncated):
                    continue
                policy.forget(slot)
                # A wrapper ended it (a life lost), and the task goes on. A limit among them that is
                # below the task's ends every episode.
                if "episode" not in info and not truncated:
                    observations[slot] = envs[slot].reset()[0]
                    continue
                index = running.pop(slot)
                episodes.add_info(infos[index], environment.info, "last", info)
                yield index, *_result(envs[slot], info, infos[index])
                following = next(pending, None)
                if following is not None:
                    running[slot] = following
                    observations[slot] = envs[slot].reset(seed=seeds[following])[0]
    finally:
        for env in envs:
            env.close()


class _Policy:
    """Chooses actions for environments that come and go.

    Args:
        model: whose policy it is.
        deterministic: whether it takes the mode.
    """

    def __init__(self, model: BaseAlgorithm, deterministic: bool) -> None:
        self._model: Any = model
        self._deterministic = deterministic
        self._masked = "action_masks" in inspect.signature(model.predict).parameters
        self._recurrent = hasattr(model, "_last_lstm_states")
        self._memory: dict[int, list[Any]] = {}  # environment -> state of each layer group

    def actions(self, observations: Any, envs: Sequence[Any], slots: Sequence[int]) -> Any:
        """Choose an action for each environment of `slots`, in their order."""
        options: dict[str, Any] = {"deterministic": self._deterministic}
        if self._masked:
            masks = [envs[slot].get_wrapper_attr(ACTION_MASKS)() for slot in slots]
            options["action_masks"] = np.stack(masks)
        if self._recurrent:
            options["state"] = self._states(slots)
            options["episode_start"] = np.array([slot not in self._memory for slot in slots])
        actions, states = self._model.predict(observations, **options)
        if self._recurrent:
            for row, slot in enumerate(slots):
                self._memory[slot] = [state[:, row] for state in states]
        return actions

    def normalised(self, observations: Any) -> Any:
        """Normalise observations by the statistics of the training."""
        normaliser = self._model.get_vec_normalize_env()
        # Reads the statistics only; `step` of a `VecNormalize` would update them.
        return observations if normaliser is None else normaliser.normalize_obs(observations)

    def forget(self, slot: int) -> None:
        """Begin an episode in an environment."""
        self._memory.pop(slot, None)

    def _states(self, slots: Sequence[int]) -> tuple[Any, ...] | None:
        """Put the memory of environments side by side: (layers, environments, units).

        At the start of an episode the policy takes zeros, whatever stands there.
        """
        example = next(iter(self._memory.values()), None)
        if example is None:
            return None
        fresh = [np.zeros_like(state) for state in example]
        of_slots = [self._memory.get(slot, fresh) for slot in slots]
        return tuple(np.stack(states, axis=1) for states in zip(*of_slots, strict=True))


def _result(
    env: gym.Env[object, object], info: Mapping[str, Any], values: dict[str, float]
) -> tuple[float, int, dict[str, float], tuple[float, ...]]:
    """Return return, length, infos and components of the episode that just ended.

    The return is what the monitor summed, before its rounding, or has seen so far of an episode
    that a wrapper cuts. `values` of `info` gain success, where that is said.
    """
    success = info.get("is_success", info.get("success"))
    if success is not None:
        values["success_rate"] = float(success)
    rewards_of_episodes = env.get_wrapper_attr("get_episode_rewards")
    if "episode" in info:
        # `info["episode"]["r"]` is rounded to 6 digits by SB3's monitor.
        returned = float(rewards_of_episodes()[-1])
        length = int(info["episode"]["l"])
    else:
        rewards = rewards_of_episodes.__self__.rewards  # the monitor's, of the running episode
        returned = float(sum(rewards))
        length = len(rewards)
    of_components: tuple[float, ...] = ()
    if env.has_wrapper_attr(_COMPONENTS):
        of_components = tuple(map(float, env.get_wrapper_attr(_COMPONENTS)))
    return returned, length, values, of_components
