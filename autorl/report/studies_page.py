"""Finished studies side by side as one HTML file."""

from __future__ import annotations

import numpy as np

from autorl.core.plain_text import counted, number
from autorl.report.learning import incumbent_line, score_marks
from autorl.report.pages.chart import Axis, Chart, Line
from autorl.report.pages.document import Block, Figure, Headline, Row, Section, Table, Text, page
from autorl.report.studies import StudyComparison, pair_table, study_table
from autorl.report.text import interval_bounds, interval_text, side_by_side


def comparison_html(comparison: StudyComparison) -> str:
    """Write the report of a comparison of studies."""
    names = [study.name for study in comparison.studies]
    pairs = [Table(*pair_table(comparison), sortable=True)] if comparison.pairs else []
    scores = Table(*study_table(comparison), sortable=True, best=names[0])
    figures = Row([Figure(_seeds(comparison), "seeds"), Figure(_cost(comparison), "cost")])
    anytime = Figure(_curves(comparison), "curves")
    sections = [
        Section("result", "Result", _result(comparison)),
        Section("scores", "Test scores", [scores, figures]),
        Section("pairs", "In pairs", pairs),
        Section("anytime", "Incumbents over the budget", [anytime], half=True),
        Section("configurations", "Incumbents", [_configurations(comparison)], half=True),
    ]
    return page(" against ".join(names), comparison.studies[0].result.objective, sections)


def _result(comparison: StudyComparison) -> list[Block]:
    """Say which study is best, and what makes the comparison unequal."""
    blocks: list[Block] = []
    # Before every number: what is not equal is no comparison of methods.
    if comparison.differences:
        items = tuple(item.text for item in comparison.differences)
        blocks.append(Text("Not an equal comparison. The studies differ in:", "loss", items))
    cautions = [Text(text, "caution") for text in comparison.caveats]
    return [*blocks, _headline(comparison), *cautions]


def _headline(comparison: StudyComparison) -> Headline:
    """Say which study has the best test score, and by how much."""
    first, second = comparison.studies[:2]
    if first.iqm is None:
        return Headline("No study has a test score yet.")
    about = f"IQM, interval {interval_text(first.interval)}"
    best = {first.name, second.name}
    pair = next((pair for pair in comparison.pairs if {pair.first, pair.second} == best), None)
    if pair is not None:
        span = interval_text(pair.interval)
        about += f"; {number(pair.difference)} over {second.name}, interval {span}"
        about += "" if "better" in pair.verdict else ": the two cannot be told apart"
    return Headline(number(first.iqm), f"{first.name} has the best test score", f"{about}.")


def _seeds(comparison: StudyComparison) -> Chart:
    """Draw the test scores of every study, seed by seed."""
    studies = comparison.studies
    names = tuple(study.name for study in studies)
    tests = {study.name: study.result.test for study in studies}
    marks = score_marks(tests, names, "tuning score", (study.result.tuning for study in studies))
    about = "The incumbent of each study on held-out seeds."
    return Chart("Test scores", about, Axis("", categories=names), Axis("score"), marks)


def _curves(comparison: StudyComparison) -> Chart:
    """Draw the tuning score of every incumbent by the steps charged."""
    marks = []
    for study in comparison.studies:
        longest = max(study.lengths.values())
        points = [point for point in study.trace if study.lengths[point.proposal] == longest]
        marks.append(incumbent_line(study.name, points, study.trace[-1].steps))
    about = (
        "Tuning score of the incumbent: optimistic, since it was chosen by it. A line begins "
        "with the first proposal of the longest runs."
    )
    x_axis = Axis("tuning steps charged, all seeds", limits=(0.0, None))
    return Chart("Anytime curves", about, x_axis, Axis("tuning score"), tuple(marks))


def _cost(comparison: StudyComparison) -> Chart:
    """Draw test score against the steps that were trained."""
    marks = []
    for study in comparison.studies:
        if study.iqm is None:
            continue
        low, high = interval_bounds(study.interval)
        names = (f"{counted(study.trained, 'step', form=',.0f')}, {study.seconds:,.0f} s",)
        band = (np.array([low]), np.array([high]))
        marks.append(Line.dots(study.name, [study.trained], [study.iqm], names, band))
    if not marks:
        marks = [Line("nothing was tested", np.array([]), np.array([]))]
    about = "Steps of search and test together; seconds under the pointer."
    x_axis = Axis("steps trained", limits=(0.0, None))
    return Chart("Test score and cost", about, x_axis, Axis("test score (IQM)"), tuple(marks))


def _configurations(comparison: StudyComparison) -> Table:
    """Write the incumbents' configurations side by side."""
    named = [(study.name, study.result.incumbent.config) for study in comparison.studies]
    return Table(*side_by_side(named), sortable=True)
