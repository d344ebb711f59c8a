"""Builds prior files of landscapes, and the priors of studies.

Both are pure functions of what they read: the same sources give the same hash.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorl.core.types import InputError
from autorl.optimizers.priors.ensemble import ensemble_of, fit_task, greedy_portfolio
from autorl.optimizers.priors.families import family_of
from autorl.optimizers.priors.mapping import MappedTask, map_task
from autorl.optimizers.priors.sources import Gathered, algorithm_of
from autorl.optimizers.priors.study_prior import MOST_TASKS, StudyPrior, searched_names
from autorl.optimizers.priors.table import Prior, TaskTable
from autorl.space import Space

PORTFOLIO = 32
"""Configurations of the portfolio of a prior file."""
OTHER_FAMILY = 0.1
"""What another family of environments counts beside the study's own."""
TRUST = 0.8
"""Part of the proposals that a prior with tasks of the study's family has before evidence."""
TRUST_IN_OTHERS = 0.1
"""That part where all tasks are of other families: a portfolio of these is worse than chance."""


def build_prior(
    tables: Sequence[TaskTable],
    space: Space,
    *,
    algorithm: str | None = None,
    description: str = "",
    licence: str = "",
    citation: str = "",
    notice: str = "",
    built_with: str = "",
) -> Prior:
    """Build a prior from tables.

    Args:
        tables: one for each task.
        space: what the portfolio is made for.
        algorithm: of all of them; None: of the first.
        description: of the file.
        licence: of the file; without, those of the tables are joined.
        citation: likewise.
        notice: text that a licence wants passed on with the data.
        built_with: the command that makes the file.

    Raises:
        InputError: a table is of another algorithm, is there twice, or shares nothing with the
            space.
    """
    if not tables:
        raise InputError("a prior needs at least one landscape")
    expected = algorithm_of(algorithm) if algorithm is not None else tables[0].algorithm
    sources: set[str] = set()
    for table in tables:
        if table.algorithm != expected:
            raise InputError(f"{table.source} is of {table.algorithm}, not of {expected}")
        if table.source in sources:
            raise InputError(f"{table.source} is there twice")
        sources.add(table.source)
    study_prior = fitted_prior(Gathered([[table] for table in tables]), space, None, named=True)
    portfolio = greedy_portfolio(ensemble_of(study_prior, space), PORTFOLIO)
    return Prior(
        algorithm=expected,
        tasks=tuple(tables),
        portfolio=tuple(portfolio),
        description=description,
        licence=licence or _joined([table.licence for table in tables]),
        citation=citation or _joined([table.citation for table in tables]),
        notice=notice,
        built_with=built_with,
    )


def fitted_prior(
    gathered: Gathered, space: Space, environment: str | None, *, named: bool
) -> StudyPrior:
    """Map tables to a study's space and fit their surrogates.

    Args:
        gathered: the tables, and lines about what is none.
        space: of the study.
        environment: of the study; None: all families count alike.
        named: whether a source of which no table can be mapped is an error, or a line.

    Raises:
        InputError: `named`, and a source shares nothing with the space.
    """
    mapped: list[MappedTask] = []
    skipped = list(gathered.skipped)
    for tables in gathered.groups:
        before = len(skipped)
        of_source = _mapped(tables, space, skipped)
        if named and not of_source:
            raise InputError("; ".join(skipped[before:]), key="optimizer.prior")
        mapped += of_source
    for task in mapped[MOST_TASKS:]:
        skipped.append(f"{task.table.source}: a study takes {MOST_TASKS} tasks at most")
    mapped = mapped[:MOST_TASKS]
    families = [family_of(task.table.environment) for task in mapped]
    family = None if environment is None else family_of(environment)
    weights = family_weights(families, family)
    tasks = [fit_task(task, space, weight) for task, weight in zip(mapped, weights, strict=True)]
    trust = TRUST if family is None or family in families else TRUST_IN_OTHERS
    return StudyPrior(
        searched_names(space), tuple(tasks), trust if tasks else 0.0, tuple(skipped), family or ""
    )


def _mapped(tables: Sequence[TaskTable], space: Space, skipped: list[str]) -> list[MappedTask]:
    """Map the tables of a source.

    A line is added to `skipped` for each that cannot be mapped.
    """
    mapped = []
    for table in tables:
        try:
            mapped.append(map_task(table, space))
        except InputError as error:
            skipped.append(f"{table.source}: {error.message}")
    return mapped


def family_weights(families: Sequence[str], own: str | None) -> list[float]:
    """Return what tasks count before a study has results, of sum 1.

    The tasks of a family share its weight, so that ten of one do not outvote three of another.

    Args:
        families: of the tasks.
        own: that of the study; None: all families count alike.
    """
    shares = [
        (1.0 if own in (None, family) else OTHER_FAMILY) / families.count(family)
        for family in families
    ]
    # Rounded: it stands in study files, where 0.1 + 0.2 has no place.
    return [round(share / sum(shares), 6) for share in shares]


def _joined(texts: Sequence[str]) -> str:
    """Join different texts, empty ones left out."""
    return "; ".join(dict.fromkeys(text for text in texts if text))
