"""Says how a configuration does on each task.

And what it loses on new seeds and on new tasks:

    tuning score  --gap of seeds-->  tuning tasks, test seeds  --gap of tasks-->  test tasks

All three are by the study's aggregate, on the scale that the tasks share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.types import ProposalId, SeedRole, Status
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.comparison import ranks
from autorl.store.rows import TestRow
from autorl.study.results.estimates import Entry, Estimate, estimate
from autorl.study.results.record import StudyRecord


@dataclass(frozen=True)
class TaskScore:
    """The scores of incumbent and default on one task.

    They are in the objective's own direction.

    Attributes:
        role: of the task.
        tuning: the incumbent's on tuning seeds; None of a task to test on.
        test, default: the incumbent's and the default's on test seeds; None where no run succeeded.
        failed: test runs of the incumbent that failed.
    """

    task: str
    role: SeedRole
    tuning: float | None
    test: Estimate | None
    default: Estimate | None
    failed: int


@dataclass(frozen=True)
class TaskScores:
    """The scores of a study by task.

    Attributes:
        scores: of each task, those to tune on first.
        seeds, tasks: how much worse the incumbent is on test seeds of the tuning tasks than its
            tuning score, and how much worse again on the test tasks; None where not known.
        ranks: mean rank of each candidate among all of them, over tasks and test seeds; 1 is best.
    """

    scores: tuple[TaskScore, ...]
    seeds: float | None
    tasks: float | None
    ranks: Mapping[ProposalId, float]


def task_scores(
    record: StudyRecord, incumbent: ProposalId, tuning: float, entries: Sequence[Entry]
) -> TaskScores | None:
    """Return the scores of a study by task, None without tasks.

    Args:
        record: of the study.
        incumbent: its proposal.
        tuning: its tuning score.
        entries: what was tested.
    """
    spec = record.spec
    if spec.tasks is None:
        return None
    tests = record.tables.tests() if entries else []
    default = next((entry.proposal for entry in entries if entry.label == "default"), None)
    sign = spec.objectives()[0].sign

    def of(proposal: ProposalId | None, tasks: range) -> tuple[Estimate | None, int]:
        rows = [row for row in tests if row.proposal == proposal]
        rows = [row for row in rows if spec.plan.parts(row.seed)[0] in tasks]
        succeeded, failures = split(rows)
        return estimate(spec, proposal or 0, succeeded, list(failures)), len(failures)

    count = len(spec.tasks.tuning)
    scores = []
    for number, task in enumerate(spec.tasks.listed):
        test, failed = of(incumbent, range(number, number + 1))
        scores.append(
            TaskScore(
                task.label,
                "tuning" if number < count else "test",
                _on_tuning_seeds(record, incumbent, number),
                test,
                of(default, range(number, number + 1))[0],
                failed,
            )
        )
    seen, _ = of(incumbent, range(count))
    new, _ = of(incumbent, range(count, len(scores)))
    by_seeds = None if seen is None else sign * (tuning - seen.value)
    by_tasks = None if seen is None or new is None else sign * (seen.value - new.value)
    return TaskScores(tuple(scores), by_seeds, by_tasks, _mean_ranks(entries, sign))


def split(rows: Sequence[TestRow]) -> tuple[dict[int, float], dict[int, str]]:
    """Part test runs into scores and kinds of failure, by seed."""
    failures = {row.seed: row.status for row in rows if Status(row.status).failed}
    succeeded = {
        row.seed: row.value for row in rows if row.seed not in failures and row.value is not None
    }
    return succeeded, failures


def _on_tuning_seeds(record: StudyRecord, proposal: ProposalId, task: int) -> float | None:
    spec = record.spec
    sign = spec.objectives()[0].sign
    values = [
        sign * value
        for seed in record.tables.tuning_seeds(proposal)
        if spec.plan.parts(seed)[0] == task
        for value in record.tuning_values(proposal, seed)[:1]
    ]
    return sign * parse_aggregate(spec.evaluation.aggregate)(values) if values else None


def _mean_ranks(entries: Sequence[Entry], sign: float) -> dict[ProposalId, float]:
    """Rank candidates within each test run that all have.

    Equal scores share their ranks.
    """
    seeds = [set(entry.test.seeds) if entry.test else set() for entry in entries]
    shared = sorted(set.intersection(*seeds)) if seeds else []
    if not shared:
        return {}
    table = np.array(
        [[entry.test.seeds[seed] for seed in shared] for entry in entries if entry.test]
    )
    means = ranks(sign * table.T).mean(axis=0)
    return {entry.proposal: float(rank) for entry, rank in zip(entries, means, strict=True)}
