"""Finished studies side by side as one HTML file."""

from __future__ import annotations

from html import escape

import numpy as np

from autorl.landscapes.analysis import Axis, Chart, Line
from autorl.plain_text import counted
from autorl.plain_values import plain
from autorl.report.page.document import Section, page, table
from autorl.report.page.draw import figure
from autorl.report.studies import Compared, StudyComparison, pair_table, study_table
from autorl.report.text import interval_bounds, interval_text, number, value_text


def comparison_html(comparison: StudyComparison) -> str:
    """Write the report of a comparison of studies."""
    names = [study.name for study in comparison.studies]
    best = names[0]
    header, rows = study_table(comparison)
    scores = table(header, rows, sortable=True, best=lambda row: row[0] == best)
    pairs = table(*pair_table(comparison), sortable=True) if comparison.pairs else ""
    cautions = "".join(f"<p><b>Caution:</b> {escape(text)}</p>" for text in comparison.caveats)
    sections = [
        Section("scores", "Test scores", scores + figure(_seeds(comparison), kind="seeds")),
        Section("pairs", "In pairs", pairs),
        Section(
            "anytime", "Incumbents over the budget", figure(_curves(comparison), kind="curves")
        ),
        Section("cost", "Cost", figure(_cost(comparison), kind="cost")),
        Section("configurations", "Incumbents", _configurations(comparison)),
        Section("cautions", "Cautions", cautions),
    ]
    return page(f"{', '.join(names)} · autorl", _headline(comparison), sections)


def _headline(comparison: StudyComparison) -> str:
    names = " against ".join(study.name for study in comparison.studies)
    parts = [f"<h1>{escape(names)}</h1>"]
    # Before every number: what is not equal is no comparison of methods.
    if comparison.differences:
        items = "".join(f"<li>{escape(item.text)}</li>" for item in comparison.differences)
        parts.append(
            '<div class="loss" role="note"><b>Not an equal comparison. The studies differ in:</b>'
            f"<ul>{items}</ul></div>"
        )
    parts.append(f"<p>{escape(comparison.studies[0].result.objective)}</p>")
    parts.append(f"<p class=headline>{escape(_sentence(comparison))}</p>")
    return "".join(parts)


def _sentence(comparison: StudyComparison) -> str:
    """Say in a sentence which study has the best test score."""
    first, second = comparison.studies[:2]
    if first.result.test is None:
        return "No study has a test score yet."
    score = f"{number(first.result.test.iqm)}, {interval_text(first.result.test.iqm_interval)}"
    text = f"{first.name} has the best test score (IQM {score})"
    pair = next(
        (
            pair
            for pair in comparison.pairs
            if {pair.first, pair.second} == {first.name, second.name}
        ),
        None,
    )
    if pair is None:
        return f"{text}."
    span = interval_text(pair.interval)
    change = f"{number(pair.difference)} over {second.name}, 95 % interval {span}"
    doubt = "" if "better" in pair.verdict else ": the two cannot be told apart"
    return f"{text}, {change}{doubt}."


def _seeds(comparison: StudyComparison) -> Chart:
    """Draw the test scores of every study, seed by seed."""
    studies = comparison.studies
    names = tuple(study.name for study in studies)
    x = []
    y = []
    texts = []
    means = []
    spans = []
    for place, study in enumerate(studies):
        for seed, value in study.scores.items():
            x.append(place + 0.12)
            y.append(value)
            texts.append(f"{study.name}, seed {seed}")
        test = study.result.test
        means.append(np.nan if test is None else test.iqm)
        spans.append(interval_bounds(None if test is None else test.iqm_interval))
    low, high = np.array(spans).T
    places = np.arange(len(studies), dtype=np.float64)
    tuning = np.array([study.result.tuning for study in studies])
    single = Line(
        "single test seeds",
        np.array(x),
        np.array(y),
        None,
        tuple(texts),
        "o",
        joined=False,
        muted=True,
    )
    marks = (
        single,
        Line(
            "test score (IQM), 95 % interval",
            places,
            np.array(means),
            (low, high),
            names,
            "o",
            joined=False,
        ),
        Line("tuning score", places - 0.12, tuning, None, names, "^", joined=False),
    )
    about = "The incumbent of each study on held-out seeds."
    return Chart("Test scores", about, Axis("", categories=names), Axis("score"), marks)


def _curves(comparison: StudyComparison) -> Chart:
    """Draw the tuning score of every incumbent by the steps charged."""
    marks = []
    for study in comparison.studies:
        points = _of_full_length(study)
        end = float(study.trace[-1].steps)
        x = np.array([*(float(steps) for steps, _, _ in points), end])
        y = np.array([*(score for _, score, _ in points), points[-1][1]])
        names = [
            f"proposal {proposal}, {counted(steps, 'step', form=',')}"
            for steps, _, proposal in points
        ]
        # All that is known may be of one moment: a point then, not a line.
        marker = "o" if x[0] == x[-1] else ""
        marks.append(Line(study.name, x, y, None, (*names, names[-1]), marker, stepped=True))
    about = (
        "Tuning score of the incumbent: optimistic, since it was chosen by it. A line begins "
        "with the first proposal of the longest runs."
    )
    x_axis = Axis("tuning steps charged, all seeds", limits=(0.0, None))
    return Chart("Anytime curves", about, x_axis, Axis("tuning score"), tuple(marks))


def _of_full_length(study: Compared) -> list[tuple[int, float, int]]:
    """List steps, score and proposal where the incumbent changed.

    Incumbents of runs shorter than the longest are left out.
    """
    longest = max(study.lengths.values())
    points: list[tuple[int, float, int]] = []
    for point in study.trace:
        if study.lengths[point.proposal] < longest:
            continue
        if not points or points[-1][1] != point.score:
            points.append((point.steps, point.score, point.proposal))
    return points


def _cost(comparison: StudyComparison) -> Chart:
    """Draw test score against the steps that were trained."""
    marks = []
    for study in comparison.studies:
        test = study.result.test
        if test is None:
            continue
        span = test.iqm_interval
        band = None if span is None else (np.array([span.low]), np.array([span.high]))
        names = (f"{counted(study.trained, 'step', form=',.0f')}, {study.seconds:,.0f} s",)
        x = np.array([study.trained])
        marks.append(Line(study.name, x, np.array([test.iqm]), band, names, "o", joined=False))
    if not marks:
        marks = [Line("nothing was tested", np.array([]), np.array([]))]
    about = "Steps of search and test together; seconds under the pointer."
    x_axis = Axis("steps trained", limits=(0.0, None))
    return Chart("Test score and cost", about, x_axis, Axis("test score (IQM)"), tuple(marks))


def _configurations(comparison: StudyComparison) -> str:
    """Write the incumbents' configurations side by side."""
    configs = [dict(study.result.incumbent.config) for study in comparison.studies]
    names = dict.fromkeys(name for config in configs for name in config)
    rows = [
        [name, *(value_text(plain(config[name])) if name in config else "" for config in configs)]
        for name in names
    ]
    header = ["hyperparameter", *(study.name for study in comparison.studies)]
    return table(header, rows, sortable=True)
