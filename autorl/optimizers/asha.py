"""Asynchronous successive halving (Li et al., MLSys 2020), continuing from checkpoints.

No rung is ever waited for: whoever is among the best 1/eta of those scored so far at a rung goes on
to the next one, eta times longer; if there is nobody, a new configuration starts. Higher rungs
first.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from autorl.core.plain_text import counted
from autorl.core.types import Continue, Event, FrozenMap, Proposal, ProposalId, Proposed
from autorl.optimizers.base import Problem, Record
from autorl.optimizers.hyperband import Merit, RungOptimizer, RungOptions, may_go_on, merit

if TYPE_CHECKING:
    import numpy as np


class ASHA(RungOptimizer[RungOptions]):
    """Random configurations, promoted at once when in their rung's top 1/eta.
    A promoted run goes on eta times longer.
    """

    def __init__(self, problem: Problem, options: RungOptions) -> None:
        super().__init__(problem, options)
        self._runs = [0 for _ in self.steps]  # with an outcome, failures included
        # Runs that may go on, better first. Sorted lists, so that an outcome costs a bisection:
        # sorting a rung at every ask would make studies quadratic in their runs.
        self._ranked: list[list[Merit]] = [[] for _ in self.steps]
        # The part of them that is not promoted yet.
        self._waiting: list[list[Merit]] = [[] for _ in self.steps]
        # Merit of every proposal with an outcome; None = will not go on.
        self._merits: dict[ProposalId, Merit | None] = {}
        self._started = 0

    def outline(self) -> tuple[str, ...]:
        """Describe the rungs and how many configurations the budget pays for.

        Every rung lets its share go on.
        """
        eta = self.options.eta
        last = len(self.steps) - 1
        ends = ", ".join(f"{step:,}" for step in self.steps)
        lines = [f"rungs end at {ends} steps; one in {eta} goes on from each at once"]
        if math.isfinite(self.problem.budget):
            new = [
                step - before for step, before in zip(self.steps, (0, *self.steps), strict=False)
            ]
            # A rung is reached by one in eta of those before it, and costs its new steps only.
            mean = sum(steps / eta**rung for rung, steps in enumerate(new)) / self.problem.horizon
            started = self.problem.budget / mean
            lines.append(
                f"the budget pays for about {counted(started, 'configuration', form='.0f')}, "
                f"{started / eta**last:.0f} to the end"
            )
        return tuple(lines)

    def blind(self, number: int) -> bool:
        """Tell whether no run can be promoted before proposal `number`.

        A promotion takes `eta` scored runs, and more than one rung.
        """
        return number < self.options.eta or len(self.steps) == 1

    def _ask(self, rng: np.random.Generator) -> Proposal:
        # 1. promote, the highest rung first (`get_job` of Li et al. 2020, algorithm 2)
        for rung in reversed(range(len(self.steps) - 1)):
            parent = self._promotable(rung)
            if parent is not None:
                return Proposal(
                    parent.proposal.config,
                    self.steps[rung + 1],
                    Continue(parent.id),
                    origin=f"promoted to rung {rung + 1}",
                    meta=FrozenMap(rung=rung + 1),
                    informed=True,
                )
        # 2. nobody is to be promoted: start a new configuration
        first = self._initial_at(self._started)
        config, origin = first or (self.problem.space.sample(rng), "random")
        return Proposal(config, self.steps[0], origin=origin, meta=FrozenMap(rung=0))

    def _promotable(self, rung: int) -> Record | None:
        """Return the best run of a rung's top 1/eta not promoted yet."""
        if not self._waiting[rung]:
            return None
        best = self._waiting[rung][0]
        rank = bisect_left(self._ranked[rung], best)
        # top_k of the paper: |rung| / eta, rounded down. Failures count for |rung|, at the bottom.
        return self.history[best[-1]] if rank < self._runs[rung] // self.options.eta else None

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            parent = event.proposal.resume_from
            if parent is None:
                self._started += 1
                return
            merit_of_parent = self._merits[parent]
            assert merit_of_parent is not None, "a run that may not go on was promoted"
            _remove(self._waiting[event.proposal.meta["rung"] - 1], merit_of_parent)
            return
        record = self.history[event.proposal]
        rung = record.proposal.meta["rung"]
        old = self._merits.get(record.id)
        new = merit(record) if may_go_on(record) else None
        self._runs[rung] += record.id not in self._merits  # a later score is no further run
        self._merits[record.id] = new
        for ranks in (self._waiting[rung], self._ranked[rung]):
            # Not in `_waiting` when promoted before this later score: it is not promoted twice.
            if old is not None and not _holds(ranks, old):
                continue
            if old is not None:
                _remove(ranks, old)
            if new is not None:
                insort(ranks, new)

    def keeps(self) -> Collection[ProposalId]:
        """Return runs below the last rung that may be promoted one day."""
        last = len(self.steps) - 1
        pending = [i for i in self.history.pending if self.history[i].proposal.meta["rung"] < last]
        return pending + [number for ranks in self._waiting[:last] for _, _, number in ranks]


def _holds(ranks: Sequence[Merit], merit: Merit) -> bool:
    """Tell whether a merit is in the order, by bisection."""
    place = bisect_left(ranks, merit)
    return place < len(ranks) and ranks[place] == merit


def _remove(ranks: list[Merit], merit: Merit) -> None:
    assert _holds(ranks, merit), f"{merit} is not ranked"
    del ranks[bisect_left(ranks, merit)]
