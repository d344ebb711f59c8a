"""Differential evolution, rand/1/bin (Storn and Price 1997).

It goes over a population of full-length runs.

A member is a point of the unit cube. Its child takes each coordinate with probability `crossover`
from a mutant a + scale * (b - c) of three other members, and replaces it unless worse. Replacing is
immediate: children are made from the population of the moment, one at a time per member, so that
workers need not wait for a generation. Points stay points: an integer or a choice is read off them,
coordinates of inactive hyperparameters are carried along, and a coordinate that a mutation puts
outside the cube is drawn anew.

    members 0..3 scored   -> Proposal(child of 0)      meta: slot 0, its point
    Proposed              -> Proposal(child of 1)      0 is still training: 1 has its turn
    Scored(child of 0)    -> member 0 is the child, if that is at least as good

References:
    Storn and Price, "Differential evolution: a simple and efficient heuristic for global
    optimization over continuous spaces", Journal of Global Optimization 11, 1997.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autorl.core.types import Config, Event, Proposal, ProposalId, Proposed, Scored, Wait
from autorl.optimizers.base import BaseOptimizer, History, Problem, Record, option, violation

if TYPE_CHECKING:
    from autorl.space import Space

Point = NDArray[np.float64]

PARENTS = 3  # of a mutant
REDRAWS = 8  # of a child that was proposed before


@dataclass(frozen=True)
class EvolutionOptions:
    scale: float = option(
        0.5, "of the difference of two members that is added to a third", minimum=0.0, maximum=2.0
    )
    crossover: float = option(
        0.5, "probability that a coordinate comes from the mutant", minimum=0.0, maximum=1.0
    )


@dataclass(frozen=True)
class DEOptions(EvolutionOptions):
    population_size: int | None = option(
        None,
        "members; null: 20, or a quarter of the budget where that is less",
        minimum=PARENTS + 1,
    )


class DE(BaseOptimizer[DEOptions]):
    """Differential evolution, rand/1/bin: differences of members make children, which replace worse
    members.
    """

    Options = DEOptions
    search_kind = "search"
    takes_enqueued = False
    learns = True

    def __init__(self, problem: Problem, options: DEOptions) -> None:
        super().__init__(problem, options)
        few = int(min(20, max(PARENTS + 1, problem.budget / 4)))
        self._members = Members(self.history, options.population_size or few)

    def _initial(self) -> Proposal | None:
        first = super()._initial()
        if first is None:
            return None
        meta = {
            "slot": len(self.history) % self._members.size,
            "point": point_of(self.problem.space, first.config),
        }
        return self._propose(first.config, first.origin, meta)

    def blind(self, number: int) -> bool:
        """The first member of each slot is drawn at random."""
        return number < self._members.size

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait:
        slot = self._members.idle()
        if slot is None:
            return Wait()
        target = self._members.occupant[slot]
        # The three that make a mutant are others than the target, as in the paper.
        parents = [point(record) for record in self._members.records() if record.id != target]
        breeding = target is not None and len(parents) >= PARENTS
        space = self.problem.space
        origin = f"child of proposal {target}" if breeding else "random"
        before = point(self.history[target]) if target is not None and breeding else None
        config, drawn = new_point(space, before, parents, self.options, self.history.configs, rng)
        if config in self.history.configs:
            origin = "random: every child was proposed before"
        meta = {"slot": slot, "point": point_of(space, config, drawn)}
        return self._propose(config, origin, meta, informed=breeding)

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._members.begin(event.id, event.proposal.meta["slot"])
        else:
            record = self.history[event.proposal]
            self._members.judge(record, record.proposal.meta["slot"])


class Members:
    """The slots of a population, a fold over proposals.

    Each has an occupant, and perhaps a challenger in training.

    Attributes:
        occupant: by slot; None until somebody was scored there.
    """

    def __init__(self, history: History, size: int) -> None:
        self.size = size
        self.occupant: list[ProposalId | None] = [None] * size
        self._history = history
        self._training: list[set[ProposalId]] = [set() for _ in range(size)]
        self._turn = 0

    def idle(self) -> int | None:
        """Return the next slot in the circle that trains nobody, or None."""
        circle = ((self._turn + k) % self.size for k in range(self.size))
        return next((slot for slot in circle if not self._training[slot]), None)

    def turn(self) -> int:
        """Return the slot whose turn it is, whether somebody trains or not."""
        idle = self.idle()
        return self._turn % self.size if idle is None else idle

    def begin(self, proposal: ProposalId, slot: int) -> None:
        """Note that `proposal` trains to challenge the occupant of `slot`."""
        self._training[slot].add(proposal)
        self._turn = slot + 1

    def judge(self, record: Record, slot: int) -> None:
        """Judge a challenger that has an outcome.

        It holds the slot unless it failed or the occupant is better.
        """
        self._training[slot].discard(record.id)
        occupant = self.occupant[slot]
        if not isinstance(record.result, Scored):
            return  # its penalty is the score of another: the occupant stays
        # As good is enough: where many score the same, the population must still move.
        if occupant is None or rank(record) <= rank(self._history[occupant]):
            self.occupant[slot] = record.id

    def records(self) -> list[Record]:
        """Return the occupants, by slot."""
        return [self._history[occupant] for occupant in self.occupant if occupant is not None]


def rank(record: Record) -> tuple[float, float]:
    """Sorts better first: feasible before infeasible, then by score."""
    return violation(record), -record.values[0]


def point(record: Record) -> Point:
    """Return where a proposal lies in the unit cube, shape (n,).

    Inactive hyperparameters are included.
    """
    return np.array(record.proposal.meta["point"])


def point_of(space: Space, config: Config, drawn: Point | None = None) -> list[float]:
    """Return the point behind `config`.

    It is `drawn` where that gives the values it has, and their own places where they were repaired.

    If `drawn` is not given, inactive hyperparameters are at their defaults.
    """
    if drawn is None:
        items = space.hyperparameters.values()
        return [float(item.to_unit(config.get(item.name, item.default))) for item in items]
    # A coordinate stays where it gives the value: mutants are made of differences of points.
    before: Mapping[str, object] = space.from_unit(drawn)
    unrepaired = [name not in config or config[name] == before.get(name) for name in space.names]
    places = np.where(unrepaired, drawn, space.to_unit(config))
    return [float(coordinate) for coordinate in places]


def new_point(
    space: Space,
    target: Point | None,
    parents: Sequence[Point],
    options: EvolutionOptions,
    tried: Collection[Config],
    rng: np.random.Generator,
) -> tuple[Config, Point]:
    """Return a configuration that was not tried, and its point.

    Children of the target come first, `REDRAWS` of them, then a point drawn at random: in a small
    space every child was tried. All are drawn at random if there is no target.
    """
    for attempt in range(1 + REDRAWS):
        if target is not None and attempt < REDRAWS:
            mutant = mutate(parents, options.scale, rng)
            drawn = cross(space, target, mutant, options.crossover, rng)
        else:
            drawn = space.draw_place(rng)
        config = space.decode(drawn, rng)
        if config not in tried:
            break
    return config, drawn


def mutate(parents: Sequence[Point], scale: float, rng: np.random.Generator) -> Point:
    """Return a + scale * (b - c) of three different parents.

    Coordinates outside the cube are drawn anew.
    """
    a, b, c = (parents[int(index)] for index in rng.choice(len(parents), PARENTS, replace=False))
    mutant = a + scale * (b - c)  # rand/1
    anew = rng.random(len(mutant))
    # Not cut off at the faces: points would pile up there.
    return np.where((mutant < 0) | (mutant > 1), anew, mutant)


def cross(
    space: Space, target: Point, mutant: Point, probability: float, rng: np.random.Generator
) -> Point:
    """Mix the coordinates of a mutant into the target.

    Each is taken with `probability`, at least one of those that vary.
    """
    taken = rng.random(len(target)) < probability
    varied = [i for i, item in enumerate(space.hyperparameters.values()) if item.varies]
    # One that varies always comes from the mutant (`rnbr` of the paper): no child is its target.
    if varied:
        taken[varied[int(rng.integers(len(varied)))]] = True
    return np.where(taken, mutant, target)
