"""Builds prior files of landscapes, and the priors of studies.

Both are pure functions of what they read: the same sources give the same hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autorl.core.types import InputError
from autorl.optimizers.priors.ensemble import Ensemble, greedy
from autorl.optimizers.priors.families import family_of, task_weights
from autorl.optimizers.priors.mapping import map_task
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_prior import PLACES, VALUES, StudyPrior, searched_names
from autorl.optimizers.priors.table import Prior, TaskTable
from autorl.optimizers.priors.trust import measured_trust
from autorl.space import Space

PORTFOLIO = 32
"""Configurations of the portfolio of a prior file."""


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
    gathered = Gathered([[table] for table in tables])
    ensemble = Ensemble(fitted_prior(gathered, space, None, named=True).tasks, space)
    chosen = greedy(ensemble.values, ensemble.weights, PORTFOLIO)
    # Different texts, empty ones left out.
    licences, citations = (
        "; ".join(dict.fromkeys(filter(None, texts)))
        for texts in zip(*((table.licence, table.citation) for table in tables), strict=True)
    )
    return Prior(
        algorithm=algorithm,
        tasks=tuple(tables),
        portfolio=tuple(ensemble.pool[place] for place in chosen),
        description=description,
        licence=licences,
        citation=citations,
        notice=notice,
        built_with=built_with,
    )


def fitted_prior(
    gathered: Gathered, space: Space, environment: str | None, *, named: bool
) -> StudyPrior:
    """Map tables to a study's space and measure the trust in them.

    Args:
        gathered: the tables, and lines about what is none.
        space: of the study.
        environment: of the study; None: all families count alike.
        named: whether a source of which no table can be mapped is an error, or a line.

    Raises:
        InputError: `named`, and a source shares nothing with the space.
    """
    mapped, skipped = gathered.usable(
        lambda table: (map_task(table, space), map_task(table, space, by_place=True)),
        "optimizer.prior",
        named=named,
    )
    environments = [by_value.environment for by_value, _ in mapped]
    weights = task_weights(environments, environment)
    readings = {
        reading: tuple(
            replace(pair[number], weight=weight)
            for pair, weight in zip(mapped, weights, strict=True)
        )
        for number, reading in enumerate((VALUES, PLACES))
    }
    if all(np.array_equal(first.units, second.units) for first, second in mapped):
        del readings[PLACES]
    trust = {
        reading: measured_trust(Ensemble(tasks, space), environments, environment)
        for reading, tasks in readings.items()
        if tasks
    }
    family = "" if environment is None else family_of(environment)
    return StudyPrior(searched_names(space), readings, trust, skipped, family)
