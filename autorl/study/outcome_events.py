"""Outcomes as a study records them.

They are judged, and have their place among the runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from autorl.core.plain_text import listed
from autorl.core.types import Outcome, Segment, Status, step_problem
from autorl.statistics.evaluation import Curve, Judge
from autorl.store.events import SegmentEnded, SegmentPlace
from autorl.study.lineage import Lineage


def judged(
    segment: Segment,
    outcome: Outcome,
    nominal: int,
    judge: Judge,
    join: Callable[[Outcome], Curve],
    needed: str,
) -> Outcome:
    """Return an outcome as it is recorded.

    That is a failure where its metrics cannot be scored.

    Args:
        segment: that ended.
        outcome: as the worker sent it.
        nominal: step the segment starts at by its proposal.
        judge: scores the curve.
        join: joins an outcome of the segment to those of the chain before it.
        needed: a metric that the budget counts; "" of any other budget.
    """
    latest = max(segment.until, outcome.reached)  # it may end before or after its nominal step
    problem = step_problem(min(segment.start, nominal), latest, outcome.reports)
    if problem:
        outcome = dataclasses.replace(outcome, reports=())
    if outcome.status.failed:
        return outcome
    if problem:
        return dataclasses.replace(outcome, status=Status.CRASH, message=problem)
    try:
        value = judge.value(segment.id.seed, join(outcome))
        counts = [outcome.cost, *(report.metrics for report in outcome.reports)]
        if needed and not any(needed in values for values in counts):
            raise KeyError(needed)
    except (KeyError, ValueError) as error:
        # Metrics of other reports are no news.
        reports = outcome.reports
        lacking = [point for point in reports if error.args[0] not in point.metrics] or reports
        where = f"at step {lacking[0].step} " if len(lacking) < len(reports) else ""
        reported = sorted({name for report in lacking for name in report.metrics})
        message = (
            f"the study needs metric {error}; {where}the trainer reported "
            f"{listed(reported) or 'none'}"
        )
        return dataclasses.replace(outcome, status=Status.CRASH, message=message, unlogged=True)
    if value.status.failed:
        return dataclasses.replace(outcome, status=value.status, message=value.message)
    return outcome


def ended(
    segment: Segment,
    outcome: Outcome,
    lineage: Lineage,
    judge: Judge,
    join: Callable[[Outcome], Curve],
    environment: str | None,
) -> SegmentEnded:
    """Return the event of an outcome, with further facts for the tables.

    `environment`: its name, or that of the task, as tables say it.
    """
    reductions = None
    if not outcome.status.failed:
        reductions = tuple(judge.reductions(join(outcome)))
    proposal = segment.id.proposal
    run, parent_run = lineage.run_ids(proposal, segment.role, segment.id.seed)
    place = SegmentPlace(
        segment=segment.id,
        run_id=run,
        role=segment.role,
        algorithm=segment.trainer.name,
        environment=environment,
        parent_run=parent_run,
        start_step=lineage.run(proposal).start_step,
        member=lineage[proposal].member,
        parent=None if segment.parent is None else segment.parent.segment,
        from_step=segment.start,
    )
    # The log is of one study: which, is said where an executor serves several.
    fence = dataclasses.replace(outcome.fence, study="")
    return SegmentEnded(dataclasses.replace(outcome, fence=fence), place, reductions)


def agree(first: Outcome, again: Outcome) -> bool:
    """Say whether two trainings of a segment gave the same.

    They ended at one step with equal metrics. Metrics are compared at the steps that both
    evaluated.
    """
    recorded = {report.step: dict(report.metrics) for report in first.reports}
    equal = [
        recorded[report.step] == dict(report.metrics)
        for report in again.reports
        if report.step in recorded
    ]
    return first.reached == again.reached and all(equal)
