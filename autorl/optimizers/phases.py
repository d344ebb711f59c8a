"""Sobol configurations trained in phases, for landscapes (Mohan et al. 2023).

The horizon is cut into phases of equal length. In the first one every configuration is trained from
scratch; in each later one every configuration goes on from the best agent of the phase before: it
resumes the checkpoint of the best configuration, so that within a phase all have the same
beginning. Seed by seed: what is trained with seed s continues the best configuration's agent of
seed s, in [1] the agent of its best seed. Test seeds therefore never continue an agent that was
chosen by tuning scores, and a phase has as many independent beginnings as there are seeds.

    phase 1   Proposal(c0, until=10), Proposal(c1, until=10)
    Scored(0, 1.0), Scored(1, 2.0)
    phase 2   Proposal(c0, until=20, Exploit(1, "phase 2"))
              Proposal(c1, until=20, Exploit(1, "phase 2"))

References:
    [1] Mohan, Benjamins, Wienecke, Dockhorn and Lindauer, "AutoRL hyperparameter landscapes",
        AutoML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autorl.core.types import (
    Done,
    Event,
    Exploit,
    FrozenMap,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Wait,
)
from autorl.optimizers.base import BaseOptimizer, Problem, Record, equal_parts, option
from autorl.optimizers.hyperband import may_go_on, merit
from autorl.optimizers.sobol import SobolOptions, SobolSearch

if TYPE_CHECKING:
    import numpy as np

UNLIMITED = 64  # configurations when the study's budget does not say how many


@dataclass(frozen=True)
class PhasesOptions:
    phases: int = option(3, "parts of equal length the horizon is cut into", minimum=2)
    configurations: int | None = option(
        None, "null: as many full-length runs as the budget affords", minimum=1
    )
    seed: int = option(
        0, "of the scrambling of the Sobol points; a study gives its own seed", minimum=0
    )


class Phases(BaseOptimizer[PhasesOptions]):
    """Sobol points trained in phases, each from the last one's best agent.
    It is for landscapes.
    """

    Options = PhasesOptions
    partial = True
    population_based = True
    lag_free = True
    search_kind = "phased_design"
    reads_priors = False
    takes_enqueued = False

    def __init__(self, problem: Problem, options: PhasesOptions) -> None:
        kinds = problem.space.hyperparameters
        fixed = sorted(
            name
            for name in problem.space.names
            if kinds[name].type != "constant" and name not in problem.changeable
        )
        if fixed:
            raise InputError(
                f"every phase changes the whole configuration, but {', '.join(fixed)} "
                "cannot change during training: "
                "mark what can `changeable: true`, make the rest constant",
                key="space",
            )
        super().__init__(problem, options)
        self.ends = self.cuts(problem.horizon, options)
        affordable = UNLIMITED if math.isinf(problem.budget) else max(1, int(problem.budget))
        self.configurations = options.configurations or affordable
        self._sobol = SobolSearch(problem, SobolOptions(options.seed))
        self._phases: list[list[ProposalId]] = [[]]

    @classmethod
    def cuts(cls, horizon: int, options: PhasesOptions) -> tuple[int, ...]:
        return equal_parts(horizon, options.phases)

    def planned_configurations(self) -> int:
        return self.configurations

    def blind(self, number: int) -> bool:
        """Proposals of the first phase are points of the design."""
        return number < self.configurations

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        full = len(self._phases[-1]) == self.configurations
        phase = len(self._phases) - 1 + full
        if phase == len(self.ends):
            return Done()
        if phase == 0:
            return self._first(rng)
        before = [self.history[number] for number in self._phases[phase - 1]]
        if any(record.result is None for record in before):
            return Wait()
        best = _best(before)
        if best is None:
            return Done()  # no agent is left that a phase could begin with
        # In the order of the first phase: a configuration has one place in every phase.
        config = before[0 if full else len(self._phases[phase])].proposal.config
        # One stream for all of a phase: their streams are the same, so comparisons stay paired.
        name = f"phase {phase + 1}"
        return Proposal(
            config,
            self.ends[phase],
            parent=Exploit(best.id, stream=name),
            member=name,
            origin=f"{name} from proposal {best.id}",
            meta=FrozenMap(phase=phase),
            informed=True,
            retain=True,
        )

    def _first(self, rng: np.random.Generator) -> Proposal:
        first = self._initial_at(len(self._phases[0]))
        # Not Sobol's `ask`: the initial configurations are placed here.
        point = self._sobol._ask(rng) if first is None else self._propose(*first)
        meta = FrozenMap(point.meta, phase=0)
        return replace(point, until=self.ends[0], member="phase 1", meta=meta, retain=True)

    def _observe(self, event: Event) -> None:
        if not isinstance(event, Proposed):
            return
        self._sobol._observe(event)
        if event.proposal.meta["phase"] == len(self._phases):
            self._phases.append([])
        self._phases[-1].append(event.id)

    def keeps(self) -> Collection[ProposalId]:
        """Return the latest phase's unscored proposals and its best.

        Until the phase is full, where it began too.
        """
        latest = [self.history[number] for number in self._phases[-1]]
        needed: list[ProposalId] = []
        if len(self._phases) < len(self.ends):  # nothing is resumed from the last phase
            needed = [record.id for record in latest if record.result is None]
            best = _best(latest)
            if best is not None:
                needed.append(best.id)
        if len(self._phases) > 1 and len(latest) < self.configurations:
            beginning = latest[0].proposal.resume_from
            if beginning is not None:
                needed.append(beginning)
        return needed


def _best(records: list[Record]) -> Record | None:
    return min(filter(may_go_on, records), key=merit, default=None)
