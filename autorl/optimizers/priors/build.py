"""Builds prior files of landscapes, and the priors of studies.

Both are pure functions of what they read: the same sources give the same hash.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorl.core.types import InputError
from autorl.optimizers.priors.ensemble import ensemble_of, fit_task, greedy_portfolio
from autorl.optimizers.priors.families import family_of, task_weights
from autorl.optimizers.priors.mapping import map_task
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import StudyPrior, searched_names
from autorl.optimizers.priors.table import Prior, TaskTable
from autorl.space import Space

PORTFOLIO = 32
"""Configurations of the portfolio of a prior file."""
TRUST = 0.8
"""Part of the proposals that a prior with tasks of the study's family has before evidence."""
TRUST_IN_OTHERS = 0.1
"""That part where all tasks are of other families: a portfolio of these is worse than chance."""


def build_prior(
    tables: Sequence[TaskTable],
    space: Space,
    *,
    description: str = "",
    notice: str = "",
    built_with: str = "",
) -> Prior:
    """Build a prior from tables, of which there is at least one.

    Args:
        tables: one for each task.
        space: what the portfolio is made for.
        description: of the file.
        notice: text that a licence wants passed on with the data.
        built_with: the command that makes the file.

    Raises:
        InputError: a table is of another algorithm, is there twice, or shares nothing with the
            space.
    """
    algorithm = tables[0].algorithm
    sources: set[str] = set()
    for table in tables:
        if table.algorithm != algorithm:
            raise InputError(f"{table.source} is of {table.algorithm}, not of {algorithm}")
        if table.source in sources:
            raise InputError(f"{table.source} is there twice")
        sources.add(table.source)
    study_prior = fitted_prior(Gathered([[table] for table in tables]), space, None, named=True)
    # Different texts, empty ones left out.
    licences, citations = (
        "; ".join(dict.fromkeys(filter(None, texts)))
        for texts in zip(*((table.licence, table.citation) for table in tables), strict=True)
    )
    return Prior(
        algorithm=algorithm,
        tasks=tuple(tables),
        portfolio=tuple(greedy_portfolio(ensemble_of(study_prior, space), PORTFOLIO)),
        description=description,
        licence=licences,
        citation=citations,
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
    mapped, skipped = gathered.usable(
        lambda table: map_task(table, space), "optimizer.prior", named=named
    )
    environments = [task.environment for task in mapped]
    weights = task_weights(environments, environment)
    tasks = [fit_task(task, space, weight) for task, weight in zip(mapped, weights, strict=True)]
    family = "" if environment is None else family_of(environment)
    trust = TRUST if not family or family in map(family_of, environments) else TRUST_IN_OTHERS
    return StudyPrior(searched_names(space), tuple(tasks), trust if tasks else 0.0, skipped, family)
