"""Charts of an RLHF study: the proxy trained on, against gold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autorl.core.plain_text import number
from autorl.report.learning import curves_of
from autorl.report.pages import Axis, Chart, Line
from autorl.report.pages.document import Block, Figure, Row
from autorl.statistics import iqm
from autorl.study import Result
from autorl.study.results.record import StudyRecord
from autorl.trainers.language.tasks import task, tasks

_KL = "kl"


def proxy_blocks(record: StudyRecord, result: Result) -> list[Block]:
    """Draw the proxy against gold.

    The charts show the incumbent by step, and all runs at their end.

    Empty for a study of no RLHF task, or whose signal is gold itself.
    """
    environment = record.spec.environment
    if environment.id not in tasks():
        return []
    about = task(environment.id, environment.kwargs)
    if about.training == about.report:
        return []
    charts = [
        _by_step(record, result, (about.training, about.report)),
        _at_end(record, (about.training, about.report), about.training),
        _at_end(record, (_KL, about.report), "KL to the reference policy"),
    ]
    drawn = [Figure(chart, "proxy") for chart in charts if chart is not None]
    return [Row(drawn)] if drawn else []


def _by_step(record: StudyRecord, result: Result, metrics: tuple[str, str]) -> Chart | None:
    """Draw both rewards of the incumbent by step.

    On tuning seeds: test runs may end at the step that was chosen, before gold falls.
    """
    marks = []
    proxy, gold = metrics
    names = {proxy: f"{proxy} (trained on)", gold: f"{gold} (meant)"}
    for metric in metrics:
        curves = curves_of(record, result.incumbent.proposal, metric, "tuning")
        if not curves:
            continue
        common = sorted(set.intersection(*(set(curve) for curve in curves.values())))
        values = np.array([[curve[step] for step in common] for curve in curves.values()])
        if not values.size:
            continue
        marks.append(
            Line(
                names[metric],
                np.array(common, dtype=np.float64),
                np.array([iqm(column) for column in values.T]),
                (values.min(axis=0), values.max(axis=0)),
                marker="",
            )
        )
    if len(marks) < 2:
        return None
    text = (
        f"The incumbent on tuning seeds: IQM, from the smallest to the largest seed. "
        f"Where {proxy} rises and {gold} falls, the proxy is over-optimised."
    )
    x = Axis(record.spec.steps, limits=(0.0, None))
    return Chart(f"{proxy} and {gold} while training", text, x, Axis("reward"), tuple(marks))


def _at_end(record: StudyRecord, metrics: tuple[str, str], label: str) -> Chart | None:
    """Draw runs at their last evaluation by two metrics."""
    ends = {metric: _last_values(record, metric) for metric in metrics}
    runs = {row.run_id: row for row in record.tables.runs()}
    marks = []
    for role in ("tuning", "test"):
        shared = [
            run
            for run in ends[metrics[0]]
            if run in ends[metrics[1]] and runs[run].seed_role == role
        ]
        if shared:
            marks.append(
                Line.dots(
                    f"runs on {role} seeds",
                    [ends[metrics[0]][run] for run in shared],
                    [ends[metrics[1]][run] for run in shared],
                    (
                        f"configuration {runs[run].config_id}, seed {runs[run].seed}, "
                        f"{label} {number(ends[metrics[0]][run])}"
                        for run in shared
                    ),
                    muted=role == "tuning",
                )
            )
    if not marks:
        return None
    text = "Every run at its last evaluation."
    return Chart(f"{metrics[1]} over {label}", text, Axis(label), Axis(metrics[1]), tuple(marks))


def _last_values(record: StudyRecord, metric: str) -> Mapping[int, float]:
    """Return the last value of a metric by run."""
    proposals = tuple(row.proposal for row in record.tables.proposals(500))
    # In order of steps: a later value takes the place of an earlier one.
    return {row.run_id: row.value for row in record.tables.values(metric, proposals)}
