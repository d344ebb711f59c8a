"""Callbacks of the user's in a run of Stable-Baselines3.

They see each step as in `learn`: `on_training_start`, `on_rollout_start`, `on_step`,
`on_rollout_end`, `on_training_end`. A segment builds them anew, so one that changes the training
does so as a function of `num_timesteps`, or a run that is cut differs from the uncut one; their
count of calls (`n_calls`) goes on where the segment starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError
from autorl.trainers.sb3.named_classes import named_class, with_arguments

if TYPE_CHECKING:
    from stable_baselines3.common.callbacks import BaseCallback

_KEY = "trainer.kwargs.callbacks"
_BASE = "stable_baselines3.common.callbacks:BaseCallback"
_EXAMPLE = "my_module:MyCallback"


def make_callbacks(entries: object, folders: Sequence[str]) -> list[BaseCallback]:
    """Build the callbacks that the option `callbacks` names.

    Args:
        entries: `module:Class` or `{module:Class: {argument: value}}`, or a list of those.
        folders: where their modules are.

    Raises:
        InputError: a class cannot be imported, is no callback, or refuses its arguments.
    """
    if not entries:
        return []
    built: list[BaseCallback] = []
    for position, (target, arguments) in enumerate(with_arguments(entries, _KEY)):
        key = f"{_KEY}[{position}]"
        kind = named_class(target, key, base=_BASE, example=_EXAMPLE, folders=folders)
        try:
            built.append(kind(**arguments))
        except (TypeError, ValueError) as error:
            message = f"{target!r} does not take these arguments: {error}"
            raise InputError(message, key=key) from error
    return built


def start_callbacks(callback: BaseCallback, model: Any) -> None:
    """Do what `learn` does before its first rollout.

    Args:
        callback: what `_setup_learn` made of all of them.
        model: at the step where the segment starts.
    """
    # `EveryNTimesteps` and `CheckpointCallback` act at multiples of it.
    for part in (callback, *_parts(callback)):
        part.n_calls = model.num_timesteps // model.n_envs
    callback.on_training_start({"self": model, "total_timesteps": model._total_timesteps}, {})


def check_continues(continued: bool, model: Any) -> None:
    """Raise `RuntimeError` where a callback has ended the training."""
    if not continued:
        raise RuntimeError(
            f"a callback ended the training at step {model.num_timesteps} (its `_on_step` returned "
            "False): a run is as long as its study says; an optimizer with `stop: median` cuts it"
        )


def _parts(callback: Any) -> list[Any]:
    """List the callbacks inside one, at any depth."""
    inside = [*getattr(callback, "callbacks", ())]
    # An `EventCallback` has one inside.
    if getattr(callback, "callback", None) is not None:
        inside.append(callback.callback)
    return [part for child in inside for part in (child, *_parts(child))]
