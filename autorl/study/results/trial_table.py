"""The runs of a study as rows, for `Result.trials`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from autorl.core.types import ProposalId, SegmentId
from autorl.statistics.evaluation import COST_METRICS, Objective
from autorl.statistics.reductions import parse_reduction
from autorl.store.rows import SUCCEEDED, EvaluationRow, RunRow
from autorl.study.results.record import StudyRecord

TrialRow: TypeAlias = Mapping[str, Any]

Curves: TypeAlias = Mapping[tuple[int, str], Mapping[int, float]]
"""Values by step, of a run and a metric."""


def trial_rows(record: StudyRecord) -> list[TrialRow]:
    """List the runs of a study that have begun.

    `Result.trials` says what a row holds.
    """
    tables = record.tables
    configs = {row.first: row for row in tables.configs()}
    until = {row.proposal: row.until for row in tables.proposals()}
    links: dict[int, list[ProposalId]] = {}
    reached: dict[int, int] = {}
    for segment in tables.segments():
        links.setdefault(segment.run_id, []).append(SegmentId.parse(segment.segment).proposal)
        reached[segment.run_id] = max(reached.get(segment.run_id, 0), segment.to_step)
    curves = _curves(tables.evaluations())
    runs = {run.run_id: run for run in tables.runs()}
    tests = [
        {(row.proposal, row.seed): row.value for row in tables.tests(index)}
        for index, _ in enumerate(record.spec.objectives())
    ]
    rows: list[TrialRow] = []
    for number, run in runs.items():
        chain = sorted(set(links.get(number, ())))
        last = chain[-1] if chain else run.config_id
        cuts = {until[link] for link in chain[:-1]}.difference(record.spec.evaluation_steps)
        values: dict[str, float | None] = {}
        for index, objective in enumerate(record.spec.objectives()):
            name = "value" if len(tests) == 1 else f"value_{objective.metric}"
            if run.seed_role == "test":
                values[name] = tests[index].get((last, run.seed))
            elif run.status in SUCCEEDED:
                values[name] = _value(objective, run, runs, curves, cuts)
            else:
                values[name] = None
        config = configs[run.config_id]
        rows.append(
            {
                "run": number,
                "configuration": run.config_id,
                "proposal": last,
                "role": run.seed_role,
                "seed": run.seed,
                "state": _state(run, until.get(last, 0), record.spec.fidelity.steps),
                "steps": reached.get(number, 0),
                **values,
                "origin": config.origin,
                "environment_steps": run.environment_steps,
                "wall_seconds": run.wall_seconds,
                **{f"params_{name}": value for name, value in config.values.items()},
            }
        )
    return rows


def _state(run: RunRow, until: int, steps: int) -> str:
    """Say how a run stands: `complete`, `stopped`, or its failure."""
    if run.status not in SUCCEEDED:
        return run.status
    # A test run may end at the step that tuning seeds have chosen, and is whole then.
    at_end = run.status == "done" and (until >= steps or run.seed_role == "test")
    return "complete" if at_end else "stopped"


def _curves(evaluations: Sequence[EvaluationRow]) -> Curves:
    curves: dict[tuple[int, str], dict[int, float]] = {}
    for row in evaluations:
        if row.value is not None:
            curves.setdefault((row.run_id, row.metric), {})[row.step] = row.value
    return curves


def _value(
    objective: Objective, run: RunRow, runs: Mapping[int, RunRow], curves: Curves, cuts: set[int]
) -> float | None:
    """Reduce the learning curve of a run as the study does."""
    if objective.metric in COST_METRICS:
        costs = {"environment_steps": run.environment_steps, "wall_seconds": run.wall_seconds}
        return costs[objective.metric]
    points: dict[int, float] = {}
    link: RunRow | None = run
    end = None
    while link is not None:
        points_of_run = curves.get((link.run_id, objective.metric), {})
        points |= {
            step: value for step, value in points_of_run.items() if end is None or step <= end
        }
        end = link.start_step
        link = None if link.parent_run is None else runs.get(link.parent_run)
    series = [value for step, value in sorted(points.items()) if step not in cuts]
    if not series:
        return None
    reduce = parse_reduction(objective.reduce)
    return objective.sign * reduce(objective.sign * np.array(series))
