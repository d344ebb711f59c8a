"""Writes a configuration in the YAML format of RL Baselines3 Zoo.

Values that the format cannot say (schedules that do not end at 0, secrets, several environments of
a kind) follow as comments. See `zoo_read`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from autorl.core.plain_text import counted
from autorl.core.plain_values import plain
from autorl.population.environments import GRID_TASKS
from autorl.population.sb3_arguments import Schedule
from autorl.trainers.info import TrainedRun
from autorl.trainers.sb3.algorithms import ALGORITHMS, CALLABLES
from autorl.trainers.sb3.constructor import Split, split
from autorl.trainers.sb3.named_classes import activation, is_name
from autorl.trainers.sb3.suites import FRAME_STACK, IMAGE_WRAPPERS, suite_of

_ALGORITHM_NAMES = {"recurrent_ppo": "ppo_lstm"}
_NOISE = ("noise_type", "noise_std")
_GRID_VECTORS = ("minigrid.wrappers:FlatObsWrapper", "gymnasium.wrappers:FlattenObservation")
_AS_FLOATS = "gymnasium.wrappers.DtypeObservation"
_WHY_FLOATS = (
    f"{_AS_FLOATS} (gymnasium 1.4 or later): without it the rollout memory of Stable-Baselines3 "
    "cuts normalised observations of bytes to whole numbers"
)


def zoo_entry(run: TrainedRun) -> str:
    """Write the entry of a configuration, as a file of its own.

    `python -m rl_zoo3.train --conf-file FILE` trains it. Names and defaults are those of
    Stable-Baselines3's constructor, which must be installed.
    """
    family, _, algorithm = run.trainer.name.partition("/")
    notes: list[str] = []
    values = split(run, "th", _class_code)
    notes += values.notes
    arguments = _arguments(values, notes)
    gym_id = str(run.environment.get("id") or "default")
    package, _, name = gym_id.rpartition(":")
    entry = {
        "n_timesteps": run.end,
        "policy": _policy(algorithm, run, notes),
        "n_envs": values.n_envs,
        **_environment(_as_trained(family, run.environment), notes),
        **arguments,
    }
    if run.end < run.horizon and any(str(value).startswith("lin_") for value in entry.values()):
        steps = counted(run.horizon, "step")
        notes.append(f"schedules were over {steps}: here they end at {run.end}")
    of_zoo = _ALGORITHM_NAMES.get(algorithm, algorithm)
    command = f"python -m rl_zoo3.train --algo {of_zoo} --env {name} --conf-file FILE"
    command += f" --gym-packages {package}" if package else ""
    text = yaml.safe_dump({name: entry}, sort_keys=False, width=110, allow_unicode=True)
    return "\n".join([f"# {line}" for line in (command, *notes)] + [str(text).rstrip()])


def _arguments(values: Split, notes: list[str]) -> dict[str, Any]:
    """Return arguments of the constructor, noise and policy among them."""
    written = {
        name: _value(name, value, notes)
        for name, value in values.constructor.items()
        # The zoo refuses null for what it takes as a schedule: its default is null too.
        if value is not None or name not in CALLABLES
    }
    policy = list(values.policy)
    for name, value in values.further.items():
        if name in _NOISE:
            written[name] = value
        else:
            policy.append(f"{name}={value!r}")
    if written.get("noise_type") == "none":
        written = {name: value for name, value in written.items() if name not in _NOISE}
    elif "noise_std" in written:
        written.setdefault("noise_type", "normal")
    if policy:
        written["policy_kwargs"] = f"dict({', '.join(policy)})"
    return written


def _value(name: str, value: object, notes: list[str]) -> Any:
    """Write a value.

    A schedule that the format has no word for is written by its start.
    """
    if not isinstance(value, Schedule):
        return _class_code(value) if is_name(value) else value
    if name in CALLABLES and value.shape == "linear" and value.end == 0:
        return f"lin_{value.start!r}"
    notes.append(
        f"{name} goes from {value.start!r} to {value.end!r} ({value.shape}), which this format "
        "cannot say: it stays at its start here"
    )
    return value.start


def _class_code(value: object) -> str:
    """Write a class as code that the zoo can evaluate.

    The zoo knows the modules `th` and `nn`.
    """
    if not is_name(value):
        return f"nn.{activation(str(value)).__name__}"
    module, _, name = str(value).partition(":")
    if module == "torch" or module.startswith("torch."):
        return f"th{module.removeprefix('torch')}.{name}"
    return f"__import__({module!r}, fromlist=[{name!r}]).{name}"


def _policy(algorithm: str, run: TrainedRun, notes: list[str]) -> str:
    """Return the policy of the trainer, else that of images or vectors."""
    policy = run.trainer.kwargs.get("policy")
    if policy is not None:
        return str(policy).replace(":", ".")
    wrappers = str(plain(run.environment.get("wrappers", ())))
    if algorithm in ALGORITHMS and any(name in wrappers for name in IMAGE_WRAPPERS):
        return ALGORITHMS[algorithm].policy_name("Cnn")
    notes.append("policy: that of vectors; images need CnnPolicy, dictionaries MultiInputPolicy")
    return "MlpLstmPolicy" if algorithm == "recurrent_ppo" else "MlpPolicy"


def _as_trained(family: str, environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name the wrappers that a grid task of the engine stands for."""
    task = GRID_TASKS.get(str(environment.get("id")))
    if family != "population" or task is None or environment.get("wrappers"):
        return environment
    return {**environment, "wrappers": task.wrappers}


def _environment(environment: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return what the entry says of the environment, `n_envs` apart."""
    written: dict[str, Any] = {}
    if environment.get("normalize"):
        written["normalize"] = plain(environment["normalize"])
    if environment.get("kwargs"):
        written["env_kwargs"] = plain(environment["kwargs"])
    listed = list(environment.get("wrappers", ()))
    last = listed[-1] if listed else None
    if isinstance(last, Mapping) and list(last) == [FRAME_STACK]:
        listed.pop()
        written["frame_stack"] = int((last[FRAME_STACK] or {}).get("n_stack", 4))
    wrappers = [_wrapper(entry) for entry in listed]
    if _normalises_bytes(environment, listed):
        wrappers.append({_AS_FLOATS: {"dtype": "float32"}})
        notes.append(_WHY_FLOATS)
    if wrappers:
        written["env_wrapper"] = wrappers
    if environment.get("vec_env", "dummy") != "dummy":
        notes.append(f"train with --vec-env {environment['vec_env']}")
    return written


def _normalises_bytes(environment: Mapping[str, Any], wrappers: Sequence[object]) -> bool:
    """Tell whether `VecNormalize` is to normalise the bytes of a grid.

    `sb3.environments` makes numbers in single precision of them, and so does the engine.
    """
    options = environment.get("normalize", False)
    norm_obs = options.get("norm_obs", True) if isinstance(options, Mapping) else options
    suite = suite_of(str(environment.get("id")))
    of_grid = suite is not None and suite.name == "minigrid"
    return bool(norm_obs) and of_grid and bool(wrappers) and wrappers[-1] in _GRID_VECTORS


def _wrapper(entry: object) -> Any:
    if isinstance(entry, Mapping):
        return {str(name).replace(":", "."): plain(kwargs or {}) for name, kwargs in entry.items()}
    return str(entry).replace(":", ".")
