"""Builds models of Stable-Baselines3.

One is built before a study, so that failures come early.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from autorl.core.plain_text import printable, shortened
from autorl.core.types import EnvironmentSpec, InputError
from autorl.trainers import _streams as streams
from autorl.trainers.sb3.environments import SpacesOnly, normaliser
from autorl.trainers.sb3.named_classes import make_callbacks
from autorl.trainers.sb3.settings import Settings

_LONGEST = 300  # characters of a library's message


def check_model(
    settings: Settings,
    spaces: tuple[gym.Space[object], gym.Space[object]],
    environment: EnvironmentSpec,
    n_envs: int,
) -> Any:
    """Return the model of a configuration that has acted once.

    Environments that cannot be stepped stand in for the task, and a replay buffer is cut to one row
    an environment.

    Args:
        settings: of the configuration.
        spaces: of observations and actions.
        environment: of the study, whose normaliser is put around.
        n_envs: environments side by side.

    Raises:
        InputError: a class cannot be imported, or Stable-Baselines3 or a class of the user's
            refuses an argument; the key is that of the argument where the error names one.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv

    with streams.preserved(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            make_callbacks(settings.options.get("callbacks"), settings.folders)
            venv: Any = DummyVecEnv([lambda: SpacesOnly(*spaces)] * n_envs)
            options = normaliser(environment, float(settings.at(0, 1).get("gamma", 0.99)))
            # A million images would take the driver's memory.
            changes = {} if settings.of.on_policy else {"buffer_size": n_envs}
            # The GPU is for the segments.
            model = build_model(settings, venv, options, device="cpu", **changes)
            # A features extractor whose `features_dim` is wrong can be built, but cannot act.
            model.predict(model.env.observation_space.sample(), deterministic=True)
        # Their own errors name their key.
        except InputError:
            raise
        except Exception as error:
            raise _located(error, settings) from error
    return model


def build_model(
    settings: Settings, venv: Any, normalisation: Mapping[str, Any] | None, **changes: object
) -> Any:
    """Build the model of a configuration.

    Args:
        settings: of the configuration.
        venv: its environments.
        normalisation: arguments of `VecNormalize`, None without one.
        changes: of the arguments of the constructor.
    """
    from stable_baselines3.common.vec_env import VecNormalize

    arguments = settings.constructor(venv.observation_space, venv.action_space) | changes
    if normalisation is not None:
        venv = VecNormalize(venv, **normalisation)
    return settings.of.load_class()(env=venv, **arguments)


def _located(error: Exception, settings: Settings) -> InputError:
    """Make an input error, with the key of the first argument named."""
    text = shortened(printable(str(error), keep_lines=False).strip(), _LONGEST)
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    message = f"sb3/{settings.algorithm} cannot be built with it: {kind}{text}"
    of_policy = settings.options.get("policy_kwargs") or {}
    for word in re.findall(r"[A-Za-z_]\w*", text):
        if word in of_policy:
            return InputError(message, key=f"trainer.kwargs.policy_kwargs.{word}")
        if word in settings.values:
            place = "trainer.kwargs" if word in settings.fixed else "space"
            return InputError(message, key=f"{place}.{word}")
    return InputError(message, key="trainer.kwargs.policy_kwargs" if of_policy else "trainer")
