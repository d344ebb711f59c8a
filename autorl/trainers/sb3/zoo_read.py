"""Reads presets in the YAML format of RL Baselines3 Zoo (`hyperparams/ppo.yml`).

A file has an entry for each environment. Beside arguments of Stable-Baselines3's constructor it has
`n_timesteps`, `n_envs`, `normalize`, `env_wrapper`, schedules such as `lin_0.001` (to 0), noise,
and `policy_kwargs` as Python code. That code is read as data here: nothing in it runs.

Reference: Raffin (2020), RL Baselines3 Zoo, https://github.com/DLR-RM/rl-baselines3-zoo.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorl.core.plain_text import did_you_mean, one_of, shown
from autorl.core.types import InputError
from autorl.space import Document, read_document
from autorl.trainers.info import Preset
from autorl.trainers.sb3.algorithms import CALLABLES
from autorl.trainers.sb3.suites import FRAME_STACK

# Names that code in such a file may use; the zoo's own modules import them.
_NAMES: Mapping[str, str] = {
    "RMSpropTFLike": "stable_baselines3.common.sb2_compat.rmsprop_tf_like:RMSpropTFLike",
    "nn": "torch.nn",
    "th": "torch",
    "torch": "torch",
}
_WITHOUT_PLACE: Mapping[str, str] = {
    "vec_env_wrapper": "wrap single environments by environment.wrappers",
    "callback": "name callbacks in trainer.kwargs.callbacks",
    "monitor_kwargs": "give a wrapper of environment.wrappers these arguments",
    "replay_buffer_class": "name it in trainer.kwargs, as stable_baselines3:HerReplayBuffer",
    "replay_buffer_kwargs": "name them in trainer.kwargs",
}
_CODE = ("policy_kwargs", "normalize", "env_kwargs")
_LINEAR = "lin_"


def read_preset(file: str | Path, environment: str | None, entry: str | None = None) -> Preset:
    """Read the entry of an environment.

    Args:
        file: YAML.
        environment: the study's, whose entry is read; of an Atari game without one that is `atari`.
        entry: the name of the entry, where it is another.

    Raises:
        InputError: naming the file, the key and its line.
    """
    document = read_document(file)
    if not isinstance(document.data, Mapping):
        raise document.error("expected a mapping of environments, as in hyperparams/ppo.yml")
    name = _entry_name(document, environment, entry)
    content = document.data[name]
    if not isinstance(content, Mapping):
        raise document.error(f"expected a mapping, got {shown(content)}", name)
    try:
        return _read_entry(name, content)
    except InputError as error:
        raise document.located(error, name) from None


def _entry_name(document: Document, environment: str | None, entry: str | None) -> str:
    """Choose an entry as the zoo does, but never its `default` unasked."""
    names = [str(name) for name in document.data]
    if entry is not None:
        if entry not in names:
            hint = one_of(entry, names, "entries")
            raise document.error(f"has no entry {shown(entry)}{hint}")
        return entry
    # The module that registers it is no part of a name there.
    asked = (environment or "").rpartition(":")[2]
    if asked in names:
        return asked
    if "atari" in names and ("NoFrameskip" in asked or asked.startswith("ALE/")):
        return "atari"
    hint = did_you_mean(asked, names, "name one as `entry`")
    raise document.error(f"has no entry for the environment {shown(asked)}{hint}")


def _read_entry(name: str, content: Mapping[Any, Any]) -> Preset:
    values: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    policy: str | None = None
    steps: int | None = None
    for key, written in content.items():
        value = _from_code(written, str(key)) if key in _CODE else written
        match key:
            case "n_timesteps":
                steps = _whole(value, key)
            case "policy":
                policy = _class_name(value) if "." in str(value) else str(value)
            case "n_envs":
                environment["n_envs"] = _whole(value, key)
            case "normalize":
                environment["normalize"] = value
            case "env_kwargs":
                environment["kwargs"] = _mapping(value, key)
            case "env_wrapper" | "frame_stack":
                environment["wrappers"] = _all_wrappers(content)
            case "policy_kwargs":
                values |= _policy_values(_mapping(value, key))
            case _ if key in _WITHOUT_PLACE:
                raise InputError(f"has no counterpart here: {_WITHOUT_PLACE[key]}", key=str(key))
            case _ if key in CALLABLES:
                values |= _schedule(str(key), value)
            case _:
                values[str(key)] = value
    return Preset(name, steps, values, policy, environment)


def _schedule(key: str, value: object) -> dict[str, Any]:
    """Read a number, or `lin_0.001`: linear from there to 0."""
    if not isinstance(value, str):
        return {key: value}
    try:
        if not value.startswith(_LINEAR):
            raise ValueError(value)
        start = float(value.removeprefix(_LINEAR))
    except ValueError:
        raise InputError(
            f"expected a number or a schedule such as lin_0.001, got {shown(value)}", key=key
        ) from None
    return {key: start, f"{key}.shape": "linear", f"{key}.end": 0.0}


def _policy_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Name arguments of a policy as hyperparameters are named."""
    values = dict(arguments)
    activation = values.pop("activation_fn", None)
    if activation is not None:
        module, _, kind = str(activation).partition(":")
        # Activations of torch go by their lower-case name in the shipped spaces.
        values["activation"] = kind.lower() if module == "torch.nn" else activation
    return values


