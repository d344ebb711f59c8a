"""Integrity rules for landscapes.

Each is one function that yields what is wrong. Most were broken by a published set.

A rule over one data set takes a `Landscape`; a rule over several takes all of them and also yields
whose fault it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from autorl.core.types import InputError
from autorl.landscapes import _rules as rules
from autorl.landscapes._views import first_line
from autorl.landscapes.dataset import Dataset

Rule: TypeAlias = Callable[[Dataset], Iterator[str]]
SetRule: TypeAlias = Callable[[Sequence[Dataset]], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Problem:
    """A broken rule."""

    rule: str
    landscape: str
    message: str

    def __str__(self) -> str:
        return f"{self.landscape}: {self.rule}: {self.message}"


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        rules.files_match_manifest,
        rules.typed_columns,
        rules.references_resolve,
        rules.configs_keyed_by_hash,
        rules.seed_roles_agree,
        rules.complete_or_explained,
        rules.counted_steps,
        rules.provenance_recorded,
        rules.steps_increase,
        rules.bounded_returns,
        rules.failures_marked,
        rules.independent_seeds,
        rules.distinct_curves,
        rules.adjacent_checkpoints_agree,
    )
}
SET_RULES: Mapping[str, SetRule] = {
    rule.__name__: rule for rule in (rules.distinct_data, rules.one_name_per_task)
}


def validate(
    folders: str | Path | Sequence[str | Path], progress: Callable[[str, str], None] | None = None
) -> list[Problem]:
    """Find the problems of one or several landscape folders.

    The list is empty if there are none.

    Rules that look across data sets see the folders given together. A rule that cannot even read
    the data reports that as its problem.

    Args:
        folders: of the landscapes.
        progress: called with the id of a landscape and the rule that is looked at next.

    Raises:
        InputError: a folder is not a landscape.
    """
    several = [folders] if isinstance(folders, str | Path) else list(folders)
    landscapes = [Dataset(folder) for folder in several]
    problems: list[Problem] = []
    readable = []
    # Rules that look across data sets need those that every rule could read.
    for landscape in landscapes:
        broken, is_readable = _check(landscape, progress)
        problems += broken
        if is_readable:
            readable.append(landscape)
    for name, set_rule in SET_RULES.items():
        problems += [Problem(name, owner, message) for owner, message in set_rule(readable)]
    return problems


def _check(
    landscape: Dataset, progress: Callable[[str, str], None] | None
) -> tuple[list[Problem], bool]:
    """Find the problems of one data set.

    Beside them stands whether every rule could read it.
    """
    import duckdb

    problems = []
    is_readable = True
    for name, rule in RULES.items():
        if progress is not None:
            progress(landscape.manifest.id, name)
        try:
            for message in rule(landscape):
                problems.append(Problem(name, landscape.manifest.id, message))
        except InputError as error:
            problems.append(Problem(name, landscape.manifest.id, f"cannot be checked: {error}"))
            is_readable = False
        # Data that is not as the schema says can break a rule in any way; the others still speak.
        except (duckdb.Error, ValueError, TypeError, LookupError, ArithmeticError) as error:
            message = f"cannot be checked: {type(error).__name__}: {first_line(error)}"
            problems.append(Problem(name, landscape.manifest.id, message))
            is_readable = False
    return problems, is_readable
