"""Reads study files.

`load_spec` reads YAML (or a mapping), applies `--set` overrides, checks everything that can be
checked without training, and returns a frozen `Spec`. `thaw` reads the file of a stored study.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from autorl import trainers
from autorl.core.masking import masked
from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.executors.worker import from_folder
from autorl.landscapes.warm_start import fitting, misfit, starting_configurations
from autorl.space import Document, Space, load_space, parse_document, read_document, unknown_key
from autorl.space.canonical import jsonable
from autorl.study.spec import checks
from autorl.study.spec.defaults import (
    Content,
    apply_preset,
    complete,
    read,
    start_of_preset,
    with_default_episodes,
    with_quantiles,
    with_shorter_rollout,
    write_out,
)
from autorl.study.spec.forecast import write_out_forecast
from autorl.study.spec.optimizer import default_parallelism, with_resolved_options
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
        override(data, key, value)
    if data.pop("compare", None) is not None:
        raise document.error("is of several studies, for `autorl compare FILE`", "compare")
    write_out(data)
    written = plain(data)
    with _located(document):
        lines = write_out_forecast(data)
        apply_preset(data)
        complete(data)
    spec = _validated(data, document).remember(document)
    with _located(document):
        spec = with_quantiles(spec)
    spec = with_shorter_rollout(spec, written)
    spec.remember(given_way=(*lines, *spec.given_way))
    _check_resolved(spec, document, data)
    spec = _with_starts(with_default_episodes(spec), document)
    spec = _with_baselines(spec, document)
    with _located(document):
        spec = with_resolved_options(spec)
        if "parallelism" not in data:
            spec = spec.with_default_parallelism(default_parallelism(spec))
        # Last: it may ask the optimizer, whose starts must be resolved.
        checks.check_budget(spec)
    return spec


@contextmanager
def _located(document: Document) -> Iterator[None]:
    """Add file and line of an error's key to its message."""
    try:
        yield
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None


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


def override(data: Content, key: str, value: object) -> None:
    """Set the value of a dotted key in a study file's content.

    Raises:
        InputError: a part of the key before the last is no mapping.
    """
    *parents, last = key.split(".")
    write_out(data)
    place: Any = data
    for depth, name in enumerate(parents):
        if name == "space" and isinstance(place.get(name), str):
            place[name] = {"extends": place[name]}
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(
                f"{'.'.join(parents[: depth + 1])} is not a mapping", file="--set", key=key
            )
    place[last] = value


def _check_resolved(spec: Spec, document: Document, data: Mapping[str, object]) -> None:
    """Check what a single section cannot: seeds, space and keys together.

    Their errors come before any training.
    """
    with _located(document):
        checks.check_names_and_places(spec)
        checks.check_workers(spec, spec.executor.workers, "executor.workers")
        checks.check_tasks(spec)
        checks.check_seed_rule(spec)
        checks.check_evaluations(spec, data)
        _space_located(spec, document)
        checks.check_n_envs(spec, data)


def _with_starts(spec: Spec, document: Document) -> Spec:
    """Resolve the warm start to a list of configurations of the space.

    The study then depends on no other data.
    """
    section = spec.warm_start
    chosen = list[tuple[str, Mapping[str, Any]]]()
    if isinstance(section, list):
        chosen = [(f"warm_start[{number}]", config) for number, config in enumerate(section)]
    elif not section.source:
        chosen.append(_preset_start(spec, section, document, "warm_start"))
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


