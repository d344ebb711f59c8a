"""Fills in a study file from a preset of RL Baselines3 Zoo.

The section is `preset: {zoo: FILE}`. A preset is a default: what the study file says comes first.
Values of hyperparameters that the space searches become its defaults, others options of the
trainer. Nothing of the preset is left to the file it came from: the section is gone once it is
written out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from autorl import trainers
from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.space import Hyperparameter, Space, load_space, unknown_key
from autorl.trainers.info import Preset

Content: TypeAlias = dict[str, Any]
PRESET = "preset"
_KEYS = ("zoo", "entry")


def apply_preset(data: Content) -> None:
    """Write out the section `preset` of a study file in place.

    Raises:
        InputError: the section is wrong, its file cannot be read, or a value of it is outside the
            space.
    """
    section = data.pop(PRESET, None)
    if section is None:
        return
    folder = str(data["path"])
    trainer = _section(data, "trainer", "name")
    environment = _section(data, "environment", "id")
    if isinstance(section, str):
        section = {"zoo": section}
    if not isinstance(section, Mapping) or not isinstance(section.get("zoo"), str):
        raise InputError(f"expected {{zoo: FILE, entry: NAME}}, got {shown(section)}", key=PRESET)
    for key in section:
        if key not in _KEYS:
            raise InputError(unknown_key(key, _KEYS), key=f"{PRESET}.{key}")
    preset = read(
        str(trainer.get("name")),
        folder,
        section["zoo"],
        environment.get("id"),
        section.get("entry"),
    )
    if "space" not in data:
        raise InputError("a study with a preset needs a space", key=PRESET)
    kwargs = _section(trainer, "kwargs", "name")
    space = load_space(data["space"], Path(folder))
    n_envs = kwargs.get("n_envs", environment.get("n_envs", preset.environment.get("n_envs", 1)))
    if "n_envs" in space.hyperparameters:
        # The space decides it, from the preset's number on.
        of_task = {name: value for name, value in preset.environment.items() if name != "n_envs"}
        values = {"n_envs": n_envs, **preset.values}
    else:
        of_task = {**preset.environment, "n_envs": n_envs}
        values = dict(preset.values)
    data["environment"] = {**plain(of_task), **environment}
    searched = {name: value for name, value in values.items() if name in space.hyperparameters}
    data["space"] = _with_defaults(space, searched, n_envs)
    beside_space = _beside_space(space, values, kwargs)
    policy = {} if preset.policy is None else {"policy": preset.policy}
    data["trainer"] = {**trainer, "kwargs": {**plain(beside_space), **policy, **kwargs}}
    if preset.steps is not None and isinstance(data.setdefault("fidelity", {}), dict):
        data["fidelity"].setdefault("steps", preset.steps)


def read(
    trainer: str, folder: str | None, file: str, environment: str | None, entry: str | None
) -> Preset:
    """Read a preset by the trainer's own reader.

    Args:
        trainer: its name.
        folder: where a relative file begins.
        file: of presets.
        environment: of the study.
        entry: in the file, where it is not the environment's.

    Raises:
        InputError: naming the file and line, or the section where the trainer has no presets.
    """
    path = Path(folder or ".") / file
    try:
        return trainers.info(trainer, folder).read_preset(trainer, path, environment, entry)
    except InputError as error:
        if error.file is None:
            raise InputError(error.message, key=PRESET) from None
        raise


def _beside_space(space: Space, values: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Content:
    """Return what the preset says beside space and study file.

    A schedule goes with its start: where that is fixed, the preset's shape is not asked.
    """
    of_policy = kwargs.get("policy_kwargs") or {}
    stated = {*kwargs, *of_policy}
    stated |= {name for name, item in space.hyperparameters.items() if item.type == "constant"}
    if "activation_fn" in stated:
        stated.add("activation")
    return {
        name: value
        for name, value in values.items()
        if name not in space.hyperparameters
        and not {name, name.removesuffix(".shape").removesuffix(".end")} & stated
    }


def _section(data: Content, key: str, name: str) -> Content:
    """Return a section as a mapping, also where its name stands alone."""
    section = data.get(key)
    if isinstance(section, str):
        return {name: section}
    return dict(section) if isinstance(section, Mapping) else {}


def _with_defaults(space: Space, values: Mapping[str, Any], n_envs: int) -> Content:
    """Write a space with other defaults.

    Raises:
        InputError: one of them is outside it.
    """
    content: Content = plain(space.to_dict())
    if "n_envs" in content.get("constants", {}):
        content["constants"]["n_envs"] = n_envs
    for name, value in values.items():
        hyperparameter = space.hyperparameters[name]
        # A value that the study's space fixes is not the preset's.
        if hyperparameter.type == "constant":
            continue
        fitting = within(hyperparameter, value)
        problem = hyperparameter.problem(fitting)
        if problem is not None:
            message = f"{name} of the preset: {problem}: widen the space, or take it out there"
            raise InputError(message, key=PRESET)
        content["hyperparameters"][name]["default"] = plain(fitting)
    return content


def within(hyperparameter: Hyperparameter, value: object) -> Any:
    """Return a preset's value as a hyperparameter has it.

    The format's schedules end at 0, which no logarithm reaches: such an end is the lower bound.
    """
    if hyperparameter.name.endswith(".end") and value == 0 and hyperparameter.lower is not None:
        return max(0.0, hyperparameter.lower)
    return hyperparameter.canonical(value)


def start_of_preset(
    space: Space, preset: Preset, fixed: Mapping[str, Any], environment: Mapping[str, Any]
) -> Content:
    """Make a configuration of a preset, with defaults where it says nothing.

    Args:
        space: of the study.
        preset: whose values go into it.
        fixed: hyperparameters the study trains with beside the space.
        environment: of the study, by the keys of its section.

    Raises:
        InputError: the preset says something else than the study does, beside the space.
    """
    values = dict(preset.values)
    if "n_envs" in preset.environment:
        values["n_envs"] = preset.environment["n_envs"]
    for name, value in values.items():
        if name not in space.hyperparameters and plain(fixed.get(name)) != plain(value):
            raise InputError(
                f"the preset has {shown(plain(value))}, which is neither in the space nor what the "
                f"study trains with ({shown(plain(fixed.get(name)))}): "
                "give it in trainer.kwargs, or n_envs in environment",
                key=name,
            )
    for name in ("normalize", "wrappers", "kwargs"):
        value = plain(preset.environment.get(name, environment[name]))
        if value != plain(environment[name]):
            raise InputError(
                f"the preset has {shown(value)}, the study {shown(plain(environment[name]))}",
                key=f"environment.{name}",
            )
    config = {
        name: within(hyperparameter, values.get(name, hyperparameter.default))
        for name, hyperparameter in space.hyperparameters.items()
    }
    # A child of what has become inactive is inactive in its turn.
    while inactive := config.keys() - space.active(config):
        config = {name: value for name, value in config.items() if name not in inactive}
    return config
