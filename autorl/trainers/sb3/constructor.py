"""Writes a configuration as a Stable-Baselines3 constructor.

The result looks like `PPO("MlpPolicy", env, ...)`.

The code it gives may name `torch` and `math`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_values import plain
from autorl.population.engine import find_algorithm
from autorl.population.hyperparameters import record
from autorl.population.sb3_arguments import Schedule, sb3_arguments
from autorl.trainers.info import TrainedRun
from autorl.trainers.sb3.algorithms import ALGORITHMS, CALLABLES, constructor_names, policy_names
from autorl.trainers.sb3.named_classes import POLICY_CLASSES, activation, is_name
from autorl.trainers.sb3.settings import layers
from autorl.trainers.shared import base_name
from autorl.trainers.trained_task import beside_task, of_task

_SHAPES = {
    "linear": "{done}",
    "cosine": "0.5 * (1 - math.cos(math.pi * {done}))",
    "step": "({done} >= 0.5)",
    "warmup": "max(1 - {done} / 0.1, ({done} - 0.1) / 0.9)",
}


@dataclass(frozen=True)
class Split:
    """A configuration by where Stable-Baselines3 takes its values.

    Attributes:
        constructor: arguments of the algorithm, a `Schedule` where one follows it.
        policy: arguments of the policy, as code.
        further: what is neither.
        n_envs: environments side by side.
        notes: what else a reader needs.
    """

    constructor: dict[str, Any]
    policy: list[str]
    further: dict[str, Any]
    n_envs: int
    notes: list[str]


def split(run: TrainedRun, torch: str, class_code: Callable[[Any], str]) -> Split:
    """Split a configuration.

    For `sb3/<algorithm>` the names of the constructor are read from Stable-Baselines3, which must
    be installed; for `population/<algorithm>` every hyperparameter is given, since its defaults are
    not always those of Stable-Baselines3.

    Args:
        run: what was trained.
        torch: the name by which code calls the library.
        class_code: writes the name of a class or an activation as code.
    """
    family, _, algorithm = run.trainer.name.partition("/")
    n_envs = run.environment.get("n_envs", 1)
    if family == "population":
        return _of_engine(algorithm, run, torch, n_envs)
    of_library = ALGORITHMS[algorithm]
    places = Split({}, [], {}, int(run.config.get("n_envs", n_envs)), _task_notes(run))
    for name, value in run.config.items():
        if base_name(name) != name or name == "n_envs":
            continue
        shape = run.config.get(f"{name}.shape", "constant")
        if name in ("activation", *POLICY_CLASSES):
            argument = "activation_fn" if name == "activation" else name
            places.policy.append(f"{argument}={class_code(value)}")
        elif name in policy_names(of_library):
            written = layers(value) if name == "net_arch" else plain(value)
            places.policy.append(f"{name}={written!r}")
        # What a subclass takes beside them is known where it can be imported.
        elif name not in constructor_names(of_library) and not run.trainer.kwargs.get(
            "algorithm_class"
        ):
            places.further[name] = plain(value)
        elif shape == "constant":
            places.constructor[name] = plain(value)
        else:
            places.constructor[name] = Schedule(value, run.config[f"{name}.end"], shape)
    return places


def _of_engine(algorithm: str, run: TrainedRun, torch: str, n_envs: int) -> Split:
    of_engine = find_algorithm(algorithm)
    values = {"n_envs": n_envs, **beside_task(run.config)}
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
    notes = [*arguments.notes, *_task_notes(run)]
    return Split(
        dict(arguments.constructor), policy, dict(arguments.noise), arguments.n_envs, notes
    )


def _task_notes(run: TrainedRun) -> list[str]:
    """Say what the space changed of the task, and the class trained."""
    subclass = run.trainer.kwargs.get("algorithm_class")
    notes = [] if subclass is None else [f"of the class {subclass}"]
    task = of_task(run.config).items()
    return notes + [f"trained with {name}={plain(value)!r}" for name, value in task]


def constructor_arguments(run: TrainedRun) -> str:
    """Write `learning_rate=0.0003, policy_kwargs=dict(net_arch=[64, 64])`.

    A value that is not an argument follows as a comment.
    """
    places = split(run, "torch", _class_code)
    parts = []
    further = dict(places.further)
    for name, value in places.constructor.items():
        # Only learning rates and clip ranges may be functions.
        if isinstance(value, Schedule) and name not in CALLABLES:
            further |= {name: value.start, f"{name}.shape": value.shape, f"{name}.end": value.end}
        else:
            parts.append(f"{name}={_code(value, run)}")
    if places.policy:
        parts.append(f"policy_kwargs=dict({', '.join(places.policy)})")
    comments = []
    if places.n_envs != 1:
        gym_id = run.environment.get("id")
        name = repr(gym_id) if gym_id else "env"
        comments.append(f"env: make_vec_env({name}, n_envs={places.n_envs})")
    changed = [name for name in ("kwargs", "wrappers", "normalize") if run.environment.get(name)]
    if changed:
        comments.append(f"of the environment, in --format yaml: {', '.join(changed)}")
    comments += places.notes
    if further:
        listed = ", ".join(f"{name}={value!r}" for name, value in further.items())
        comments.append(f"not arguments of the constructor: {listed}")
    names = ("activation", "replay_buffer_class", *POLICY_CLASSES)
    classes = [run.config[name] for name in names if name in run.config]
    modules = dict.fromkeys(str(value).partition(":")[0] for value in classes if is_name(value))
    if modules:
        comments.append(f"import {', '.join(modules)}")
    return ", ".join(parts) + (f"  # {'; '.join(comments)}" if comments else "")


def _class_code(value: object) -> str:
    """Write the class that `module:Class` or the name of an activation means."""
    if is_name(value):
        return str(value).replace(":", ".")
    return f"torch.nn.{activation(str(value)).__name__}"


def _code(value: object, run: TrainedRun) -> str:
    """Write a value as Python."""
    if isinstance(value, Schedule):
        share = run.end / run.horizon
        # The progress of Stable-Baselines3 ends where training does, a schedule at the horizon.
        done = "(1 - left)" if share == 1 else f"{share!r} * (1 - left)"
        if value.shape == "exponential":
            return f"lambda left: {value.start!r} * ({value.end!r} / {value.start!r}) ** ({done})"
        shape = _SHAPES[value.shape].format(done=done)
        return f"lambda left: {value.start!r} + ({value.end!r} - {value.start!r}) * {shape}"
    if is_name(value):
        return str(value).replace(":", ".")
    return "math.inf" if value == math.inf else repr(value)
