"""Successive halving and Hyperband, continuing from checkpoints (Jamieson and Talwalkar 2016; Li et al. 2018).

A bracket starts many short runs and lets the best 1/eta of each rung go on to the next, eta times longer; a promotion
is the next segment of the same run, so a rung costs only the steps that are new. Hyperband cycles through brackets
that start with fewer, longer runs, for tasks where short runs mislead. Rungs end at horizon / eta^k, rounded up.

    eta 3, 3 rungs, horizon 90:   bracket 0: 9 runs to 10, 3 to 30, 1 to 90
                                  bracket 1: 5 runs to 30, 1 to 90
                                  bracket 2: 3 runs to 90

A rung is decided when all of it is scored; meanwhile the next bracket is begun (at most `ahead` of them), so that
workers are not idle. Failed runs, runs with a failed seed and runs that stopped themselves are never promoted.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from autorl.optimizers.base import BaseOptimizer, Problem, Record, option, violation
from autorl.types import Config, Event, FrozenMap, InputError, Proposal, ProposalId, Proposed, Scored, Wait

if TYPE_CHECKING:
    import numpy as np


Merit: TypeAlias = tuple[float, float, ProposalId]


@dataclass(frozen=True)
class HyperbandOptions:
    eta: int = option(3, "a rung lets one in eta runs go on, eta times longer", minimum=2)
    rungs: int = option(4, "lengths a run is scored at: horizon / eta^(rungs-1), ..., horizon", minimum=1)
    ahead: int = option(1, "brackets begun while an earlier one waits for scores", minimum=0)


def rung_steps(horizon: int, eta: int, rungs: int) -> tuple[int, ...]:
    """Steps at which the rungs end, ascending; the last is the horizon.

    Raises:
        InputError: the horizon is too short for so many rungs.
    """
    steps = tuple(-(-horizon // eta**k) for k in reversed(range(rungs)))
    if len(set(steps)) < rungs:
        raise InputError(f"{rungs} rungs with eta {eta} do not fit into {horizon} steps", key="optimizer.rungs")
    return steps


def may_go_on(record: Record) -> bool:
    """Scored with all seeds, and not stopped by itself."""
    result = record.result
    return isinstance(result, Scored) and result.resumable and result.reached >= record.proposal.until


def merit(record: Record) -> Merit:
    """Sorts better first: feasible before infeasible, then by score, then the earlier."""
    return violation(record), -record.values[0], record.id


@dataclass
class _Bracket:
    """`sizes` and `steps` by rung; `rungs[k]`: proposals made so far; `promoted[k]`: those to bring to rung k."""

    sizes: list[int]
    steps: tuple[int, ...]
    rungs: list[list[ProposalId]] = field(default_factory=lambda: [[]])
    promoted: list[list[ProposalId]] = field(default_factory=lambda: [[]])

    @property
    def rung(self) -> int:
        return len(self.rungs) - 1

    @property
    def proposed(self) -> bool:
        """The current rung is all proposed."""
        return len(self.rungs[-1]) == self.sizes[self.rung]

    @property
    def finished(self) -> bool:
        """Nothing more will be proposed."""
        return self.proposed and self.rung == len(self.sizes) - 1


class Hyperband(BaseOptimizer[HyperbandOptions]):
    """Random configurations in brackets of successive halving, from many short runs to few long ones."""

    Options = HyperbandOptions
    partial = True

    def __init__(self, problem: Problem, options: HyperbandOptions) -> None:
        super().__init__(problem, options)
        self.steps = rung_steps(problem.horizon, options.eta, options.rungs)
        self._brackets: list[_Bracket] = []
        self._started = 0  # configurations tried so far

    def shape(self, bracket: int) -> tuple[list[int], tuple[int, ...]]:
        """Runs per rung and the steps they are brought to, of the bracket with this number."""
        halvings = len(self.steps) - 1 - bracket % len(self.steps)
        eta = self.options.eta
        first = math.ceil(len(self.steps) * eta**halvings / (halvings + 1))
        return [first // eta**k for k in range(halvings + 1)], self.steps[-1 - halvings :]

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait:
        open_ = [(number, bracket) for number, bracket in enumerate(self._brackets) if not bracket.finished]
        for number, bracket in open_:
            if not bracket.proposed:
                return self._next_of(number, bracket, rng)
        if len(open_) > self.options.ahead:
            return Wait()
        sizes, steps = self.shape(len(self._brackets))
        return self._next_of(len(self._brackets), _Bracket(sizes, steps), rng)

    def _next_of(self, number: int, bracket: _Bracket, rng: np.random.Generator) -> Proposal:
        rung, until = bracket.rung, bracket.steps[bracket.rung]
        meta = FrozenMap(bracket=number, rung=rung)
        if rung == 0:
            config, origin = self._new_configuration(rng)
            return Proposal(config, until, origin=origin, meta=meta)
        parent = bracket.promoted[rung][len(bracket.rungs[rung])]
        origin = f"promoted to rung {rung} of bracket {number}"
        return Proposal(self.history[parent].proposal.config, until, parent, origin=origin, meta=meta)

    def _new_configuration(self, rng: np.random.Generator) -> tuple[Config, str]:
        if self._started < len(self.problem.initial):
            return self.problem.initial[self._started], "default" if self._started == 0 else "warm start"
        return self.problem.space.sample(rng), "random"

    def _observe(self, event: Event) -> None:
        if not isinstance(event, Proposed):
            self._close_rung(self._brackets[self.history[event.proposal].proposal.meta["bracket"]])
            return
        number = event.proposal.meta["bracket"]
        if number == len(self._brackets):
            self._brackets.append(_Bracket(*self.shape(number)))
        self._brackets[number].rungs[-1].append(event.id)
        self._started += event.proposal.resume_from is None

    def _close_rung(self, bracket: _Bracket) -> None:
        """Once the current rung is all scored, decide who goes on."""
        records = [self.history[proposal] for proposal in bracket.rungs[-1]]
        if bracket.finished or not bracket.proposed or any(record.result is None for record in records):
            return
        best = sorted(filter(may_go_on, records), key=merit)[: bracket.sizes[bracket.rung + 1]]
        bracket.promoted.append([record.id for record in best])
        bracket.rungs.append([])
        bracket.sizes[bracket.rung] = len(best)
        if not best:  # nobody left to promote: the bracket ends here
            del bracket.sizes[bracket.rung + 1 :]

    def keeps(self) -> Collection[ProposalId]:
        """In each open bracket, the runs of the current rung and those promoted but not continued yet."""
        kept: list[ProposalId] = []
        for bracket in self._brackets:
            if not bracket.finished:
                kept += bracket.promoted[-1][len(bracket.rungs[-1]) :]
                if bracket.rung < len(bracket.sizes) - 1:
                    kept += bracket.rungs[-1]
        return kept


class SuccessiveHalving(Hyperband):
    """Random configurations; again and again the best 1/eta go on, eta times longer (Hyperband's first bracket)."""

    def shape(self, bracket: int) -> tuple[list[int], tuple[int, ...]]:
        """Runs per rung and the steps they are brought to."""
        return super().shape(0)
