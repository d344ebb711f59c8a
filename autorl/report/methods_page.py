"""Methods side by side as one HTML file: ranks, profiles, scores."""

from __future__ import annotations

import numpy as np

from autorl.core.plain_text import number
from autorl.report.comparison import Comparison, Overall, comparison_tables, tests_text
from autorl.report.pages.chart import Axis, Chart, Line
from autorl.report.pages.document import Block, Figure, Headline, Row, Section, Table, Text, page


def methods_html(comparison: Comparison) -> str:
    """Write the report of a comparison of methods."""
    overall = comparison.overall
    result: list[Block] = [Text(text, "caution") for text in comparison.caveats]
    charts: list[Block] = []
    if overall is not None:
        best = overall.standings[0]
        about = f"average rank over {overall.cases} cases, 1 is best"
        result = [Headline(number(best.rank), f"{best.method} has the best rank", about), *result]
        result += [Text(text) for text in tests_text(comparison)]
        charts = [Row([Figure(_ranks(overall), "ranks"), Figure(_profiles(overall), "profiles")])]
    sections = [
        Section("result", "Result", result),
        Section("charts", "Charts", charts),
        *(
            Section(title.lower().replace(" ", "-"), title, [Table(*table, sortable=True)])
            for title, table in comparison_tables(comparison).items()
        ),
    ]
    methods = dict.fromkeys(row.method for row in comparison.rows)
    return page(" against ".join(methods), comparison.objective, sections)


def _ranks(overall: Overall) -> Chart:
    """Draw the diagram of the critical difference."""
    names = tuple(it.method for it in overall.standings)
    ranks = np.array([it.rank for it in overall.standings])
    half = overall.difference / 2
    about = "Average ranks; two methods whose bars do not overlap differ (Nemenyi, 5 %)."
    marks = Line.dots("average rank", range(len(names)), ranks, names, (ranks - half, ranks + half))
    return Chart("Critical difference", about, Axis("", categories=names), Axis("rank"), (marks,))


def _profiles(overall: Overall) -> Chart:
    """Draw the share of studies above each scaled score."""
    x = np.array(overall.thresholds)
    marks = []
    for it in overall.standings:
        band = None if it.band is None else (np.array(it.band[0]), np.array(it.band[1]))
        marks.append(Line(it.method, x, np.array(it.profile), band))
    about = "Share of studies with a higher scaled score, and its 95 % band."
    y = Axis("share of studies", limits=(0.0, 1.0))
    return Chart("Performance profiles", about, Axis("scaled score"), y, tuple(marks))
