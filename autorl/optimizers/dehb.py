"""DEHB: Hyperband's brackets over differential evolution.

Every length of run has a population of its own. The first cycle of brackets is Hyperband's: random
configurations, or children where promotions have filled the population before, of which the best
are promoted, and a promotion continues from its checkpoint. After that nobody is promoted. Each run
of a bracket is a child: of a member of the population at its length, whose turn it is, and a mutant
of three parents: the best members one length below, in a bracket's first rung the best at its own.
A child is a new configuration and starts from scratch; it replaces its member unless worse. Scores
are therefore compared at equal length only, and lessons of short runs reach the long runs through
the parents.

    eta 2, 3 rungs, horizon 100; populations of 4 members at 25, 3 at 50, 3 at 100
    bracket 0: 4 runs to 25, 2 of them on to 50, 1 of them on to 100
    bracket 1: 3 runs to 50, 1 of them on to 100
    bracket 2: 3 runs to 100
    bracket 3: 4 children to 25, 2 children to 50, 1 child to 100

References:
    Awad, Mallik and Hutter, "DEHB: evolutionary hyperband for scalable, robust and efficient
    hyperparameter optimization", IJCAI 2021.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autorl.core.types import Config, Event, FrozenMap, Proposal, ProposalId, Proposed
from autorl.optimizers.base import Problem, Record
from autorl.optimizers.de import (
    PARENTS,
    EvolutionOptions,
    Members,
    new_point,
    point,
    point_of,
    rank,
)
from autorl.optimizers.hyperband import Bracket, Hyperband, HyperbandOptions

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DEHBOptions(HyperbandOptions, EvolutionOptions):
    pass


class DEHB(Hyperband[DEHBOptions]):
    """Hyperband's brackets over differential evolution: one population for every length of run."""

    Options = DEHBOptions
    learns = True
    takes_enqueued = False

    def __init__(self, problem: Problem, options: DEHBOptions) -> None:
        super().__init__(problem, options)
        # A population is as large as the largest rung that is brought to its length.
        sizes = dict.fromkeys(self.steps, 1)
        for number in range(len(self.steps)):
            for size, step in zip(*self.shape(number), strict=True):
                sizes[step] = max(sizes[step], size)
        self._members = {step: Members(self.history, size) for step, size in sizes.items()}
        self._tried: dict[int, set[Config]] = {step: set() for step in self.steps}

    def outline(self) -> tuple[str, ...]:
        """Describe what Hyperband does, and that later cycles start from scratch."""
        later = (
            "promotions go on from checkpoints in the first cycle; "
            "later cycles are children from scratch"
        )
        return (*super().outline(), later)

    def _promotes(self, bracket: Bracket) -> bool:
        """Tell whether the bracket is one of the first cycle."""
        return bracket.number < len(self.steps)

    def _next_of(self, bracket: Bracket, rng: np.random.Generator) -> Proposal:
        until = bracket.steps[bracket.rung]
        rung = bracket.rung
        slot = self._members[until].turn()
        if rung and self._promotes(bracket):
            promotion = super()._next_of(bracket, rng)
            # The point goes along: a configuration does not say where what is inactive lies.
            point_before = self.history[bracket.awaited[0]].proposal.meta["point"]
            return replace(promotion, meta=FrozenMap(promotion.meta, slot=slot, point=point_before))
        occupant = self._members[until].occupant[slot]
        space = self.problem.space
        parents = self._parents(bracket)
        is_initial = rung == 0 and self._started < len(self.problem.initial)
        if is_initial or occupant is None or len(parents) < PARENTS:
            config, origin, informed = self._new_configuration(rng)
            place = point_of(space, config)
        else:
            target = point(self.history[occupant])
            points = [point(record) for record in parents]
            tried = self._tried[until]
            config, drawn = new_point(space, target, points, self.options, tried, rng)
            origin = f"child of proposal {occupant}"
            place = point_of(space, config, drawn)
            informed = True
        meta = FrozenMap(bracket=bracket.number, rung=rung, slot=slot, point=place)
        return Proposal(config, until, origin=origin, meta=meta, informed=informed)

    def _parents(self, bracket: Bracket) -> list[Record]:
        """Return the best members one length below.

        In the first rung they are of its own length. They are filled up from all populations.
        """
        below = bracket.steps[max(0, bracket.rung - 1)]
        best = sorted(self._members[below].records(), key=rank)[: bracket.sizes[bracket.rung]]
        if len(best) < PARENTS:  # the global population of Awad et al. 2021
            among_best = {record.id for record in best}
            everybody = [
                record for members in self._members.values() for record in members.records()
            ]
            best += [record for record in everybody if record.id not in among_best]
        return best

    def _promote(self, bracket: Bracket, records: list[Record]) -> int:
        if self._promotes(bracket):
            return super()._promote(bracket, records)
        bracket.promoted.append([])  # nobody is promoted: the next rung is filled with children
        return bracket.sizes[bracket.rung + 1]

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            proposal = event.proposal
            self._tried[proposal.until].add(proposal.config)
            self._members[proposal.until].begin(event.id, proposal.meta["slot"])
        else:
            record = self.history[event.proposal]
            self._members[record.proposal.until].judge(record, record.proposal.meta["slot"])
        super()._observe(event)

    def keeps(self) -> Collection[ProposalId]:
        """Return what Hyperband keeps of the brackets of the first cycle."""
        resumable = super().keeps()
        return [
            proposal
            for proposal in resumable
            if self.history[proposal].proposal.meta["bracket"] < len(self.steps)
        ]
