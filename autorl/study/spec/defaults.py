"""Completes a study file before it is checked.

Its trainers know how. The functions here work on the content of a YAML file as Python has it, which
may still be wrong anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from autorl import trainers
from autorl.store.remote import storage_url
from autorl.trainers.language.tasks.files import pinned

Content: TypeAlias = dict[str, Any]


def complete(data: Content) -> None:
    """Complete the content of a study file in place.

    Default sections are added and paths made absolute.
    """
    _fill_defaults(data)  # first: they may hold what the next look at
    _write_out_id(data)
    _share_n_envs(data)
    _pin_paths(data)


def _fill_defaults(data: Content) -> None:
    """Add the sections that trainers have better defaults for."""
    names = [_name_of(trainer) for trainer in _trainer_sections(data)]
    described = [trainers.info(name, str(data["path"])) for name in names]
    # Trainers of one family have the same defaults: they share the method that says them.
    if not described or len({type(info).default_sections for info in described}) > 1:
        return
    task, kwargs = _environment_of(data)
    for key, section in described[0].default_sections(names, task, kwargs).items():
        stated = data.setdefault(key, section)
        # `reduce` alone is of the task's own metric
        if key == "objective" and isinstance(stated, dict) and "metric" not in stated:
            data[key] = {**section, **stated}
    objective = data.get("objective")
    if isinstance(objective, dict) and described[0].default_metric is not None:
        objective.setdefault("metric", described[0].default_metric)


def _write_out_id(data: Content) -> None:
    """Write out the version of the environment, by which it is recorded."""
    name, _ = _environment_of(data)
    trainer, *_ = _trainer_sections(data) or [None]
    if name is None or trainer is None:
        return
    full_id = trainers.info(_name_of(trainer), str(data["path"])).full_id(name)
    if isinstance(data["environment"], dict):
        data["environment"]["id"] = full_id
    else:
        data["environment"] = full_id


def _trainer_sections(data: Mapping[str, object]) -> list[object]:
    """Return what a study file says under `trainer`.

    With `algorithms`, it is what each of them says there.
    """
    algorithms = data.get("algorithms")
    if not isinstance(algorithms, Mapping):
        return [data.get("trainer")]
    sections = [section for section in algorithms.values() if isinstance(section, Mapping)]
    return [section.get("trainer") for section in sections]


def _environment_of(data: Mapping[str, object]) -> tuple[str | None, Mapping[str, object] | None]:
    """Return the id of the environment and its options.

    Both come from a study file that is not checked, as far as it says them.
    """
    environment = data.get("environment")
    if not isinstance(environment, Mapping):
        return environment if isinstance(environment, str) else None, None
    name = environment.get("id")
    kwargs = environment.get("kwargs")
    options = kwargs if isinstance(kwargs, Mapping) else None
    return name if isinstance(name, str) else None, options


def _share_n_envs(data: Content) -> None:
    """Copy a number of environments among the trainer's options to `environment`.

    There the space's constraints see it.
    """
    trainer = data.get("trainer")
    kwargs = trainer.get("kwargs") if isinstance(trainer, Mapping) else None
    if not isinstance(kwargs, Mapping) or "n_envs" not in kwargs:
        return
    if not trainers.info(_name_of(trainer), str(data["path"])).takes_n_envs:
        return
    environment = data.get("environment")
    if isinstance(environment, str):
        data["environment"] = {"id": environment, "n_envs": kwargs["n_envs"]}
    elif isinstance(environment, dict):
        environment.setdefault("n_envs", kwargs["n_envs"])


def _name_of(trainer: object) -> str:
    name = trainer.get("name") if isinstance(trainer, Mapping) else trainer
    return name if isinstance(name, str) else ""


def _pin_paths(data: Content) -> None:
    """Make paths among the options of trainers and environment absolute."""
    folder = str(data["path"])  # a study is resumed from any working folder
    storage = data.get("storage")
    if isinstance(storage, str) and storage:
        data["storage"] = storage_url(storage, Path(folder))
    for trainer in _trainer_sections(data):
        if isinstance(trainer, dict) and isinstance(trainer.get("kwargs"), dict):
            kwargs = trainer["kwargs"]
            trainer["kwargs"] = trainers.info(_name_of(trainer), folder).pinned(kwargs, folder)
    environment = data.get("environment")
    # The task `files` has a user's own models and data.
    if isinstance(environment, dict) and environment.get("id") == "files":
        kwargs = environment.get("kwargs")
        if isinstance(kwargs, Mapping):
            environment["kwargs"] = pinned(kwargs, folder)
