"""Figures of landscapes' analyses, and what kept one from being drawn."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from autorl.landscapes import Landscape, analysis
from autorl.landscapes.analysis import Answer
from autorl.plain_text import counted
from autorl.report.page.document import tried
from autorl.report.page.draw import figure

_MOST_NOTES = 4


def answered(ask: Callable[[], Answer], name: str) -> str:
    """Draw an answer with its notes, or say why there is none.

    Args:
        ask: gives the answer.
        name: of the analysis.
    """
    return tried(lambda: drawn(ask()), name)


def drawn(answer: Answer) -> str:
    """Draw an answer with its notes below."""
    notes = "".join(f"<p class=note>{escape(text)}.</p>" for text in answer.notes[:_MOST_NOTES])
    return figure(analysis.chart_of(answer), kind=answer.kind) + notes


def importance_section(data: Landscape) -> tuple[str, list[str]]:
    """Draw how much each hyperparameter matters, and two together.

    These are the two that matter most.

    Returns:
        The HTML, and the hyperparameters, most important first; none where it cannot be said.
    """
    order: list[str] = []

    def importances() -> str:
        answer = analysis.importance(data)
        order.extend(str(name) for name in answer.table["hyperparameter"])
        return drawn(answer)

    html = tried(importances, "importance")
    if len(order) > 1:
        html += answered(lambda: analysis.analyse(data, "surface", order[:2]), "surface")
    return html, order


def noise_text(data: Landscape) -> str:
    """Say how much of the variance is seed noise."""

    def say() -> str:
        row = analysis.analyse(data, "noise").table.iloc[0]
        text = (
            f"Seed noise is {row['noise_share']:.0%} of the variance between runs "
            f"({counted(row['configurations'], 'configuration')} on "
            f"{counted(row['seeds'], 'seed')}; "
            f"intraclass correlation {row['icc']:.2f}, 95 % interval {row['low']:.2f} to "
            f"{row['high']:.2f}); a seed's standard deviation is {row['seed_sd']:.4g}."
        )
        return f"<p>{escape(text)}</p>"

    return tried(say, "seed noise")
