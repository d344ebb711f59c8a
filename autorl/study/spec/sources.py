"""Reads a study of a file, a mapping or a space's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorl import trainers
from autorl.space import read_document
from autorl.study.spec.spec import Spec
from autorl.study.spec.study_file import load_spec


def space_study(name: str, environment: object = None) -> dict[str, Any]:
    """Make the study that a search space's name stands for.

    It has a usual budget. The trainer is the name without a `-suffix` of its last part:
    `sb3/ppo-small` is a space of `sb3/ppo`. `TrainerInfo.study_of_space` says what it is trained
    for.
    """
    folder, _, last = name.rpartition("/")
    # `ppo-small` and `ppo-continuous` are spaces of one trainer.
    short = last.split("-")[0]
    trainer = f"{folder}/{short}" if folder else short
    info = trainers.info(trainer)
    if isinstance(environment, str):
        environment = info.full_id(environment)
    study = info.study_of_space(name, trainer, environment)
    if environment is None:
        return study
    if "environment" not in study:
        return study | {"environment": environment}
    section = environment if isinstance(environment, Mapping) else {"id": environment}
    # The user's values override those of a trainer's family.
    return study | {"environment": {**study["environment"], **section}}


def read_study(
    source: str | Path | Mapping[str, object], overrides: Mapping[str, object] | None = None
) -> Spec:
    """Read the study of a file, a mapping or a space's name.

    `overrides`: values by dotted key, as given to `--set`.

    Raises:
        InputError: the study or a value of it is wrong, or the file is a search space.
    """
    if isinstance(source, Mapping):
        return load_spec(source, overrides)
    if not is_file(source):
        environment = (overrides or {}).get("environment.id")
        return load_spec(space_study(str(source), environment), overrides)
    content = read_document(source)
    # A likely slip, which would end in a list of every key that a study lacks.
    if isinstance(content.data, Mapping) and "hyperparameters" in content.data:
        raise content.error(
            "is a search space, not a study: name it under `space` in a study file",
            "hyperparameters",
        )
    return load_spec(source, overrides)


def is_file(what: str | Path) -> bool:
    """Say whether a study is named by its file."""
    return Path(what).suffix in (".yaml", ".yml", ".json") or Path(what).is_file()
