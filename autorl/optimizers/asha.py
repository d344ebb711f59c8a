"""Asynchronous successive halving (Li et al., MLSys 2020), continuing from checkpoints.

No rung is ever waited for: whoever is among the best 1/eta of those scored so far at a rung goes on to the next one,
eta times longer; if there is nobody, a new configuration starts. Higher rungs first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autorl.optimizers.base import BaseOptimizer, Problem, Record, option
from autorl.optimizers.hyperband import may_go_on, merit, rung_steps
from autorl.types import Event, FrozenMap, Proposal, ProposalId, Proposed

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ASHAOptions:
    eta: int = option(3, "a rung lets one in eta runs go on, eta times longer", minimum=2)
    rungs: int = option(4, "lengths a run is scored at: horizon / eta^(rungs-1), ..., horizon", minimum=1)


class ASHA(BaseOptimizer[ASHAOptions]):
    """Random configurations; whoever is in the top 1/eta of its rung goes on at once, eta times longer."""

    Options = ASHAOptions
    partial = True

    def __init__(self, problem: Problem, options: ASHAOptions) -> None:
        super().__init__(problem, options)
        self.steps = rung_steps(problem.horizon, options.eta, options.rungs)
        self._rungs: list[dict[ProposalId, None]] = [{} for _ in self.steps]  # proposals with an outcome
        self._promoted: set[ProposalId] = set()
        self._started = 0

    def _ask(self, rng: np.random.Generator) -> Proposal:
        for rung in reversed(range(len(self.steps) - 1)):
            parent = self._promotable(rung)
            if parent is not None:
                meta, origin = FrozenMap(rung=rung + 1), f"promoted to rung {rung + 1}"
                return Proposal(parent.proposal.config, self.steps[rung + 1], parent.id, origin=origin, meta=meta)
        if self._started < len(self.problem.initial):
            config, origin = self.problem.initial[self._started], "default" if self._started == 0 else "warm start"
        else:
            config, origin = self.problem.space.sample(rng), "random"
        return Proposal(config, self.steps[0], origin=origin, meta=FrozenMap(rung=0))

    def _promotable(self, rung: int) -> Record | None:
        """The best run of the top 1/eta of a rung that was not promoted yet; failures count, at the bottom."""
        scored = sorted((self.history[i] for i in self._rungs[rung] if may_go_on(self.history[i])), key=merit)
        top = scored[: len(self._rungs[rung]) // self.options.eta]
        return next((record for record in top if record.id not in self._promoted), None)

    def _observe(self, event: Event) -> None:
        if not isinstance(event, Proposed):
            self._rungs[self.history[event.proposal].proposal.meta["rung"]][event.proposal] = None
        elif event.proposal.resume_from is None:
            self._started += 1
        else:
            self._promoted.add(event.proposal.resume_from)

    def keeps(self) -> Collection[ProposalId]:
        """Every run below the last rung that was not promoted and may be one day."""
        return [
            record.id
            for record in self.history
            if record.proposal.meta["rung"] < len(self.steps) - 1
            and record.id not in self._promoted
            and (record.result is None or may_go_on(record))
        ]
