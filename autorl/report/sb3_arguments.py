"""A configuration as the arguments of a Stable-Baselines3 constructor, as in `PPO("MlpPolicy", env, ...)`.

The code it gives may name `torch` and `math`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorl.report.reading import plain
from autorl.trainers import load
from autorl.types import InputError, TrainerSpec

_CALLABLE = ("learning_rate", "clip_range", "clip_range_vf")  # SB3 takes these as functions of the progress remaining


def constructor_arguments(trainer: str, config: Mapping[str, Any], share: float = 1.0) -> str:
    """`learning_rate=0.0003, policy_kwargs=dict(net_arch=[64, 64])`; what is no argument follows as a comment.

    `share` of the horizon is trained: as far as that the schedules go.

    Raises:
        InputError: Stable-Baselines3 is not installed: its constructors' names are read from it.
    """
    algorithm = trainer.partition("/")[2]
    try:
        load(TrainerSpec(trainer))
    except InputError as error:
        raise InputError(f"the names of its constructor are unknown: {error.message}", key="--format kwargs") from None
    from autorl.trainers.sb3.algorithms import constructor_names, policy_names
    from autorl.trainers.sb3.settings import activation, layers

    known, of_policy = constructor_names(algorithm), policy_names(algorithm)
    parts, policy, rest = [], [], []
    for name, value in config.items():
        base = name.removesuffix(".shape").removesuffix(".end")
        if config.get(f"{base}.shape", "constant") != "constant" and base not in _CALLABLE:
            rest.append(f"{name}={plain(value)!r}")
        elif base != name:
            continue
        elif name in ("activation", "activation_fn"):
            policy.append(f"activation_fn=torch.nn.{activation(value).__name__}")
        elif name in of_policy:
            policy.append(f"{name}={(layers(value) if name == 'net_arch' else plain(value))!r}")
        elif name in known:
            parts.append(f"{name}={_value(name, config, share)}")
        else:
            rest.append(f"{name}={plain(value)!r}")
    if policy:
        parts.append(f"policy_kwargs=dict({', '.join(policy)})")
    comment = f"  # not arguments of the constructor: {', '.join(rest)}" if rest else ""
    return ", ".join(parts) + comment


def _value(name: str, config: Mapping[str, Any], share: float) -> str:
    """The value, or for a schedule a function of the progress remaining."""
    start, shape = config[name], config.get(f"{name}.shape", "constant")
    if shape == "constant":
        return repr(plain(start))
    done = "(1 - left)" if share == 1 else f"{share!r} * (1 - left)"
    fraction = f"0.5 * (1 - math.cos(math.pi * {done}))" if shape == "cosine" else done
    return f"lambda left: {start!r} + ({config[f'{name}.end']!r} - {start!r}) * {fraction}"
