"""Population-based training, synchronous (Jaderberg et al. 2017): truncation selection at equal steps.

A population of runs trains in generations of equal length. When a whole generation is scored, each member of the
bottom quantile exploits one of the top quantile: it resumes from the donor's checkpoint with the donor's whole
configuration, and explores: each changeable hyperparameter is moved or drawn anew in the unit cube, valid and within
its bounds always. Everybody else continues. A member that failed or stopped itself is replaced in the same way, by a
clone of a survivor.

    generation 0   member 0: Proposal(c0, until=10)                   member 1: Proposal(c1, until=10)
    Scored(0, 1.0), Scored(1, 0.2)
    generation 1   member 0: Proposal(c0, until=20, resume_from=0)    member 1: Proposal(c0', until=20, resume_from=0)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autorl.optimizers.base import BaseOptimizer, Problem, Record, option
from autorl.optimizers.hyperband import may_go_on, merit
from autorl.types import Done, Event, FrozenMap, InputError, Proposal, ProposalId, Proposed, Wait

if TYPE_CHECKING:
    import numpy as np

POPULATIONS = (8, 64)  # members when the study's budget is unlimited, and at most when it decides


@dataclass(frozen=True)
class PBTOptions:
    population: int | None = option(None, "members; null: as many full-length runs as the budget affords", minimum=2)
    generations: int = option(10, "segments of equal length between which members exploit and explore", minimum=2)
    quantile: float = option(
        0.25, "part of the population that is replaced, and part that is copied", minimum=0.0, maximum=0.5
    )
    step: float = option(0.2, "how far explore moves, in units of a hyperparameter's range", minimum=0.0, maximum=1.0)
    resample: float = option(0.25, "probability that explore draws a hyperparameter anew", minimum=0.0, maximum=1.0)


class PBT(BaseOptimizer[PBTOptions]):
    """A population whose worst members copy the best, weights and configuration, and perturb what may change."""

    Options = PBTOptions
    partial = True
    population_based = True

    def __init__(self, problem: Problem, options: PBTOptions) -> None:
        if not problem.changeable:
            raise InputError("pbt changes hyperparameters during training: mark some `changeable: true`", key="space")
        super().__init__(problem, options)
        self.population = options.population or _affordable(problem.budget)
        count = min(options.generations, problem.horizon)
        self.steps = tuple(-(-problem.horizon * part // count) for part in range(1, count + 1))
        self._members: list[ProposalId] = []  # proposal of (generation, member) at generation * population + member

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        generation, member = divmod(len(self._members), self.population)
        if generation == len(self.steps):
            return Done()
        if generation == 0:
            return self._first(member, rng)
        previous = self._generation(generation - 1)
        if any(record.result is None for record in previous):
            return Wait()
        return self._next(previous, generation, member, rng)

    def _first(self, member: int, rng: np.random.Generator) -> Proposal:
        if member < len(self.problem.initial):
            config, origin = self.problem.initial[member], "default" if member == 0 else "warm start"
        else:
            config, origin = self.problem.space.sample(rng), "random"
        return Proposal(config, self.steps[0], None, str(member), origin, FrozenMap(generation=0))

    def _next(self, previous: list[Record], generation: int, member: int, rng: np.random.Generator) -> Proposal:
        until, meta, own = self.steps[generation], FrozenMap(generation=generation), previous[member]
        ranked = sorted(filter(may_go_on, previous), key=merit)
        if not ranked:
            return Proposal(self.problem.space.sample(rng), until, None, str(member), "random: nobody survived", meta)
        count = math.ceil(self.options.quantile * self.population)
        loser = own not in ranked or own in ranked[max(count, len(ranked) - count) :]
        if not loser:
            return Proposal(own.proposal.config, until, own.id, str(member), "continue", meta)
        donor = ranked[int(rng.integers(max(1, min(count, len(ranked)))))]
        config = self.problem.space.perturb(
            donor.proposal.config, rng, self.problem.changeable, self.options.step, self.options.resample
        )
        origin = f"exploit member {donor.proposal.member}, {_changes(donor.proposal.config, config)}"
        return Proposal(config, until, donor.id, str(member), origin, meta)

    def _generation(self, generation: int) -> list[Record]:
        start = generation * self.population
        return [self.history[proposal] for proposal in self._members[start : start + self.population]]

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._members.append(event.id)

    def keeps(self) -> Collection[ProposalId]:
        """The generation being trained, and the one before it until all of its successors are proposed."""
        oldest = max(0, len(self._members) // self.population - 1)
        last = (len(self.steps) - 1) * self.population
        return self._members[oldest * self.population : last]


def _affordable(budget: float) -> int:
    unlimited, most = POPULATIONS
    return unlimited if math.isinf(budget) else max(2, min(most, int(budget)))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What explore did, for people."""
    changed = []
    for name, value in new.items():
        if name not in old:
            changed.append(f"{name} = {value}")
        elif value != old[name]:
            numbers = isinstance(value, float) and isinstance(old[name], float) and old[name] != 0
            changed.append(f"{name} x {value / old[name]:.3g}" if numbers else f"{name} = {value}")
    return "explore " + ", ".join(changed) if changed else "nothing changed"
