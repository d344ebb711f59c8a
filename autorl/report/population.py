"""Draws a population: who copied whom, and the schedules of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from autorl.landscapes.analysis import Axis, Chart, Line, axis_of, positions
from autorl.landscapes.regression import Array
from autorl.report.exploring import searched
from autorl.report.page.draw import figure, shade
from autorl.report.page.frame import short_number, ticks
from autorl.report.text import number, value_text
from autorl.space import Hyperparameter
from autorl.store.rows import ProposalRow
from autorl.study.record import StudyRecord
from autorl.types import ProposalId

_MOST_LEGS = 2000
_ROW = 26
_LEFT = 64
_WIDTH = 900


@dataclass(frozen=True)
class Leg:
    """A part of a member's training.

    It is a proposal from one step to another.

    Attributes:
        row: of the proposal.
        member: the slot it fills.
        start: nominal step it begins at.
        parent: whose agent it begins with; None: a new one.
        donor: the member of another slot that it copies; None where it continues its own.
    """

    row: ProposalRow
    member: str
    start: int
    parent: ProposalId | None
    donor: str | None


def legs_of(record: StudyRecord) -> list[Leg]:
    """List the parts that members of a population trained, in order.

    Empty for a study without one.
    """
    members: dict[ProposalId, str] = {}
    for segment in record.tables.segments():
        if segment.member is not None:
            members[int(segment.segment.split(".")[0])] = segment.member
    if not members:
        return []
    rows = {row.proposal: row for row in record.tables.proposals()}
    legs = []
    for charged in reversed(record.tables.charged()):
        member = members.get(charged.proposal)
        if member is None:
            continue
        donor = members.get(charged.parent) if charged.parent is not None else None
        legs.append(
            Leg(
                rows[charged.proposal],
                member,
                charged.start,
                charged.parent,
                donor if donor != member else None,
            )
        )
    return legs[:_MOST_LEGS]


def population_section(record: StudyRecord, best: ProposalId) -> str:
    """Draw lineage and schedules of a population.

    Empty for a study without one.
    """
    legs = legs_of(record)
    if not legs:
        return ""
    chain = set()
    number_of: ProposalId | None = best
    while number_of is not None:
        chain.add(number_of)
        number_of = record.tables.link(number_of).resume_from
    charts = "".join(
        figure(chart, small=True, kind="values-by-step")
        for chart in _schedules(record, legs, chain)
    )
    text = "Values by step: the incumbent's schedule before the whole population's."
    schedules = f'<h3>Schedules</h3><p class=note>{text}</p><div class="grid-of">{charts}</div>'
    return _tree(legs, chain, record.spec.steps) + (schedules if charts else "")


def _tree(legs: list[Leg], chain: set[ProposalId], unit: str) -> str:
    names = sorted({leg.member for leg in legs}, key=lambda name: (len(name), name))
    rows = {name: 24 + _ROW * index for index, name in enumerate(names)}
    end = max(leg.row.until for leg in legs)
    height = 24 + _ROW * len(names) + 42
    scores = [leg.row.score[0] for leg in legs if leg.row.score]
    finite = [score for score in scores if np.isfinite(score)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)

    def across(step: float) -> float:
        return _LEFT + step / end * (_WIDTH - _LEFT - 20)

    parts = []
    for value in ticks(0.0, float(end), 6):
        at = across(value)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="12" y2="{height - 38}"/>'
            f'<text x="{at:.1f}" y="{height - 24}" text-anchor="middle">'
            f"{short_number(value)}</text>"
        )
    parts += [
        f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name[:8])}</text>'
        for name, y in rows.items()
    ]
    for leg in legs:
        if leg.donor is None:
            continue
        at = across(leg.start)
        above = rows[leg.donor]
        below = rows[leg.member]
        mark = " chain" if {leg.parent, leg.row.proposal} <= chain else ""
        parts.append(
            f'<path class="copy{mark}" d="M{at - 6:.1f} {above}C{at + 12:.1f} {above} '
            f'{at - 12:.1f} {below} {at + 5:.1f} {below}"/>'
        )
    for leg in legs:
        y = rows[leg.member]
        begin = across(leg.start) + 2
        finish = across(leg.row.until) - 2
        inside = leg.row.proposal in chain
        if inside:
            parts.append(
                f'<line class="leg chain" x1="{begin:.1f}" x2="{finish:.1f}" y1="{y}" y2="{y}" '
                'stroke="var(--c1)"/>'
            )
        color = "var(--grey)"
        if leg.row.score and np.isfinite(leg.row.score[0]):
            color = shade((leg.row.score[0] - low) / ((high - low) or 1.0))
        parts.append(
            f'<line class="leg" x1="{begin:.1f}" x2="{finish:.1f}" y1="{y}" y2="{y}" '
            f'stroke="{color}" data-tip="{escape(_tip(leg))}"/>'
        )
    parts.append(
        f'<text x="{_WIDTH / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(unit)}</text>'
    )
    note = (
        f"A row is a member of the population, a bar what it trained; dark bars scored "
        f"{short_number(low)}, bright ones {short_number(high)} on tuning seeds. A curve between "
        "rows is a copy of another member's weights and configuration. Orange: how the incumbent "
        "came to be."
    )
    return (
        '<figure class="chart" data-chart="lineage"><figcaption><b>Lineage</b>'
        f"<p class=note>{note}</p></figcaption><div class=scroll>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" class="plot" tabindex="0" role="group" '
        f'aria-label="lineage of the population">{"".join(parts)}</svg></div></figure>'
    )


def _tip(leg: Leg) -> str:
    score = number(leg.row.score[0]) if leg.row.score else leg.row.status
    how = f"copies member {leg.donor}" if leg.donor is not None else "goes on"
    if leg.parent is None:
        how = "begins"
    values = ", ".join(f"{name} {value_text(value)}" for name, value in leg.row.values.items())
    return (
        f"member {leg.member}, proposal {leg.row.proposal} {how}\n"
        f"steps {leg.start:,} to {leg.row.until:,}, tuning score {score}\n{values}"
    )


def _schedules(record: StudyRecord, legs: list[Leg], chain: set[ProposalId]) -> list[Chart]:
    """Make a chart of every hyperparameter that changed on the incumbent's way."""
    inherited = sorted(
        (leg for leg in legs if leg.row.proposal in chain), key=lambda leg: leg.start
    )
    if not inherited:
        return []
    charts = []
    members = sorted({leg.member for leg in legs})
    for item in searched(record.spec.search_space):
        if len({leg.row.values.get(item.name) for leg in inherited if item.numeric}) < 2:
            continue
        x: list[float] = []
        y: list[float] = []
        names: list[str] = []
        for member in members:
            parts = [leg for leg in legs if leg.member == member and item.name in leg.row.values]
            steps, values, texts = _stairs(parts, item.name)
            x += steps
            y += values
            names += texts
        inside = [leg for leg in inherited if item.name in leg.row.values]
        own_x, own_y, own_names = _stairs(inside, item.name)
        placed = _placed(item, y)
        marks = (
            Line(
                "whole population",
                np.array(x),
                placed,
                None,
                tuple(names),
                muted=True,
                stepped=True,
            ),
            Line(
                "incumbent",
                np.array(own_x),
                _placed(item, own_y),
                None,
                tuple(own_names),
                stepped=True,
            ),
        )
        charts.append(
            Chart(item.name, "", Axis(record.spec.steps, limits=(0.0, None)), axis_of(item), marks)
        )
    return charts


def _placed(item: Hyperparameter, values: Sequence[float]) -> Array:
    """Place values on an axis.

    What is no number stays a gap.
    """
    raw = np.array(values, dtype=np.float64)
    placed = np.full(len(raw), np.nan)
    numbers = np.isfinite(raw)
    placed[numbers] = positions(item, raw[numbers])
    return placed


def _stairs(legs: list[Leg], name: str) -> tuple[list[float], list[float], list[str]]:
    """List steps, values and names, a gap at the end."""
    x: list[float] = []
    y: list[float] = []
    names: list[str] = []
    for leg in legs:
        value = float(leg.row.values[name])
        text = f"member {leg.member}: {value_text(leg.row.values[name])} from step {leg.start:,}"
        x += [float(leg.start), float(leg.row.until)]
        y += [value, value]
        names += [text, text]
    return [*x, np.nan], [*y, np.nan], [*names, ""]
