"""Figures of landscapes' analyses, and what kept one from being drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autorl.core.plain_text import counted, number
from autorl.landscapes import Landscape, analysis
from autorl.landscapes.analysis import Answer
from autorl.report.pages.document import Block, Figure, Text, tried

_MOST_NOTES = 4


def answered(ask: Callable[[], Answer], name: str) -> list[Block]:
    """Draw an answer with its notes, or say why there is none.

    Args:
        ask: gives the answer.
        name: of the analysis.
    """
    return tried(lambda: [drawn(ask())], name)


def drawn(answer: Answer) -> Figure:
    """Draw an answer with its notes below."""
    return Figure(analysis.chart_of(answer), answer.kind, answer.notes[:_MOST_NOTES])


def importance_blocks(data: Landscape) -> tuple[list[Block], list[str]]:
    """Draw how much each hyperparameter matters, and the top two together.

    Returns:
        The blocks, and the hyperparameters, most important first; none if it is unknown.
    """
    order: list[str] = []

    def importances() -> list[Block]:
        answer = analysis.importance(data)
        order.extend(str(name) for name in answer.table["hyperparameter"])
        return [drawn(answer)]

    blocks = tried(importances, "importance")
    if len(order) > 1:
        blocks += answered(lambda: analysis.analyse(data, "surface", order[:2]), "surface")
    return blocks, order


def noise_blocks(data: Landscape) -> list[Block]:
    """Say how much of the variance is seed noise."""
    return tried(lambda: [noise_text(analysis.analyse(data, "noise").table.iloc[0])], "seed noise")


def noise_text(noise: Mapping[str, Any]) -> Text:
    """Say what `seed_noise` has measured."""
    return Text(
        f"Seed noise is {noise['noise_share']:.0%} of the variance between runs "
        f"({counted(noise['configurations'], 'configuration')} on "
        f"{counted(noise['seeds'], 'seed')}; "
        f"intraclass correlation {noise['icc']:.2f}, 95 % interval {noise['low']:.2f} to "
        f"{noise['high']:.2f}); a seed's standard deviation is {number(noise['seed_sd'])}."
    )
