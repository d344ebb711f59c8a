"""Variants of Gymnasium's own environments, with the parameters of the engine's.

    make("CartPole-v1", gravity=5, observation_noise=0.1)
    gymnasium.make("autorl.population.gymnasium_variants:autorl/CartPole-v1", gravity=5)

Noise is drawn from the environment's own generator: a seed decides it, and what saves the
environment saves it. `variants.PARAMETERS` lists the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from autorl.population.variants import PARAMETERS, split, variant

NAMESPACE = "autorl"


def make(id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Make an environment as `gymnasium.make` does, perhaps a variant.

    Raises:
        InputError: the value of a parameter is not allowed.
    """
    changed, arguments = split(id, kwargs)
    parameters = {}
    if changed:
        parameters = dict(variant(id, changed).parameters)
    env = gymnasium.make(id, **arguments)
    if not parameters:
        return env
    _set_attributes(env.unwrapped, id, parameters)
    disturbances = {
        name: value for name, value in parameters.items() if PARAMETERS[id][name].attribute == ""
    }
    return Disturbed(env, disturbances) if disturbances else env


class Disturbed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Scales rewards, and adds noise to observations and actions.

    Args:
        disturbances: `reward_scale`, `observation_noise` (standard deviation), and
            `action_noise` (standard deviation) or `random_action_probability`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], disturbances: Mapping[str, float]) -> None:
        super().__init__(env)
        self.reward_scale = disturbances.get("reward_scale", 1.0)
        self.observation_deviation = disturbances.get("observation_noise", 0.0)
        self.action_deviation = disturbances.get("action_noise", 0.0)
        self.random_action_probability = disturbances.get("random_action_probability", 0.0)
        if self.observation_deviation:
            space: Any = env.observation_space
            # Noise knows no bounds.
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, space.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._observed(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step, perhaps with another action."""
        observation, reward, terminated, truncated, info = self.env.step(self._applied(action))
        scaled = float(reward) * self.reward_scale
        return self._observed(observation), scaled, terminated, truncated, info

    def _observed(self, observation: Any) -> Any:
        if not self.observation_deviation:
            return observation
        noise = self.observation_deviation * self.np_random.standard_normal(observation.shape)
        return (observation + noise).astype(observation.dtype)

    def _applied(self, action: Any) -> Any:
        space: Any = self.action_space
        if self.random_action_probability:
            if self.np_random.random() < self.random_action_probability:
                return self.np_random.integers(space.n)
        elif self.action_deviation:
            noise = self.action_deviation * self.np_random.standard_normal(space.shape)
            return np.clip(action + noise, space.low, space.high).astype(space.dtype)
        return action


def _set_attributes(inner: Any, id: str, parameters: Mapping[str, float]) -> None:
    """Set what a variant changes, and what Gymnasium has computed of it."""
    for name, value in parameters.items():
        attribute = PARAMETERS[id][name].attribute
        if attribute == "":
            continue
        if attribute == "AVAIL_TORQUE":
            inner.AVAIL_TORQUE = [-value, 0.0, value]
        else:
            setattr(inner, attribute or name, value)
    if id == "CartPole-v1":
        inner.total_mass = inner.masspole + inner.masscart
        inner.polemass_length = inner.masspole * inner.length
    elif id == "Pendulum-v1":
        top = np.array([inner.max_torque], np.float32)
        inner.action_space = gymnasium.spaces.Box(-top, top)
        fastest = np.array([1.0, 1.0, inner.max_speed], np.float32)
        inner.observation_space = gymnasium.spaces.Box(-fastest, fastest)


for _id, _parameters in PARAMETERS.items():
    gymnasium.register(
        f"{NAMESPACE}/{_id}",
        # The limit is that of the registered one: of two the lower would count.
        partial(make, _id, max_episode_steps=-1),
        max_episode_steps=int(_parameters["max_episode_steps"].default),
        # Gymnasium's own wrappers check and order the environment inside.
        disable_env_checker=True,
        order_enforce=False,
    )
