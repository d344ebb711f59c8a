"""Writes a configuration as a Stable-Baselines3 constructor.

The result looks like `PPO("MlpPolicy", env, ...)`.

The code it gives may name `torch` and `math`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autorl.plain_values import plain
from autorl.population.engine import find_algorithm
from autorl.population.hyperparameters import record
from autorl.population.sb3_arguments import Schedule, sb3_arguments
from autorl.trainers import load
from autorl.trainers.sb3.algorithms import CALLABLES, constructor_names, policy_names
from autorl.trainers.sb3.settings import activation, layers
from autorl.types import InputError, TrainerSpec

_SHAPES = {"linear": "{done}", "cosine": "0.5 * (1 - math.cos(math.pi * {done}))"}


def constructor_arguments(
    trainer: str,
    config: Mapping[str, object],
    horizon: int,
    environment: Mapping[str, object],
    share: float = 1.0,
) -> str:
    """Write `learning_rate=0.0003, policy_kwargs=dict(net_arch=[64, 64])`.

    What is no argument follows as a comment.

    Args:
        trainer: `sb3/<algorithm>` or `population/<algorithm>`; of the engine every hyperparameter
            is given, since its defaults are not always those of Stable-Baselines3.
        config: hyperparameters by name.
        horizon: steps of a full run.
        environment: id and arguments, without what is at its default.
        share: of the horizon that is trained: as far as that the schedules go.

    Raises:
        InputError: Stable-Baselines3 is not installed: the names of its constructors are read from
            it.
    """
    algorithm = trainer.partition("/")[2]
    of_engine = trainer.startswith("population/")
    parts, n_envs, notes = (_of_engine if of_engine else _of_sb3)(
        algorithm, config, horizon, environment, share
    )
    comments = [*_environment(n_envs, environment), *notes]
    return ", ".join(parts) + (f"  # {'; '.join(comments)}" if comments else "")


def _of_engine(
    algorithm: str,
    config: Mapping[str, object],
    horizon: int,
    environment: Mapping[str, object],
    share: float,
) -> tuple[list[str], int, list[str]]:
    """Write the arguments of an algorithm of the population engine.

    Returns them, the environments side by side, and notes.
    """
    settings = find_algorithm(algorithm).settings
    values = {"n_envs": environment.get("n_envs", 1), **config}
    arguments = sb3_arguments(settings, record(settings, values, horizon))
    parts = [f"{name}={_code(value, share)}" for name, value in arguments.constructor.items()]
    kind, options = arguments.optimizer
    of_optimizer = ", ".join(f"{name}={value!r}" for name, value in options.items())
    policy = [
        f"net_arch={arguments.net_arch!r}",
        f"activation_fn=torch.nn.{ {'tanh': 'Tanh', 'relu': 'ReLU'}[arguments.activation] }",
        f"optimizer_class=torch.optim.{kind}",
        f"optimizer_kwargs=dict({of_optimizer})",
    ]
    return (
        [*parts, f"policy_kwargs=dict({', '.join(policy)})"],
        arguments.n_envs,
        list(arguments.notes),
    )


def _of_sb3(
    algorithm: str,
    config: Mapping[str, Any],
    horizon: int,
    environment: Mapping[str, Any],
    share: float,
) -> tuple[list[str], int, list[str]]:
    """Write the arguments of a trainer with Stable-Baselines3's names.

    Its defaults are Stable-Baselines3's too.
    """
    try:
        load(TrainerSpec(f"sb3/{algorithm}"))
    except InputError as error:
        raise InputError(
            f"the names of its constructor are unknown: {error.message}", key="--format kwargs"
        ) from None
    of_constructor = constructor_names(algorithm)
    of_policy = policy_names(algorithm)
    parts = []
    policy = []
    without_place = []
    for name, value in config.items():
        base = name.removesuffix(".shape").removesuffix(".end")
        if config.get(f"{base}.shape", "constant") != "constant" and base not in CALLABLES:
            without_place.append(f"{name}={plain(value)!r}")
        elif base != name or name == "n_envs":
            continue
        elif name in ("activation", "activation_fn"):
            policy.append(f"activation_fn=torch.nn.{activation(value).__name__}")
        elif name in of_policy:
            shown = layers(value) if name == "net_arch" else plain(value)
            policy.append(f"{name}={shown!r}")
        elif name in of_constructor:
            parts.append(f"{name}={_value(name, config, share)}")
        else:
            without_place.append(f"{name}={plain(value)!r}")
    if policy:
        parts.append(f"policy_kwargs=dict({', '.join(policy)})")
    notes = (
        [f"not arguments of the constructor: {', '.join(without_place)}"] if without_place else []
    )
    return parts, int(config.get("n_envs", environment.get("n_envs", 1))), notes


def _environment(n_envs: int, environment: Mapping[str, object]) -> list[str]:
    """Write how the environment was vectorised, as code.

    What else was done to it is added.
    """
    notes = []
    if n_envs != 1:
        name = repr(environment["id"]) if environment.get("id") else "env"
        notes.append(f"env: make_vec_env({name}, n_envs={n_envs})")
    changed = [name for name in ("kwargs", "wrappers", "normalize") if environment.get(name)]
    if changed:
        notes.append(f"of the environment, in --format yaml: {', '.join(changed)}")
    return notes


def _value(name: str, config: Mapping[str, Any], share: float) -> str:
    """Return the value, or for a schedule a function of the progress.

    It is a function of the progress remaining.
    """
    start = config[name]
    shape = config.get(f"{name}.shape", "constant")
    if shape == "constant":
        return _code(plain(start), share)
    return _code(Schedule(start, config[f"{name}.end"], shape), share)


def _code(value: object, share: float) -> str:
    """Write a value as Python."""
    if isinstance(value, Schedule):
        start = value.start
        end = value.end
        done = "(1 - left)" if share == 1 else f"{share!r} * (1 - left)"
        shape = _SHAPES[value.shape].format(done=done)
        return f"lambda left: {start!r} + ({end!r} - {start!r}) * {shape}"
    return "math.inf" if value == math.inf else repr(value)
