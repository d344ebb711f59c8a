"""Reads study files.

`load_spec` reads YAML (or a mapping), applies `--set` overrides, checks everything that can be
checked without training, and returns a frozen `Spec`. `thaw` reads the file of a stored study.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autorl import trainers
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.executors.worker import from_folder
from autorl.landscapes.warm_start import fitting, misfit, starting_configurations
from autorl.space import Document, Space, load_space, parse_document, read_document
from autorl.space.canonical import jsonable
from autorl.study.spec.checks import (
    check_adaptive,
    check_budget,
    check_evaluations,
    check_n_envs,
    check_names_and_places,
    check_racing,
    check_workers,
)
from autorl.study.spec.defaults import Content, complete
from autorl.study.spec.giving_way import with_default_episodes, with_shorter_rollout
from autorl.study.spec.optimizer import default_parallelism, with_resolved_options
from autorl.study.spec.preset import apply_preset, read, start_of_preset
from autorl.study.spec.problems import first_problem
from autorl.study.spec.sections import WarmStartSection
from autorl.study.spec.spec import LongRolloutError, Spec


def load_spec(
    source: str | Path | Mapping[str, object], overrides: Mapping[str, object] | None = None
) -> Spec:
    """Read a study file, or take a mapping.

    Args:
        source: a file, or its content.
        overrides: values by dotted key, as given to `--set`.

    Raises:
        InputError: naming file, key, line, what is wrong and what is allowed.
    """
    if isinstance(source, Mapping):
        document = Document(dict(source), {})  # without lines
        folder = Path.cwd()
    else:
        document = read_document(source)
        folder = Path(source).resolve().parent
    if not isinstance(document.data, Mapping):
        raise document.error("expected a mapping of keys such as `trainer`, `space`, `budget`")
    data = plain(document.data)  # a copy: it is completed in place
    data.setdefault("path", str(folder))
    if not isinstance(source, Mapping):
        data.setdefault("name", Path(source).stem)
    for key, value in (overrides or {}).items():
        _override(data, key, value)
    written = plain(data)
    try:
        apply_preset(data)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None
    complete(data)
    spec = _validated(data, document).read_from(document)
    spec = with_shorter_rollout(spec, written)
    _check_resolved(spec, document, data)
    spec = _with_starts(with_default_episodes(spec), document)
    try:
        spec = with_resolved_options(spec)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None
    if "parallelism" not in data:
        spec = spec.with_default_parallelism(default_parallelism(spec))
    # Last: it may ask the optimizer, whose starts must be resolved.
    try:
        check_budget(spec)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None
    return spec


def thaw(text: str, file: str) -> Spec:
    """Read a frozen study file, as `Spec.freeze` wrote it.

    Raises:
        InputError: the file was changed by hand into something that is no study, or is torn.
    """
    document = parse_document(text, file)
    return _validated(document.data, document)


def parse_override(text: str) -> tuple[str, Any]:
    """Split `fidelity.steps=5e4` into key and value.

    The value is read as YAML.

    Raises:
        InputError: there is no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InputError(f"expected key=value, got {text!r}", file="--set")
    return key.strip(), parse_document(value, "--set").data


def _validated(data: object, document: Document) -> Spec:
    try:
        return Spec.model_validate(data)
    except InputError as error:
        raise document.located(error) from None
    except ValidationError as error:
        raise first_problem(error, document, Spec) from None


def _override(data: Content, key: str, value: object) -> None:
    *parents, last = key.split(".")
    place: Any = data
    for depth, name in enumerate(parents):
        # A section that is written as its name alone becomes a mapping first.
        if name in ("trainer", "optimizer", "environment") and isinstance(place.get(name), str):
            place[name] = {"id" if name == "environment" else "name": place[name]}
        if name == "space" and isinstance(place.get(name), str):
            place[name] = {"extends": place[name]}
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(
                f"{'.'.join(parents[: depth + 1])} is not a mapping", file="--set", key=key
            )
    place[last] = value


def _check_resolved(spec: Spec, document: Document, data: Mapping[str, object]) -> None:
    """Check what a model cannot: seeds, space and keys together.

    Their errors come before any training.
    """
    try:
        check_names_and_places(spec)
        check_workers(spec)
        check_racing(spec)
        check_adaptive(spec)
        check_evaluations(spec, data)
        _space_located(spec, document)
        check_n_envs(spec, data)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None


def _with_starts(spec: Spec, document: Document) -> Spec:
    """Resolve the warm start to a list of configurations of the space.

    The study then depends on no other data.
    """
    section = spec.warm_start
    chosen = list[tuple[str, Mapping[str, Any]]]()
    if isinstance(section, list):
        chosen = [(f"warm_start[{number}]", config) for number, config in enumerate(section)]
    elif section.zoo is not None:
        chosen.append(_preset_start(spec, section.zoo, section.entry, document))
    else:
        try:
            chosen += starting_configurations(
                section.source, section.top, section.sql, folder=spec.path
            )
        except InputError as error:
            key = "warm_start.sql" if error.key == "sql" else "warm_start"
            where = f"{error.file}: " if error.file else ""
            raise document.located(InputError(where + error.message, key=key)) from None
    starts, misfits = fitting(spec.search_space, chosen)
    skip = isinstance(section, WarmStartSection) and section.misfits == "skip"
    if misfits and (not skip or not starts):  # to skip all would be to begin with none
        raise misfit(misfits, document, listed=isinstance(section, list))
    if isinstance(section, list):
        return spec
    return spec.model_copy(update={"warm_start": [jsonable(config) for config in starts]})


def _preset_start(
    spec: Spec, file: str, entry: str | None, document: Document
) -> tuple[str, Mapping[str, Any]]:
    """Return the configuration of a preset, with its origin in words.

    Raises:
        InputError: it cannot be read, or says something else than the study does.
    """
    if spec.trainer is None:
        raise document.error(
            "a preset is of one trainer: leave it out beside algorithms", "warm_start"
        )
    trainer = spec.trainer
    environment = spec.environment
    preset = read(trainer.name, spec.path, file, environment.id, entry)
    of_policy = trainer.kwargs.get("policy_kwargs") or {}
    fixed = {**of_policy, "n_envs": environment.n_envs, **trainer.kwargs}
    label = f"{preset.name} of {file}"
    try:
        start = start_of_preset(spec.search_space, preset, fixed, environment.model_dump())
        return label, start
    except InputError as error:
        named = InputError(f"{label}.{error.key}: {error.message}", key="warm_start")
        raise document.located(named) from None


def _space_located(spec: Spec, document: Document) -> Space:
    """Resolve the space.

    Errors of an inline definition name the line of the study file.
    """
    try:
        return spec.search_space
    except InputError as error:
        if isinstance(error, LongRolloutError):
            _check_trainers(spec)
        of_the_file = error.file is None and (isinstance(spec.space, dict) or error.key is None)
        raise (document.located(error, "space") if of_the_file else error) from None


def _check_trainers(spec: Spec) -> None:
    """Check what would be trained, whatever its rollout is.

    Raises:
        InputError: a wrapper, an option or a policy cannot be built.
    """
    folder = Path(spec.path) if spec.path else None
    for name, trainer in spec.trainers.items():
        source = spec.algorithms[name].space if spec.algorithms else spec.space
        assert source is not None
        loaded = from_folder(trainers.load, spec.path, trainer)
        loaded.check(spec.environment.resolve(), set(load_space(source, folder).names))
