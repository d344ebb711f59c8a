"""The dry run of `autorl landscape build --family`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autorl.cli.options import print_json, say
from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.population.task_families import TaskFamily
from autorl.report.table import columns
from autorl.study.building import BuildPlan, build_cost, is_written


def print_family(
    family: TaskFamily, plans: Sequence[BuildPlan], out: Path, workers: int | None, *, as_json: bool
) -> None:
    """Print the variants of a family and the cost of its builds."""
    if plans[0].is_lineage:
        raise InputError("the counts of a population depend on scores", key="optimizer")
    cost = build_cost(plans[0], workers)
    written = [is_written(plan, out) for plan in plans]
    remaining = len(plans) - sum(written)
    if as_json:
        variants = [
            {"landscape": plan.id, "hash": item.hash, "parameters": dict(item.parameters)}
            for plan, item in zip(plans, family.variants, strict=True)
        ]
        work = {"runs": remaining * cost.runs, "steps": remaining * cost.steps}
        print_json({"family": family.about, "variants": variants, "remaining": remaining, **work})
        return
    rows = [("dry run", "nothing is written"), ("family", f"{family.name}, for {family.purpose}")]
    for plan, item, done in zip(plans, family.variants, written, strict=True):
        text = f"{item.text} (written)" if done else item.text
        rows.append((plan.id, text))
    rows.append(("runs", f"{remaining * cost.runs:,} in {counted(remaining, 'build')}"))
    if cost.time is not None:
        rows.append(("time", f"{cost.time.text(cost.workers)} for each build"))
    say(columns(rows[0], rows[1:], indent=""))
