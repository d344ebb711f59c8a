"""Writes a configuration as a Stable-Baselines3 constructor.

The result looks like `PPO("MlpPolicy", env, ...)`.

The code it gives may name `torch` and `math`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autorl.core.plain_values import plain
from autorl.population.engine import find_algorithm
from autorl.population.hyperparameters import record
from autorl.population.sb3_arguments import SB3Arguments, Schedule, sb3_arguments
from autorl.trainers.info import TrainedRun
from autorl.trainers.sb3.algorithms import CALLABLES, constructor_names, policy_names
from autorl.trainers.sb3.named_classes import POLICY_CLASSES, is_name
from autorl.trainers.sb3.settings import activation, layers

_SHAPES = {"linear": "{done}", "cosine": "0.5 * (1 - math.cos(math.pi * {done}))"}


def constructor_arguments(run: TrainedRun) -> str:
    """Write `learning_rate=0.0003, policy_kwargs=dict(net_arch=[64, 64])`.

    A value that is not an argument follows as a comment. For `sb3/<algorithm>` the names of the
    constructor are read from Stable-Baselines3, which must be installed; for
    `population/<algorithm>` every hyperparameter is given, since its defaults are not always those
    of Stable-Baselines3.
    """
    family, _, algorithm = run.trainer.name.partition("/")
    write = _of_engine if family == "population" else _of_sb3
    parts, n_envs, notes = write(algorithm, run)
    comments = [*_environment(n_envs, run.environment), *notes]
    return ", ".join(parts) + (f"  # {'; '.join(comments)}" if comments else "")


def _of_engine(algorithm: str, run: TrainedRun) -> tuple[list[str], int, list[str]]:
    """Write the arguments of an algorithm of the population engine.

    Returns them, the environments side by side, and notes.
    """
    arguments, policy = engine_arguments(algorithm, run, "torch")
    parts = [f"{name}={_code(value, run)}" for name, value in arguments.constructor.items()]
    notes = list(arguments.notes)
    if arguments.noise:
        noise = ", ".join(f"{name}={value!r}" for name, value in arguments.noise.items())
        notes.append(f"not arguments of the constructor: {noise}")
    return [*parts, f"policy_kwargs={policy}"], arguments.n_envs, notes


def engine_arguments(algorithm: str, run: TrainedRun, torch: str) -> tuple[SB3Arguments, str]:
    """Return the arguments of a run of the population engine, defaults included.

    With them come those of the policy, as code that calls torch by the name `torch`.
    """
    of_engine = find_algorithm(algorithm)
    values = {"n_envs": run.environment.get("n_envs", 1), **run.config}
    arguments = sb3_arguments(of_engine, record(of_engine.settings, values, run.horizon))
    kind, options = arguments.optimizer
    of_optimizer = ", ".join(f"{name}={value!r}" for name, value in options.items())
    policy = [
        f"net_arch={arguments.net_arch!r}",
        f"activation_fn={torch}.nn.{activation(arguments.activation).__name__}",
        f"optimizer_class={torch}.optim.{kind}",
        f"optimizer_kwargs=dict({of_optimizer})",
        *(f"{name}={value!r}" for name, value in arguments.policy.items()),
    ]
    return arguments, f"dict({', '.join(policy)})"


def _of_sb3(algorithm: str, run: TrainedRun) -> tuple[list[str], int, list[str]]:
    """Write the arguments of a trainer with Stable-Baselines3's names.

    Its defaults are Stable-Baselines3's too.
    """
    config = run.config
    of_constructor = constructor_names(algorithm)
    of_policy = policy_names(algorithm)
    parts = []
    policy = []
    without_place = []
    modules: list[str] = []
    for name, value in config.items():
        base = name.removesuffix(".shape").removesuffix(".end")
        # Only learning rates and clip ranges may be functions; the parts of other schedules are no
        # arguments.
        if config.get(f"{base}.shape", "constant") != "constant" and base not in CALLABLES:
            without_place.append(f"{name}={plain(value)!r}")
        elif base != name or name == "n_envs":
            continue
        elif name in ("activation", *POLICY_CLASSES):
            argument = "activation_fn" if name == "activation" else name
            policy.append(f"{argument}={_class_code(value)}")
            modules += [str(value).partition(":")[0]] if is_name(value) else []
        elif name in of_policy:
            shown = layers(value) if name == "net_arch" else plain(value)
            policy.append(f"{name}={shown!r}")
        elif name in of_constructor:
            parts.append(f"{name}={_value(name, run)}")
        else:
            without_place.append(f"{name}={plain(value)!r}")
    if policy:
        parts.append(f"policy_kwargs=dict({', '.join(policy)})")
    notes = (
        [f"not arguments of the constructor: {', '.join(without_place)}"] if without_place else []
    )
    if modules:
        notes.append(f"import {', '.join(dict.fromkeys(modules))}")
    return parts, int(config.get("n_envs", run.environment.get("n_envs", 1))), notes


def _class_code(value: object) -> str:
    """Write the class that `module:Class` or the name of an activation means."""
    if is_name(value):
        return str(value).replace(":", ".")
    return f"torch.nn.{activation(str(value)).__name__}"


def _environment(n_envs: int, environment: Mapping[str, object]) -> list[str]:
    """Write how the environment was vectorised, as code.

    Other wrappers are added.
    """
    notes = []
    if n_envs != 1:
        name = repr(environment["id"]) if environment.get("id") else "env"
        notes.append(f"env: make_vec_env({name}, n_envs={n_envs})")
    changed = [name for name in ("kwargs", "wrappers", "normalize") if environment.get(name)]
    if changed:
        notes.append(f"of the environment, in --format yaml: {', '.join(changed)}")
    return notes


def _value(name: str, run: TrainedRun) -> str:
    """Write a hyperparameter, or its schedule by the progress remaining."""
    start = run.config[name]
    shape = run.config.get(f"{name}.shape", "constant")
    if shape == "constant":
        return _code(plain(start), run)
    return _code(Schedule(start, run.config[f"{name}.end"], shape), run)


def _code(value: object, run: TrainedRun) -> str:
    """Write a value as Python."""
    if isinstance(value, Schedule):
        start = value.start
        end = value.end
        share = run.end / run.horizon
        # The progress of Stable-Baselines3 ends where training does, a schedule at the horizon.
        done = "(1 - left)" if share == 1 else f"{share!r} * (1 - left)"
        shape = _SHAPES[value.shape].format(done=done)
        return f"lambda left: {start!r} + ({end!r} - {start!r}) * {shape}"
    return "math.inf" if value == math.inf else repr(value)
