"""Draws a population: who copied whom, and the schedules of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.plain_text import number
from autorl.core.types import ProposalId
from autorl.report.exploring import searched
from autorl.report.pages.chart import GAP, Axis, Chart, Line, Point, Spans, axis_of, positions
from autorl.report.pages.document import Block, Figure, Text, small
from autorl.report.text import value_text
from autorl.space import Hyperparameter
from autorl.store.rows import ProposalRow
from autorl.study.results.record import StudyRecord

_MOST_LEGS = 2000


@dataclass(frozen=True)
class Leg:
    """A part of a member's training.

    It is a proposal from one step to another.

    Attributes:
        row: of the proposal.
        member: the slot it fills.
        start: nominal step it begins at.
        donor: the member of another slot that it exploits; None if it continues its own.
    """

    row: ProposalRow
    member: str
    start: int
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
        donor = None if charged.parent is None else members.get(charged.parent)
        copied = donor if donor != member else None
        legs.append(Leg(rows[charged.proposal], member, charged.start, copied))
    return legs[:_MOST_LEGS]


def population_blocks(record: StudyRecord, best: ProposalId) -> list[Block]:
    """Draw lineage and schedules of a population.

    Empty for a study without one.
    """
    legs = legs_of(record)
    if not legs:
        return []
    chain = set(record.lineage(best).chain(best))
    text = "Values by step: the incumbent's schedule before the whole population's."
    charts = small(Figure(chart, "values-by-step") for chart in _schedules(record, legs, chain))
    lineage = Figure(_lineage(legs, chain, record.spec.steps), "lineage")
    return [lineage, *([Text(text, "note"), *charts] if charts else [])]


def _lineage(legs: list[Leg], chain: set[ProposalId], unit: str) -> Chart:
    """Draw what members trained, whom they copied, and the incumbent's way."""
    names = sorted({leg.member for leg in legs}, key=lambda name: (len(name), name))
    rows = {name: float(index) for index, name in enumerate(names)}
    bars = Spans(
        np.array([rows[leg.member] for leg in legs]),
        np.array([float(leg.start) for leg in legs]),
        np.array([float(leg.row.until) for leg in legs]),
        np.array([leg.row.score[0] if leg.row.score else np.nan for leg in legs]),
        tuple(map(_tip, legs)),
        "tuning score",
    )
    # A copy goes from the donor's row to the member's, and a gap follows it.
    copied = [
        (float(leg.start), row, _tip(leg))
        for leg in legs
        if leg.donor is not None
        for row in (rows[leg.donor], rows[leg.member], np.nan)
    ]
    way = [
        (float(step), rows[leg.member], _tip(leg))
        for leg in sorted(legs, key=lambda leg: leg.start)
        if leg.row.proposal in chain
        for step in (leg.start, leg.row.until)
    ]
    lines = [Line.through("exploit of another member", copied, muted=True)] if copied else []
    lines.append(Line.through("the incumbent's way", way))
    text = (
        "A row is a member of the population, a bar what it trained. A line between rows is an "
        "exploit: a copy of another member, or the mean of its weights and one's own."
    )
    axes = (Axis(unit, limits=(0.0, None)), Axis("member", categories=tuple(names)))
    return Chart("Lineage", text, *axes, (bars, *lines))


def _tip(leg: Leg) -> str:
    score = number(leg.row.score[0]) if leg.row.score else leg.row.status
    values = ", ".join(f"{name} {value_text(value)}" for name, value in leg.row.values.items())
    return (
        f"member {leg.member}, proposal {leg.row.proposal}: {leg.row.origin}\n"
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
        by_member = [[leg for leg in legs if leg.member == member] for member in members]
        marks = (
            _stairs(item, "whole population", by_member, muted=True),
            _stairs(item, "incumbent", [inherited]),
        )
        x = Axis(record.spec.steps, limits=(0.0, None))
        charts.append(Chart(item.name, "", x, axis_of(item), marks))
    return charts


def _stairs(
    item: Hyperparameter, label: str, paths: Sequence[Sequence[Leg]], *, muted: bool = False
) -> Line:
    """Draw a hyperparameter by step, a gap after each path."""
    points: list[Point] = []
    for legs in paths:
        for leg in legs:
            if item.name not in leg.row.values:
                continue
            value = leg.row.values[item.name]
            text = f"member {leg.member}: {value_text(value)} from step {leg.start:,}"
            placed = float(positions(item, [float(value)])[0])
            points += [(float(step), placed, text) for step in (leg.start, leg.row.until)]
        points.append(GAP)
    return Line.through(label, points, muted=muted, stepped=True)
