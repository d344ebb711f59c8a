"""Reads the section `compare` of a study file: methods and tasks.

There is a study for each pair of them and each seed.

A method or a task is a mapping of study-file keys to values, as `--set` takes them, that are laid
on the file: `{trainer: sb3/sac, space: sb3/sac-small}`, `{environment.id: Acrobot-v1}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from autorl.core.plain_text import one_of, shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.space import Document, read_document
from autorl.study.spec.sections import Count, Number, OptimizerSection, Section
from autorl.study.spec.spec import Spec
from autorl.study.spec.study_file import first_problem, is_file, override, read_study


class Cell(NamedTuple):
    """A study of a comparison.

    The task is "" where the file has the only one.
    """

    task: str
    method: str
    seed: int

    @property
    def place(self) -> str:
        """Its folder, relative to that of the comparison."""
        parts = (self.method, self.task, f"seed-{self.seed}")
        return "/".join(safe_name(part) for part in parts if part)


def _named(key: str) -> BeforeValidator:
    """Read a list of values as a mapping of names to changes."""

    def changes(value: object) -> object:
        if isinstance(value, list):
            if len({str(name) for name in value}) < len(value):
                raise ValueError("lists a name twice")
            value = {str(name): name for name in value}
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a list of values of `{key}`, or names with changes")
        return {
            name: change if isinstance(change, Mapping) else {key: change}
            for name, change in value.items()
        }

    return BeforeValidator(changes, json_schema_input_type=list[Any] | dict[str, Any])


def _apart(value: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, str] = {}
    for name in value:
        twin = names.setdefault(safe_name(name), name)
        if twin != name or not safe_name(name).strip("-."):
            raise ValueError(f"{shown(name)} is no name of a folder, or that of another")
    return value


Changes = Annotated[dict[str, dict[str, Any]], AfterValidator(_apart)]


class CompareSection(Section):
    methods: Annotated[Changes, _named("optimizer"), Field(min_length=2)]
    """Optimizers by name, or any names, each with keys of the study file and their values."""
    tasks: Annotated[Changes, _named("environment.id")] = Field({"": {}})
    """Environments by id, or any names, each with keys and values; default: that of the file."""
    repeats: Count = 3
    """Studies of each method on each task, with seeds of their own."""
    scale: dict[str, tuple[Number, Number]] = Field({})
    """By task: the scores that count as 0 and 1; default: the worst and best in the comparison."""


class _File(BaseModel):
    compare: CompareSection


def read_comparison(
    source: str | Mapping[str, object], overrides: Mapping[str, object], flags: Mapping[str, object]
) -> tuple[CompareSection, dict[Cell, Spec]]:
    """Read what is compared, and the study of each cell.

    Cells are in the order of tasks, methods, then seeds.

    Args:
        source: a study file or its content, with the section `compare` unless `flags` say the
            methods; or a space.
        overrides: values by dotted key, as given to `--set`; methods and tasks are laid on top.
        flags: keys of the section that the command line says.

    Raises:
        InputError: the section, or a study of it, is wrong.
    """
    document = Document(source if isinstance(source, Mapping) else {}, {})
    if isinstance(source, str) and is_file(source):
        document = read_document(source)
    stated = document.data.get("compare") if isinstance(document.data, Mapping) else None
    content: dict[str, Any] = {"compare": {} if stated is None else plain(stated)}
    of_section = {
        key: value for key, value in overrides.items() if key.partition(".")[0] == "compare"
    }
    for key, value in (*of_section.items(), *((f"compare.{key}", flags[key]) for key in flags)):
        override(content, key, value)
    try:
        section = _File.model_validate(content).compare
    except ValidationError as error:
        raise first_problem(error, document, _File) from None
    for task in section.scale:
        if task not in section.tasks:
            message = f"no task {shown(task)}{one_of(task, section.tasks)}"
            raise document.error(message, f"compare.scale.{task}")
        if len(set(section.scale[task])) < 2:
            raise document.error("expected two different scores", f"compare.scale.{task}")
    of_studies = {key: value for key, value in overrides.items() if key not in of_section}
    return section, dict(_cells(source, section, {**of_studies, "compare": None}))


def _cells(
    source: str | Mapping[str, object], section: CompareSection, overrides: Mapping[str, object]
) -> Iterator[tuple[Cell, Spec]]:
    for task, of_task in section.tasks.items():
        base: Spec | None = None
        for method, of_method in section.methods.items():
            try:
                # An optimizer the file names keeps its options.
                if of_method.keys() == {"optimizer"} and isinstance(of_method["optimizer"], str):
                    spec = base = base or read_study(source, {**overrides, **of_task})
                    if (name := of_method["optimizer"]) != base.optimizer.name:
                        spec = base.changed(optimizer=OptimizerSection(name=name))
                else:
                    spec = read_study(source, {**overrides, **of_task, **of_method})
            except InputError as error:
                where = f"method {shown(method)}{f' on {shown(task)}' if task else ''}"
                message = f"{where}: {error.message}"
                raise InputError(message, file=error.file, key=error.key, line=error.line) from None
            # From the file's own seed on, so that its own study is one of them.
            for seed in range(spec.seed, spec.seed + section.repeats):
                cell = Cell(task, method, seed)
                name = "-".join(safe_name(str(part)) for part in (spec.name, method, task, seed))
                changes: dict[str, Any] = {"seed": seed, "name": re.sub("-+", "-", name)}
                if spec.storage is not None:
                    changes["storage"] = f"{spec.storage}/{cell.place}"
                yield cell, spec.changed(**changes)


def safe_name(text: str) -> str:
    """Write a name for a file of any system: `ALE-Pong-v5`."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")