def _all_wrappers(content: Mapping[Any, Any]) -> list[Any]:
    """Read `env_wrapper`, and `frame_stack` after it.

    The Zoo stacks what its wrappers give, wherever the keys stand.
    """
    wrappers = _wrappers(content.get("env_wrapper"))
    if content.get("frame_stack") is not None:
        number = _whole(content["frame_stack"], "frame_stack")
        wrappers.append({FRAME_STACK: {"n_stack": number}})
    return wrappers


def _wrappers(value: object) -> list[Any]:
    """Read `module.Class`, `{module.Class: {argument: value}}`, or a list of those."""
    if value is None:
        return []
    wrappers: list[Any] = []
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, Mapping) and len(entry) == 1:
            [(name, arguments)] = entry.items()
            wrappers.append({_class_name(name): arguments or {}})
        elif isinstance(entry, str):
            wrappers.append(_class_name(entry))
        else:
            raise InputError(
                "expected module.Class or {module.Class: {argument: value}}, "
                f"got {shown(entry)}",
                key="env_wrapper",
            )
    return wrappers


def _class_name(dotted: object) -> str:
    """Write `a.b.Class` as `a.b:Class`."""
    module, _, name = str(dotted).rpartition(".")
    return f"{module}:{name}" if module else name


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"expected a mapping, got {shown(value)}", key=key)
    return value


def _whole(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InputError(f"expected a whole number, got {shown(value)}", key=key)
    return int(value)


def _from_code(value: object, key: str) -> Any:
    """Read Python code such as `dict(net_arch=[64, 64], activation_fn=nn.ReLU)` as data.

    A value that is not text is data already.
    """
    if not isinstance(value, str):
        return value
    try:
        return _literal(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(
            f"expected a mapping, or code such as dict(net_arch=[64, 64]), got {shown(value)} "
            f"({error})",
            key=key,
        ) from None


def _literal(node: ast.expr) -> Any:
    """Evaluate a literal, `dict(...)`, or the name of a class.

    Raises:
        ValueError: it is anything else.
    """
    match node:
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            if any(keyword.arg is None for keyword in keywords):
                raise ValueError("** is not read")
            return {str(keyword.arg): _literal(keyword.value) for keyword in keywords}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_literal(key): _literal(item) for key, item in pairs if key is not None}
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Attribute(value=owner, attr=name):
            module = _literal(owner)
            if not isinstance(module, str) or not module.startswith("torch") or ":" in module:
                raise ValueError(f"{ast.unparse(node)} is not read")
            # Classes begin with a capital, modules do not.
            return f"{module}:{name}" if name[:1].isupper() else f"{module}.{name}"
    return ast.literal_eval(node)
