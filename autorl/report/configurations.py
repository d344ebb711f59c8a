"""Says how far each configuration of a study came.

It is complete, pruned, failed, or still training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_text import counted, number
from autorl.core.types import ProposalId
from autorl.report.text import value_cells
from autorl.store.rows import ProposalRow
from autorl.study.results.record import StudyRecord

RUNNING = "running"
COMPLETE = "complete"
PAUSED = "paused"
PRUNED = "pruned"
CONTINUED = "continued"
_ORDER = (RUNNING, COMPLETE, PRUNED, PAUSED, CONTINUED)
MEANINGS = {
    RUNNING: "is being trained, or waits for a worker",
    COMPLETE: "was trained to the full length",
    PRUNED: "was stopped early: others were better at that step",
    PAUSED: "ended at a step before the full length, and may go on while the search does",
    CONTINUED: "goes on with other hyperparameters, as another configuration",
}


@dataclass(frozen=True)
class ConfigurationRow:
    """A configuration, by its furthest proposal.

    Attributes:
        number: of the proposal that introduced it.
        state: one of `MEANINGS`, or the kind of its failure.
        score: of the first objective, on tuning seeds; None before one is known.
        incumbent: whether its furthest proposal is the incumbent.
        values: hyperparameters by name.
        proposal: its furthest one.
        until: the nominal step to which it is trained, without what runs now.
        n_seeds: that the score is of.
        origin: who proposed it first.
    """

    number: ProposalId
    state: str
    score: float | None
    incumbent: bool
    values: Mapping[str, Any]
    proposal: ProposalId = 0
    until: int = 0
    n_seeds: int = 0
    origin: str = ""

    @property
    def failed(self) -> bool:
        """Whether the state is a kind of failure."""
        return self.state not in MEANINGS

    def cells(self, horizon: int, names: Sequence[str]) -> list[str]:
        """Format the cells for readers, in the order of `header`."""
        mark = " *" if self.incumbent else ""
        return [
            f"{self.number}{mark}",
            self.state,
            number(self.score),
            str(self.n_seeds or ""),
            f"{self.until} of {horizon}",
            *value_cells(self.values, names),
        ]


def header(names: Sequence[str]) -> list[str]:
    """Name the cells of a row, hyperparameters last."""
    return ["configuration", "state", "tuning score", "seeds", "step", *names]


def configuration_rows(record: StudyRecord) -> list[ConfigurationRow]:
    """List the configurations of a study, in the order they were introduced.

    A run that ended early and was not continued is pruned where a stopping rule decides (it
    continues a run before it begins another), and once the search is over. Before that it is
    paused: only the optimizer knows whether it comes back to it.
    """
    horizon = record.spec.fidelity.steps
    decided = record.search_end is not None or record.spec.optimizer.stop is not None
    parents = {row.parent for row in record.tables.charged()}
    best = record.best
    by_number: dict[ProposalId, list[ProposalRow]] = {}
    origins: dict[ProposalId, str] = {}
    for proposal in record.tables.proposals():
        by_number.setdefault(proposal.first, []).append(proposal)
        origins.setdefault(proposal.first, proposal.origin)
    rows = []
    for first, proposals in by_number.items():
        last = max(proposals, key=lambda row: (row.until, row.proposal))
        state = last.status
        if any(row.status == "pending" for row in proposals):
            state = RUNNING
        elif state == "scored":
            state = COMPLETE
            if last.until < horizon:
                state = PRUNED if decided else PAUSED
            if last.until < horizon and last.proposal in parents:
                state = CONTINUED
        scored = max(proposals, key=lambda row: (bool(row.score), row.until, row.proposal))
        ended = [row.until for row in proposals if row.status != "pending"]
        rows.append(
            ConfigurationRow(
                number=first,
                proposal=last.proposal,
                state=state,
                until=max(ended, default=0),
                score=next(iter(scored.score), None),
                n_seeds=scored.n_seeds or 0,
                incumbent=any(row.proposal == best for row in proposals),
                origin=origins[first],
                values=last.values,
            )
        )
    return rows


def counts_text(rows: Sequence[ConfigurationRow]) -> str:
    """Count the states: `10 configurations: 3 running, 6 pruned, 1 crash`."""
    if not rows:
        return "none yet"
    counts = Counter(row.state for row in rows)
    names = [name for name in _ORDER if name in counts]
    names += sorted(set(counts) - set(_ORDER))
    total = counted(len(rows), "configuration")
    return f"{total}: " + ", ".join(f"{counts[name]} {name}" for name in names)
