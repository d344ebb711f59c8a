"""Charts of what was learnt: incumbents, curves and scores by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted, number
from autorl.core.types import Config, ProposalId, SeedRole
from autorl.report.configurations import CONTINUED, MEANINGS, RUNNING, configuration_rows
from autorl.report.pages.chart import GAP, Array, Axis, Chart, Line, Point
from autorl.report.pages.document import Block, Figure, Row
from autorl.report.reading import TracePoint
from autorl.report.text import interval_bounds
from autorl.statistics import bootstrap_interval, iqm
from autorl.statistics.coverage import level_text
from autorl.study import Estimate, Result
from autorl.study.results.record import StudyRecord
from autorl.study.spec import Spec
from autorl.trainers.language.tasks import task, tasks

_RESAMPLES = 400
"""Of the interval at each step of a curve, which is looked at and never reported."""
_MOST_CURVES = 6


def incumbent_chart(
    trace: Sequence[TracePoint], result: Result, lengths: Mapping[ProposalId, int]
) -> Chart:
    """Draw the incumbent over the budget, and test scores beside it.

    Args:
        trace: the incumbent after each score; not empty.
        result: of the study.
        lengths: nominal steps that proposals end at; incumbents of different lengths have lines of
            their own, since they cannot be compared.
    """
    parts = [
        (length, list(points))
        for length, points in groupby(trace, key=lambda point: lengths[point.proposal])
    ]
    end = trace[-1].steps
    ends = [*(points[0].steps for _, points in parts[1:]), end]
    marks = []
    for (length, points), following in zip(parts, ends, strict=True):
        several = len(parts) > 1
        label = f"of runs to step {length:,}" if several else "tuning score of the incumbent"
        marks.append(incumbent_line(label, points, following))
    about = "Tuning scores of what was best so far."
    if result.test is not None:
        about += " Horizontal lines are test scores."
        marks.append(_level("incumbent on test seeds", result.test, end))
        if result.default is not None and result.default.test is not None:
            marks.append(_level("default on test seeds", result.default.test, end))
    x_axis = Axis("tuning steps charged, all seeds", limits=(0.0, None))
    y_axis = Axis(f"score ({result.aggregate})")
    return Chart("Incumbent over the budget", about, x_axis, y_axis, tuple(marks))


def incumbent_line(label: str, points: Sequence[TracePoint], end: int) -> Line:
    """Draw the score of an incumbent up to `end`.

    It holds until the next.
    """
    # Equal ones in between add nothing but size.
    changed = [
        point
        for before, point in zip([None, *points], points, strict=False)
        if before is None or point.score != before.score
    ]
    x = np.array([*(point.steps for point in changed), end], dtype=np.float64)
    y = np.array([*(point.score for point in changed), changed[-1].score])
    names = [
        f"proposal {point.proposal}, {counted(point.steps, 'step', form=',')}" for point in changed
    ]
    # All scores may have come at one moment: a point then, not a line.
    marker = "o" if x[0] == x[-1] else ""
    return Line(label, x, y, None, (*names, names[-1]), marker, stepped=True)


def _level(label: str, test: Estimate, end: int) -> Line:
    span = test.interval
    band = None if span is None else (np.full(2, span.low), np.full(2, span.high))
    return Line(label, np.array([0.0, end]), np.full(2, test.value), band)


def score_marks(
    tests: Mapping[str, Estimate | None],
    labels: tuple[str, ...],
    tuning: str,
    scores: Iterable[float],
) -> tuple[Line, ...]:
    """Draw test seeds, their interquartile means, and tuning scores, place by place.

    Args:
        tests: on test seeds, by name.
        labels: of the places.
        tuning: name of the tuning scores.
        scores: on tuning seeds.
    """
    singles = [
        (place + 0.12, value, f"{name}, {test.run_text(seed)}")
        for place, (name, test) in enumerate(tests.items())
        if test is not None
        for seed, value in test.seeds.items()
    ]
    x, y, names = zip(*singles, strict=True) if singles else ((), (), ())
    means = [test.iqm if test else np.nan for test in tests.values()]
    spans = [interval_bounds(test.iqm_interval if test else None) for test in tests.values()]
    low, high = np.array(spans).T
    places = np.arange(len(tests), dtype=np.float64)
    return (
        Line.dots("single test seeds", x, y, names, muted=True),
        Line.dots("test score (IQM), interval", places, means, labels, (low, high)),
        Line.dots(tuning, places - 0.12, list(scores), labels, marker="^"),
    )


def seeds_chart(result: Result) -> Chart | None:
    """Draw test scores seed by seed, beside the tuning score.

    The result is None if nothing was tested.
    """
    entries = [entry for entry in result.entries if entry.test is not None]
    if not entries:
        return None
    labels = tuple(f"{entry.label}\nproposal {entry.proposal}" for entry in entries)
    tests = {entry.label: entry.test for entry in entries}
    scores = (entry.tuning for entry in entries)
    marks = score_marks(tests, labels, f"tuning score ({result.aggregate})", scores)
    about = "A tuning score above the test seeds is over-tuning; the spread of dots is seed noise."
    if result.direction == "minimize":
        about = about.replace("above", "below")
    if result.gap is not None:
        about += f" Gap of the incumbent: {number(result.gap)}."
    return Chart(
        "Tuning score and test seeds", about, Axis("", categories=labels), Axis("score"), marks
    )


def curves_chart(record: StudyRecord, result: Result) -> Chart | None:
    """Draw learning curves on test seeds.

    Before the test they are of tuning seeds, and while the search is open the configurations in
    training are beside the incumbent, as far as their segments have ended. None without a curve.
    """
    spec = record.spec
    metric = spec.objectives()[0].metric
    entries = result.entries
    role: SeedRole = "test" if entries else "tuning"
    shown = [(entry.label, entry.proposal) for entry in entries] or _of_search(record)
    read = ((*named, _scored_curves(record, named[1], metric, role)) for named in shown)
    drawn = list(islice((curves for curves in read if curves[2]), _MOST_CURVES))
    marks = [_single_seeds(spec, curves) for label, _, curves in drawn if label == "incumbent"]
    for label, proposal, curves in drawn:
        marks.append(_mean_of(spec, f"{label} (proposal {proposal})", proposal, curves))
    if not any(len(line.x) for line in marks):
        return None
    level = level_text("iqm", min(len(curves) for _, _, curves in drawn))
    about = f"IQM over {role} seeds and its {level}bootstrap interval at each step."
    if not entries and record.search_end is None:
        about += " A run in training is drawn to the end of its last segment."
    if spec.objective[0].reduce != "last":
        about += f" The study's score is the {spec.objective[0].reduce} of a curve, not its end."
    x = Axis(spec.steps, limits=(0.0, None))
    return Chart(f"Learning curves on {role} seeds", about, x, Axis(metric), tuple(marks))


def _of_search(record: StudyRecord) -> list[tuple[str, ProposalId]]:
    """List incumbent and default, then the others of an open search.

    Configurations in training come first, then the newest.
    """
    rows = configuration_rows(record)
    default = record.spec.search_space.default()
    named = {} if record.best is None else {record.best: "incumbent"}
    for row in rows:
        if not row.incumbent and Config(row.values) == default:
            named[row.proposal] = "default"
    if record.search_end is None:
        for row in sorted(rows, key=lambda row: (row.state != RUNNING, -row.number)):
            if row.state in MEANINGS and row.state != CONTINUED:
                named.setdefault(row.proposal, row.state)
    return [(label, proposal) for proposal, label in named.items()]


def _scored_curves(
    record: StudyRecord, proposal: ProposalId, metric: str, role: SeedRole
) -> dict[int, dict[int, float]]:
    """Read the scored curves, a parent's before a segment has ended.

    With tasks they are on the scale of these.
    """
    links = reversed(record.lineage(proposal).chain(proposal))
    read = (curves_of(record, link, metric, role) for link in links)
    judge = record.spec.judge()
    return {
        seed: dict(zip(curve, judge.scaled(seed, metric, np.array([*curve.values()])), strict=True))
        for seed, curve in next(filter(None, read), {}).items()
        if role == "tuning" or record.spec.plan.judges(seed)
    }


def curves_of(
    record: StudyRecord, proposal: ProposalId, metric: str, role: str
) -> dict[int, dict[int, float]]:
    """Read the learning curve of each seed of a proposal.

    A curve is values by step. Runs that failed are left out. A run that continues another has the
    values of both.
    """
    end = record.candidate_steps(proposal).end if role == "test" else None
    link = record.link_at(proposal, end)
    chain = record.lineage(link).chain(link)
    measured: dict[int, dict[int, float]] = {}
    for row in record.tables.values(metric, tuple(chain)):
        if row.role == role:
            measured.setdefault(row.run_id, {})[row.step] = row.value
    runs = {row.run_id: row for row in record.tables.runs()}
    last = {row.run_id for row in record.tables.values(metric, (link,)) if row.role == role}
    if not last:
        return {}
    until = record.until(link)
    curves: dict[int, dict[int, float]] = {}
    for leaf in last:
        if runs[leaf].status not in ("done", "stopped"):
            continue
        curve: dict[int, float] = {}
        limit = until
        run: int | None = leaf
        while run is not None and run in runs:
            values = measured.get(run, {})
            curve |= {step: value for step, value in values.items() if step <= limit}
            limit = runs[run].start_step
            run = runs[run].parent_run
        curves[runs[leaf].seed] = dict(sorted(curve.items()))
    return dict(sorted(curves.items()))


def _single_seeds(spec: Spec, curves: Mapping[int, Mapping[int, float]]) -> Line:
    """Join the curves of all seeds into one series, with gaps between."""
    points: list[Point] = []
    for seed, curve in curves.items():
        name = spec.plan.pair_text(seed)
        points += [(step, value, f"{name}, step {step:,}") for step, value in curve.items()]
        points.append(GAP)
    return Line.through("single seeds of the incumbent", points, muted=True)


def _mean_of(
    spec: Spec, label: str, proposal: ProposalId, curves: Mapping[int, Mapping[int, float]]
) -> Line:
    x, values = common_values(curves)
    rng = streams.generator(spec.seed, "test", f"curve {proposal}")
    means = []
    spans = []
    for column in values.T:
        means.append(iqm(column))
        span = interval_bounds(None)
        if len(column) > 1 and np.ptp(column) > 0:
            interval = bootstrap_interval(column, "iqm", rng=rng, resamples=_RESAMPLES)
            span = interval_bounds(interval)
        elif len(column) > 1:
            span = (float(column[0]), float(column[0]))
        spans.append(span)
    low, high = np.array(spans).reshape(-1, 2).T
    band = (low, high) if np.isfinite(low).any() else None
    return Line(label, x, np.array(means), band, marker="o" if len(x) == 1 else "")


def common_values(curves: Mapping[int, Mapping[int, float]]) -> tuple[Array, Array]:
    """Return the steps of all curves, and the values (curves, steps)."""
    common = sorted(set.intersection(*map(set, curves.values()))) if curves else []
    values = np.array([[curve[step] for step in common] for curve in curves.values()])
    return np.array(common, dtype=np.float64), values


def lengths_of(record: StudyRecord, trace: Sequence[TracePoint]) -> dict[ProposalId, int]:
    """Return the nominal end of every proposal that was the incumbent."""
    return {proposal: record.until(proposal) for proposal in {point.proposal for point in trace}}


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


def training_blocks(record: StudyRecord, result: Result) -> list[Block]:
    """Draw what the updates of the incumbent measured, on tuning seeds."""
    drawn = []
    for metric in record.tables.metrics_of_training():
        line = _of_incumbent(record, result, metric, "IQM of tuning seeds")
        if line is not None:
            x = Axis(record.spec.steps, limits=(0.0, None))
            about = "The incumbent, from the smallest to the largest seed."
            drawn.append(Figure(Chart(metric, about, x, Axis(metric), (line,)), metric))
    return [Row(drawn[first : first + 3]) for first in range(0, len(drawn), 3)]


def _of_incumbent(record: StudyRecord, result: Result, metric: str, label: str) -> Line | None:
    """Draw the interquartile mean of a metric over the incumbent's tuning seeds.

    The band is from the smallest to the largest seed. None without a value.
    """
    curves = curves_of(record, result.incumbent.proposal, metric, "tuning")
    steps, values = common_values(curves)
    if not values.size:
        return None
    means = np.array([iqm(column) for column in values.T])
    return Line(label, steps, means, (values.min(axis=0), values.max(axis=0)))


def _by_step(record: StudyRecord, result: Result, metrics: tuple[str, str]) -> Chart | None:
    """Draw both rewards of the incumbent by step.

    On tuning seeds: test runs may end at the step that was chosen, before gold falls.
    """
    proxy, gold = metrics
    of_proxy = _of_incumbent(record, result, proxy, f"{proxy} (trained on)")
    of_gold = _of_incumbent(record, result, gold, f"{gold} (meant)")
    if of_proxy is None or of_gold is None:
        return None
    text = (
        f"The incumbent on tuning seeds: IQM, from the smallest to the largest seed. "
        f"Where {proxy} rises and {gold} falls, the proxy is over-optimised."
    )
    x = Axis(record.spec.steps, limits=(0.0, None))
    marks = (of_proxy, of_gold)
    return Chart(f"{proxy} and {gold} while training", text, x, Axis("reward"), marks)


def _at_end(record: StudyRecord, metrics: tuple[str, str], label: str) -> Chart | None:
    """Draw runs at their last evaluation by two metrics."""
    first, second = (_last_values(record, metric) for metric in metrics)
    marks = []
    for role in ("tuning", "test"):
        runs = [
            row
            for row in record.tables.runs()
            if row.seed_role == role and row.run_id in first.keys() & second.keys()
        ]
        if runs:
            x, y = ([ends[row.run_id] for row in runs] for ends in (first, second))
            names = (
                f"configuration {row.config_id}, seed {row.seed}, {label} {number(value)}"
                for row, value in zip(runs, x, strict=True)
            )
            marks.append(Line.dots(f"runs on {role} seeds", x, y, names, muted=role == "tuning"))
    if not marks:
        return None
    text = "Every run at its last evaluation."
    return Chart(f"{metrics[1]} over {label}", text, Axis(label), Axis(metrics[1]), tuple(marks))


def _last_values(record: StudyRecord, metric: str) -> Mapping[int, float]:
    """Return the last value of a metric by run."""
    proposals = tuple(row.proposal for row in record.tables.proposals(500))
    # In order of steps: a later value takes the place of an earlier one.
    return {row.run_id: row.value for row in record.tables.values(metric, proposals)}