def _with_baselines(spec: Spec, document: Document) -> Spec:
    """Resolve the baselines to configurations of the space."""
    if spec.baselines and (spec.landscape is not None or not spec.plan.test):
        raise document.error(
            "are tested: this study has a landscape, or no test seeds", "baselines"
        )
    configs = {}
    for name, stated in spec.baselines.items():
        key = f"baselines.{name}"
        values: Mapping[str, Any] = stated
        if {"zoo", "card"} & stated.keys():
            try:
                preset = WarmStartSection.model_validate(stated)
            except ValidationError as error:
                raise document.located(
                    first_problem(error, document, WarmStartSection), key
                ) from None
            _, values = _preset_start(spec, preset, document, key)
        try:
            configs[name] = jsonable(spec.search_space.config(values))
        except InputError as error:
            raise document.located(error, key) from None
    return spec.model_copy(update={"baselines": configs})


def _preset_start(
    spec: Spec, source: WarmStartSection, document: Document, key: str
) -> tuple[str, Mapping[str, Any]]:
    """Return the configuration of a preset, with its origin in words.

    Raises:
        InputError: it cannot be read, or says something else than the study does.
    """
    if spec.trainer is None:
        raise document.error("a preset is of one trainer: leave it out beside algorithms", key)
    trainer = spec.trainer
    environment = spec.environment
    with _located(document):
        preset = read(trainer.name, spec.path, source.model_dump(), environment.id, key)
    of_policy = trainer.kwargs.get("policy_kwargs") or {}
    fixed = {**of_policy, "n_envs": environment.n_envs, **trainer.kwargs}
    label = f"{preset.name} of {source.card or source.zoo}"
    try:
        return label, start_of_preset(spec.search_space, preset, fixed, environment.model_dump())
    except InputError as error:
        named = InputError(f"{label}.{error.key}: {error.message}", key=key)
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
    for name, trainer in spec.trainers.items():
        loaded = from_folder(trainers.load, spec.path, trainer)
        space = load_space(spec.parts[name].space, spec.folder)
        loaded.check(spec.environment.resolve(), set(space.names))


_KEY = re.compile(r"[\w.-]+")
_TYPES = frozenset({"int", "float", "str", "bool", "constrained-int", "constrained-float"})


def first_problem(error: ValidationError, document: Document, model: type[BaseModel]) -> InputError:
    """Say the first problem pydantic met, as one line."""
    problems = error.errors()
    first = problems[0]
    if first["type"] == "missing":
        # It may be there under another name, which says more.
        unknown = (problem for problem in problems if problem["type"] == "extra_forbidden")
        first = next(unknown, first)
    # pydantic adds the branch of a union that it tried, such as `list[any]` or `int`: no key.
    path = [
        part
        for part in first["loc"]
        if isinstance(part, int) or (_KEY.fullmatch(part) and part not in _TYPES)
    ]
    steps = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    key = "".join(steps).lstrip(".")
    if first["type"] == "extra_forbidden":
        section, _ = _section_at(model, path[:-1])
        return document.error(unknown_key(path[-1], list(section.model_fields)), key)
    if first["type"] == "missing":
        return document.error("is missing", key)
    # Its words, without those that speak of Python.
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message, is_mapping = re.subn(
        r"a valid dictionary( or instance of \w+)?", "a mapping of keys", message
    )
    if first["type"] != "value_error":
        message += f", got {shown(masked(first['input']))}"  # which may be a secret
    section, exact = _section_at(model, path)
    if is_mapping and exact:
        message += f"; its keys: {', '.join(section.model_fields)}"
    return document.error(message, key)


def _section_at(model: type[BaseModel], path: Sequence[str | int]) -> tuple[type[BaseModel], bool]:
    """Return the innermost section on a path.

    Also whether every part of the path is a section.
    """
    exact = True
    for part in path:
        field = model.model_fields.get(str(part))
        sections = [] if field is None else _sections(field.annotation)
        # Numbers of lists and a user's own names are none.
        model = sections[0] if sections else model
        exact = exact and bool(sections)
    return model, exact


def _sections(annotation: object) -> list[type[BaseModel]]:
    """Return the sections a field's annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]


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
        values = dict(overrides or {})
        environment = values.pop("environment", values.get("environment.id"))
        return load_spec(space_study(str(source), environment), values)
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
