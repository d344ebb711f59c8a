"""A driver loop without trainers: plays an optimizer against a function.

It observes things in the order a study does. `kill=True` throws the optimizer away before every
single call and replays what was recorded, through JSON, into a fresh one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autorl.core import seeds
from autorl.core.types import (
    Done,
    Event,
    Failed,
    Optimizer,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers.base import BaseOptimizer
from autorl.store.codec import from_json, to_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autorl.space import Space

Objective: TypeAlias = Callable[[ProposalId, Proposal], float | Sequence[float] | Scored | Failed]


@dataclass
class Simulation:
    """The events in order, and whether the optimizer said `Done`."""

    events: list[Event] = field(default_factory=list)
    done: bool = False

    @property
    def proposals(self) -> list[Proposal]:
        return [event.proposal for event in self.events if isinstance(event, Proposed)]

    @property
    def scored(self) -> list[Scored]:
        return [event for event in self.events if isinstance(event, Scored)]

    @property
    def best(self) -> float:
        """The largest first objective scored."""
        return max(scored.values[0] for scored in self.scored)

    def fingerprint(self) -> str:
        """All events as canonical JSON: equal for equal histories, in any process."""
        return json.dumps([to_json(event) for event in self.events], sort_keys=True)


def simulate(
    factory: Callable[[], Optimizer],
    objective: Objective,
    n: int,
    *,
    lag: int = 1,
    seed: int = 0,
    fail: Callable[[ProposalId, Proposal], Status | None] | None = None,
    kill: bool = False,
    late: bool = False,
) -> Simulation:
    """Play an optimizer against an objective, for up to `n` proposals.

    All outcomes are observed at the end. On `Wait` the next outcome in proposal order is observed
    and the same number is asked again with the same generator. Failures are told with the worst
    score so far at their length as penalty, and with none before the first score.

    Args:
        factory: makes a fresh optimizer, the same each time.
        objective: of (number, proposal): larger is better; several values for several objectives,
            or a whole outcome.
        n: proposals at most.
        lag: proposals in flight: outcome i-lag is observed immediately before ask i.
        seed: of the study; ask number i gets the generator of (seed, i).
        fail: the kind of failure of a proposal, or None.
        kill: replay everything into a fresh optimizer before every call.
        late: ask what the optimizer declares `blind` before the outcomes that were to come first,
            and observe those in the same order before the next ask that is not.
    """
    driver = _Driver(factory, objective, fail, kill)
    for number in range(n):
        blind = late and driver.blind(number)
        if not blind:
            driver.observe_until(number - lag)
        answer = driver.ask(seed, number)
        if blind and not isinstance(answer, Proposal):
            driver.observe_until(number - lag)
            answer = driver.ask(seed, number)
        while isinstance(answer, Wait):
            assert driver.waiting, "Wait with nothing pending"
            driver.observe_until(driver.waiting[0])
            answer = driver.ask(seed, number)  # the same stream again, as in a study
        if isinstance(answer, Done):
            driver.simulation.done = True
            break
        driver.observe(Proposed(number, answer))
        driver.waiting.append(number)
    driver.observe_until(n)
    return driver.simulation


class _Driver:
    def __init__(
        self,
        factory: Callable[[], Optimizer],
        objective: Objective,
        fail: Callable[[ProposalId, Proposal], Status | None] | None,
        kill: bool,
    ) -> None:
        self.factory = factory
        self.objective = objective
        self.fail = fail
        self.kill = kill
        self.simulation = Simulation()
        self.waiting: list[ProposalId] = []  # proposed, outcome not observed
        self._proposals: dict[ProposalId, Proposal] = {}
        self._worst: dict[int, tuple[float, ...]] = {}  # by length
        self._optimizer = factory()

    def ask(self, seed: int, number: int) -> Proposal | Wait | Done:
        return self._live().ask(seeds.generator(seed, "ask", number))

    def blind(self, number: int) -> bool:
        optimizer = self._live()
        return isinstance(optimizer, BaseOptimizer) and optimizer.blind(number)

    def observe(self, event: Event) -> None:
        self._live().observe(event)
        self.simulation.events.append(event)
        if isinstance(event, Proposed):
            self._proposals[event.id] = event.proposal

    def observe_until(self, last: ProposalId) -> None:
        while self.waiting and self.waiting[0] <= last:
            number = self.waiting.pop(0)
            self.observe(self._outcome(number, self._proposals[number]))

    def _outcome(self, number: ProposalId, proposal: Proposal) -> Scored | Failed:
        kind = self.fail(number, proposal) if self.fail else None
        if kind is not None:
            return Failed(number, kind, self._worst.get(proposal.until, ()), "simulated")
        drawn = self.objective(number, proposal)
        if isinstance(drawn, Scored | Failed):
            return drawn
        values = tuple(map(float, drawn)) if isinstance(drawn, Sequence) else (float(drawn),)
        # By length, as `autorl.statistics.evaluation.Worst`.
        self._worst[proposal.until] = tuple(
            map(min, values, self._worst.get(proposal.until, values))
        )
        return Scored(number, values, spread=(0.0,) * len(values), reached=proposal.until)

    def _live(self) -> Optimizer:
        if self.kill:  # before every call: state outside the events is lost
            self._optimizer = replayed(self.factory, self.simulation.events)
        return self._optimizer


class MovingOptimum:
    """Scores proposals by an optimum that moves while they train.

    A schedule beats every fixed configuration, by a margin known in closed form.

    Skill grows with every step by the quality of the configuration in training; a resumed
    proposal keeps it. The optimum of every number of the space moves on a straight line through
    the unit cube, from 0.5 - drift / 2 at step 0 to 0.5 + drift / 2 at the horizon:

        quality(config, t) = exp(-sum_i (u_i - u*(t))^2 / width^2)
        skill(t) = (sum of quality until t) / horizon

    The score of a proposal is its skill at the end, plus noise: 1 for one that is perfect all
    along.

    Args:
        space: numbers only, all of them active.
        drift, width: in units of a hyperparameter's range.
        noise: standard deviation of a score.
        seed: of the noise.
    """

    def __init__(
        self,
        space: Space,
        horizon: int,
        *,
        drift: float = 0.7,
        width: float = 0.2,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.space = space
        self.horizon = horizon
        self.drift = drift
        self.width = width
        self.noise = noise
        self.seed = seed
        self.skill: dict[ProposalId, float] = {}
        self._until: dict[ProposalId, int] = {}

    def __call__(self, number: ProposalId, proposal: Proposal) -> float:
        before = proposal.resume_from
        # A resumed run has gained its skill with other configurations, at an earlier optimum.
        start = 0 if before is None else self._until[before]
        skill = 0.0 if before is None else self.skill[before]
        self.skill[number] = skill + self.gained(
            self.space.to_unit(proposal.config), start, proposal.until
        )
        self._until[number] = proposal.until
        error = self.noise * float(seeds.generator(self.seed, "noise", number).standard_normal())
        return self.skill[number] + error

    def gained(self, units: NDArray[np.float64], start: int, until: int) -> float:
        """Compute the skill that training between two steps adds.

        Args:
            units: the configuration in the unit cube, shape (hyperparameters,).
            start: the step it begins at.
            until: its last step.
        """
        at = (np.arange(start, until) + 0.5) / self.horizon  # the middle of each step
        optimum = 0.5 + self.drift * (at - 0.5)
        off = ((units[:, None] - optimum) ** 2).sum(axis=0)  # shape (steps,)
        return float(np.exp(-off / self.width**2).sum()) / self.horizon


def replayed(factory: Callable[[], Optimizer], events: Sequence[Event]) -> Optimizer:
    """Make an optimizer that has observed events, each read from JSON."""
    optimizer = factory()
    for event in events:
        optimizer.observe(from_json(json.loads(json.dumps(to_json(event)))))
    return optimizer
