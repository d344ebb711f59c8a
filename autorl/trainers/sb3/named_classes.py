"""Classes that a study file names as `module:Class`.

They are features extractors, policies, optimizers, activations, callbacks and wrappers of the
user's, or of any installed package.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import did_you_mean, shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.trainers.shared import module_path

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


def is_name(value: object) -> bool:
    """Tell whether a value names a class as `module:Class`."""
    return isinstance(value, str) and ":" in value


def named_class(
    target: str, key: str, *, base: str = "", example: str = "", folders: Sequence[str] = ()
) -> Any:
    """Import the class that `module:Class` names.

    Args:
        target: its name.
        key: of the study file, for errors.
        base: the class it has to subclass, as `module:Class`; empty: any.
        example: of a name, for errors.
        folders: where modules are looked for first; none: in the working folder.

    Raises:
        InputError: it is no such name, cannot be imported, or is no such class.
    """
    module, _, name = target.partition(":")
    if not (module and name):
        such_as = f", such as {example}" if example else ""
        raise InputError(f"expected module:Class{such_as}, got {shown(target)}", key=key)
    try:
        with module_path(*folders):
            imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"module of {target!r} cannot be imported: {error}", key=key) from error
    except Exception as error:
        message = f"{target!r} cannot be imported: {type(error).__name__}: {error}"
        raise InputError(message, key=key) from error
    if not hasattr(imported, name):
        raise InputError(f"{module!r} has no {name!r}{did_you_mean(name, vars(imported))}", key=key)
    named = getattr(imported, name)
    if base:
        of_base, _, base_name = base.partition(":")
        expected = getattr(importlib.import_module(of_base), base_name)
        if not (isinstance(named, type) and issubclass(named, expected)):
            raise InputError(f"{target!r} is no subclass of {of_base}.{base_name}", key=key)
    return named


def policy_class(name: str, value: object, folders: Sequence[str] = ()) -> Any:
    """Import the class of a policy's argument, one of `POLICY_CLASSES`."""
    base, example = POLICY_CLASSES[name]
    key = f"trainer.kwargs.policy_kwargs.{name}"
    if not isinstance(value, str):
        raise InputError(f"expected module:Class, such as {example}, got {shown(value)}", key=key)
    return named_class(value, key, base=base, example=example, folders=folders)


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
