"""NSGA-II: generations, of which the best of several objectives live on.

The first generation is drawn at random. As soon as `population_size` members of a generation are
scored, the best of them and of their parents are the parents of the next: front by front, and of a
front the members farthest from others. A parent is the better of two at random. A child has each
hyperparameter of one of two parents, and of every number of hyperparameters one is drawn anew.

With outcome constraints, members that keep them come first, then all others by how much they break
them, and failed runs last.

    population_size 4, 9 proposals: generations 0 0 0 0 1 1 1 1 2
    parents of generation 1: the four of generation 0
    parents of generation 2: the best four of these eight

References:
    Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm:
    NSGA-II", IEEE Transactions on Evolutionary Computation 6, 2002. Crossover and mutation are
    those of Optuna's NSGAIISampler, which choices and conditions need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.types import Config, Event, Failed, Proposal, ProposalId, Proposed
from autorl.optimizers.base import BaseOptimizer, Problem, option, violation
from autorl.statistics.fronts import crowded_order

DRAFTS = 6  # to breed a valid child that was not proposed before


@dataclass(frozen=True)
class NSGA2Options:
    population_size: int | None = option(
        None,
        "members of a generation; null: 50, or a quarter of the budget where that is less",
        minimum=2,
    )
    crossover_prob: float = option(
        0.9, "probability that a child has two parents", minimum=0.0, maximum=1.0
    )
    swapping_prob: float = option(
        0.5,
        "probability that a hyperparameter comes from the other parent",
        minimum=0.0,
        maximum=1.0,
    )


class NSGA2(BaseOptimizer[NSGA2Options]):
    """Elitist genetic algorithm for several objectives (Deb et al. 2002)."""

    Options = NSGA2Options
    search_kind = "search"
    multi_objective = True
    learns = True

    def __init__(self, problem: Problem, options: NSGA2Options) -> None:
        super().__init__(problem, options)
        self._generations: dict[ProposalId, int] = {}
        self._scored: list[set[ProposalId]] = [set()]  # of each generation
        self._parents: list[list[ProposalId]] = [[]]  # of each generation, best first: a cache

    @property
    def population_size(self) -> int:
        """Number of members of a generation."""
        # 50 is Optuna's; with it a study of 50 runs would be the first generation, drawn at random.
        return self.options.population_size or int(max(4, min(50, self.problem.budget / 4)))

    def blind(self, number: int) -> bool:
        """Tell whether a proposal is of the first generation, without parents."""
        return number < self.population_size

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the first generation is scored, so that there are parents."""
        return scored >= self.population_size

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        generation = len(self._scored) - (len(self._scored[-1]) < self.population_size)
        parents = self._parents_of(generation)
        origin = "nsga2" if parents else "nsga2, start-up"
        for _ in range(DRAFTS):
            child = self._child(parents, rng) if parents else self._sampled(rng)
            if child not in self.history.configs and space.is_valid(child):
                break
        else:
            child, how = self._repaired(child, rng)
            origin = f"{origin}, {how}"
        return self._propose(child, origin, {"generation": generation}, informed=bool(parents))

    def _child(self, parents: Sequence[ProposalId], rng: np.random.Generator) -> Config:
        """Breed a child, perhaps one that breaks a rule of the space."""
        space = self.problem.space
        # The parents are ordered, so that the better of two is the earlier.
        places = [int(rng.integers(len(parents), size=2).min()) for _ in range(2)]
        first, second = (space.to_unit(self.history[parents[at]].proposal.config) for at in places)
        anew = rng.random(len(first))
        swapped = rng.random(len(first)) < self.options.swapping_prob
        if rng.random() < self.options.crossover_prob:
            first = np.where(swapped, second, first)
        varied = sum(item.varies for item in space.hyperparameters.values())
        mutated = rng.random(len(first)) < 1 / max(1, varied)
        return space.from_unit(np.where(mutated | np.isnan(first), anew, first))

    def _parents_of(self, generation: int) -> list[ProposalId]:
        """List the parents of a generation, best first, none of the first."""
        while len(self._parents) <= generation:
            members = self._scored[len(self._parents) - 1].union(self._parents[-1])
            self._parents.append(self._best(sorted(members)))
        return self._parents[generation]

    def _best(self, members: Sequence[ProposalId]) -> list[ProposalId]:
        """Choose as many members as a generation has, best first."""
        records = [self.history[number] for number in members]
        broken = [(isinstance(record.result, Failed), violation(record)) for record in records]
        ordered: list[ProposalId] = []
        for level in sorted(set(broken)):
            rows = [row for row, entry in enumerate(broken) if entry == level]
            values = np.array([records[row].values for row in rows])
            ordered += [members[rows[place]] for place in crowded_order(values)]
        return ordered[: self.population_size]

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            generation = event.proposal.meta.get("generation", 0)
            self._generations[event.id] = generation
            self._scored += [set() for _ in range(generation + 1 - len(self._scored))]
            return
        generation = self._generations[event.proposal]
        del self._parents[generation + 1 :]
        if event.values:
            self._scored[generation].add(event.proposal)
