"""Classes that a study file names as `module:Class`.

They are features extractors, policies, optimizers, activations, callbacks and wrappers of the
user's, or of any installed package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import one_of, shown
from autorl.core.plain_values import plain
from autorl.core.plugins import named_class
from autorl.core.types import InputError

if TYPE_CHECKING:
    from stable_baselines3.common.callbacks import BaseCallback


POLICY_CLASSES: Mapping[str, tuple[str, str]] = {
    "features_extractor_class": (
        "stable_baselines3.common.torch_layers:BaseFeaturesExtractor",
        "stable_baselines3.common.torch_layers:NatureCNN",
    ),
    "optimizer_class": ("torch.optim:Optimizer", "torch.optim:AdamW"),
    "activation_fn": ("torch.nn:Module", "torch.nn:Softsign"),
}
"""Arguments of policies that are classes: what they subclass, and an example."""
_ACTIVATIONS = (
    *("tanh", "relu", "elu", "selu", "gelu", "silu", "mish"),
    *("leaky_relu", "softplus", "sigmoid"),
)


def is_name(value: object) -> bool:
    """Tell whether a value names a class as `module:Class`."""
    return isinstance(value, str) and ":" in value


def policy_class(name: str, value: object, folders: Sequence[str] = ()) -> Any:
    """Import the class of a policy's argument, one of `POLICY_CLASSES`.

    An activation of torch may go by its lower-case name.
    """
    base, example = POLICY_CLASSES[name]
    key = f"trainer.kwargs.policy_kwargs.{name}"
    if not isinstance(value, str):
        raise InputError(f"expected module:Class, such as {example}, got {shown(value)}", key=key)
    if name == "activation_fn" and not is_name(value):
        return activation(value)
    return named_class(value, key, base=base, example=example, folders=folders)


def activation(name: str) -> Any:
    """Return the torch module of an activation's lower-case name."""
    from torch import nn

    if name.lower() not in _ACTIVATIONS:
        hint = one_of(name, [*_ACTIVATIONS, "module:Class"])
        raise InputError(f"unknown activation {name!r}{hint}", key="activation")
    # `LeakyReLU` and `ReLU` have capitals that no rule gives back.
    by_lower = {attribute.lower(): attribute for attribute in vars(nn)}
    return getattr(nn, by_lower[name.lower().replace("_", "")])


def replay_class(value: object, folders: Sequence[str] = ()) -> Any:
    """Import the class of a replay memory, such as `stable_baselines3:HerReplayBuffer`."""
    base = "stable_baselines3.common.buffers:ReplayBuffer"
    example = "stable_baselines3:HerReplayBuffer"
    key = "trainer.kwargs.replay_buffer_class"
    return named_class(str(value), key, base=base, example=example, folders=folders)


def with_arguments(entries: object, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Read a list of `module:Class` and `{module:Class: {argument: value}}`.

    A single one may stand without a list.

    Returns:
        Names with their arguments.

    Raises:
        InputError: an entry is neither.
    """
    listed = entries if isinstance(entries, list | tuple) else [entries]
    named: list[tuple[str, dict[str, Any]]] = []
    for position, entry in enumerate(listed):
        pairs = entry if isinstance(entry, Mapping) else {entry: {}}
        for target, arguments in pairs.items():
            if not isinstance(target, str) or not isinstance(arguments or {}, Mapping):
                raise InputError(
                    "expected module:Class or {module:Class: {argument: value}}, "
                    f"got {shown(plain(entry))}",
                    key=f"{key}[{position}]",
                )
            named.append((target, plain(arguments or {})))
    return named


_KEY = "trainer.kwargs.callbacks"
_BASE = "stable_baselines3.common.callbacks:BaseCallback"
_EXAMPLE = "my_module:MyCallback"


def make_callbacks(entries: object, folders: Sequence[str]) -> list[BaseCallback]:
    """Build the callbacks that the option `callbacks` names.

    Args:
        entries: `module:Class` or `{module:Class: {argument: value}}`, or a list of those.
        folders: where their modules are.

    Raises:
        InputError: one cannot be imported, is no callback, or does not take its arguments.
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
