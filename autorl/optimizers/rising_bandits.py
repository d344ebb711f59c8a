"""Algorithm choice by rising bandits (Li et al. 2020).

There is one optimizer for each algorithm, and hopeless algorithms are dropped.

Each choice of `algorithm` is an arm with an optimizer of its own over its own hyperparameters; the
arm with the fewest steps proposes next. The best score of an arm rises with the steps spent on it,
ever more slowly: from its slope over the last `window` full runs follows the most it could reach
with everything that is left of the budget,

    low = best,    high = best + slope * left,
    slope = (best - best before the last `window` runs) / window,

and an arm rests as soon as another's `low` is above its `high`. The bounds are taken anew at every
ask: an arm that rests because the budget is short goes on when the budget is extended. Only
full-length runs count for them.

    algorithms: {ppo: ..., dqn: ...}
    ask -> ppo, dqn, ppo, dqn, ...     best ppo 0.9, dqn 0.4, slope 0.01, left 20
    ask -> ppo, ppo, ppo, ...          0.4 + 0.01 * 20 < 0.9: dqn rests

A space without `algorithm` is split at the first categorical hyperparameter that others depend on;
without one there is a single arm.

References:
    Li, Jiang, Gao, Shao, Zhang and Cui, "Efficient automatic CASH via rising bandits", AAAI 2020.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autorl.core.types import (
    Config,
    Done,
    Event,
    Failed,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Wait,
)
from autorl.optimizers.base import BaseOptimizer, Problem, Record, option, violation
from autorl.optimizers.hyperband import Hyperband
from autorl.optimizers.registry import make
from autorl.space.restrict import restrict, splitting

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class RisingBanditsOptions:
    inner: str = option("tpe", "the optimizer of each arm")
    inner_options: Mapping[str, Any] | None = option(None, "its options")
    split: str | None = option(
        None, "the categorical hyperparameter whose choices are the arms; null: algorithm"
    )
    # 7 is C of Li et al. 2020.
    window: float = option(7.0, "full runs of an arm its slope is taken over", minimum=1.0)


@dataclass
class Arm:
    """An algorithm with its optimizer.

    It knows what was spent on it, and how its best full-length score rose.

    Attributes:
        fixed: what its configurations have besides those of its optimizer.
        spent: full-run equivalents proposed; `ended`: of these, with an outcome.
        scores: of its feasible full-length runs.
        curve: (ended, best score) after the outcomes since the first such score, as far back as the
            window reaches.
    """

    optimizer: BaseOptimizer[Any]
    fixed: Mapping[str, Any]
    spent: float = 0.0
    ended: float = 0.0
    scores: dict[ProposalId, float] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    settled: set[ProposalId] = field(default_factory=set)

    @property
    def name(self) -> str:
        return ", ".join(str(value) for value in self.fixed.values())

    def has(self, config: Mapping[str, object]) -> bool:
        """Tell whether a configuration of the whole space is this arm's."""
        return all(config.get(name) == value for name, value in self.fixed.items())

    def bounds(self, window: float, left: float) -> tuple[float, float]:
        """Return what the arm has reached, and the most it can reach.

        The latter is in `left` full runs, infinite while unknown.
        """
        best = max(self.scores.values(), default=-math.inf)
        before, score = self.curve[0] if self.curve else (math.inf, best)
        if before > self.ended - window:  # too young for a slope: it cannot be ruled out
            return best, math.inf
        # A later score can lower the best, and no arm is expected to get worse.
        return best, best + max(0.0, best - score) / window * left

    def observe_outcome(
        self, event: Scored | Failed, record: Record, cost: float, window: float
    ) -> None:
        """Take note of an outcome of one of its proposals.

        It cost so many full-run equivalents.
        """
        self.optimizer.observe(event)
        if record.id not in self.settled:  # a later score costs nothing
            self.settled.add(record.id)
            self.ended += cost
        if isinstance(event, Scored) and record.proposal.until == self.optimizer.problem.horizon:
            self.scores[record.id] = event.values[0] if not violation(record) else -math.inf
        best = max(self.scores.values(), default=-math.inf)
        if best > -math.inf:
            self.curve.append((self.ended, best))
        # The first point is the latest that is at least a window old.
        while len(self.curve) > 1 and self.curve[1][0] <= self.ended - window:
            del self.curve[0]


class RisingBandits(BaseOptimizer[RisingBanditsOptions]):
    """One optimizer for each algorithm, of which the hopeless rest.
    Hopeless is what cannot catch up within the budget at the pace of late.
    """

    Options = RisingBanditsOptions
    search_kind = "search"
    partial = True
    learns = True

    def __init__(self, problem: Problem, options: RisingBanditsOptions) -> None:
        super().__init__(problem, options)
        self._arms = list(_arms(problem, options))
        self.population_based = any(arm.optimizer.population_based for arm in self._arms)
        self.averages = any(arm.optimizer.averages for arm in self._arms)
        # An enqueued configuration has the meta of the proposal whose place it takes, and the
        # number of a bracket in there is one of the arm that was asked: another may have none.
        inner = [arm.optimizer for arm in self._arms]
        alone = len(inner) == 1 or not any(isinstance(optimizer, Hyperband) for optimizer in inner)
        self.takes_enqueued = alone and all(optimizer.takes_enqueued for optimizer in inner)
        self._arm_of: dict[ProposalId, Arm] = {}
        self._placed = 0  # initial configurations proposed
        # An arm was at rest when something was proposed: scores chose the arms from then
        # on.
        self._steered = False

    def outline(self) -> tuple[str, ...]:
        """Describe the arms, and what their optimizer says."""
        if len(self._arms) == 1:
            return self._arms[0].optimizer.outline()
        names = ", ".join(arm.name for arm in self._arms)
        lines = [
            f"arms: {names}, each with {self.options.inner} "
            "and at first an equal part of the budget"
        ]
        return (
            *lines,
            *(f"{arm.name}: {line}" for arm in self._arms for line in arm.optimizer.outline()),
        )

    def cautions(self) -> tuple[str, ...]:
        """Say what the arms' optimizers caution against."""
        return tuple(dict.fromkeys(line for arm in self._arms for line in arm.optimizer.cautions()))

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        able = self._playing()
        by_spent = sorted(self._arms, key=lambda arm: arm.spent)  # ties in the order of the choices
        playing = [arm for arm in by_spent if arm in able]
        # Asked when those that play have nothing left.
        resting = [arm for arm in by_spent if arm not in able]
        # 1. an initial configuration, by its arm  2. those that play  3. those that rest
        initial = self.problem.initial[self._placed : self._placed + 1]
        starting = [arm for config in initial for arm in self._arms if arm.has(config)]
        for arms in (starting, playing, resting):
            answers = []
            for arm in arms:
                answers.append(arm.optimizer.ask(rng))
                if isinstance(answers[-1], Proposal):
                    proposal = self._whole(arm, answers[-1])
                    # A random draw is informed too once scores have chosen the arm it is drawn in.
                    steered = self._steered or bool(resting)
                    chosen = steered and self._placed >= len(self.problem.initial)
                    return replace(proposal, informed=proposal.informed or chosen)
            if any(isinstance(answer, Wait) for answer in answers):
                return Wait()
        return Done()

    def _playing(self) -> list[Arm]:
        """Return arms whose upper bound is not below another's lower bound."""
        spent = sum(arm.spent for arm in self._arms)
        remaining = spent  # of an endless budget: as much again
        if math.isfinite(self.problem.budget):
            remaining = max(0.0, self.problem.budget - spent)
        bounds = [arm.bounds(self.options.window, remaining) for arm in self._arms]
        reached = max(low for low, _ in bounds)
        # Not `>`: of arms that are alike nobody rests.
        return [arm for arm, (_, high) in zip(self._arms, bounds, strict=True) if high >= reached]

    def _whole(self, arm: Arm, proposal: Proposal) -> Proposal:
        """Turn what the arm's optimizer proposes into one of the whole space."""
        values = {**arm.fixed, **proposal.config}
        # In the order of the whole space, as every configuration is.
        config = Config({name: values[name] for name in self.problem.space.names if name in values})
        origin = f"{arm.name}: {proposal.origin}" if arm.fixed else proposal.origin
        if config in self.problem.initial[self._placed : self._placed + 1]:
            origin = "warm start" if self._placed else "default"
        return replace(proposal, config=config, origin=origin)

    def _observe(self, event: Event) -> None:
        if not isinstance(event, Proposed):
            record = self.history[event.proposal]
            cost = self._cost(event.proposal)
            self._arm_of[event.proposal].observe_outcome(event, record, cost, self.options.window)
            return
        proposal = event.proposal
        # Before its steps count as spent: these are the bounds it was proposed by.
        self._steered |= len(self._playing()) < len(self._arms)
        arm = self._arm_of[event.id] = next(arm for arm in self._arms if arm.has(proposal.config))
        arm.spent += self._cost(event.id)
        config = Config(
            {name: value for name, value in proposal.config.items() if name not in arm.fixed}
        )
        arm.optimizer.observe(Proposed(event.id, replace(proposal, config=config)))
        if proposal.resume_from is None:
            next_initial = self.problem.initial[self._placed : self._placed + 1]
            self._placed += proposal.config in next_initial

    def _cost(self, number: ProposalId) -> float:
        """Return the full-run equivalents that a proposal trains."""
        proposal = self.history[number].proposal
        start = 0
        if proposal.resume_from is not None:
            start = self.history[proposal.resume_from].proposal.until
        return (proposal.until - start) / self.problem.horizon

    def keeps(self) -> Collection[ProposalId]:
        """Return what the arms may still resume.

        Resting arms too: an extended budget brings them back.
        """
        return [proposal for arm in self._arms for proposal in arm.optimizer.keeps()]


def _arms(problem: Problem, options: RisingBanditsOptions) -> Iterator[Arm]:
    """Make the arms in the order of their choices.

    Each has the initial configurations that are its own.
    """
    inner_options = dict(options.inner_options or {})
    if "stop" in inner_options:
        raise InputError(
            "a stopping rule cannot be combined with rising_bandits",
            key="optimizer.inner_options.stop",
        )
    name = splitting(problem.space, options.split)
    choices = [None] if name is None else list(problem.space.hyperparameters[name].choices)
    for choice in choices:
        fixed = {} if name is None else {name: choice}
        space = problem.space if name is None else restrict(problem.space, name, choice)
        optimizer = make(
            options.inner,
            space,
            horizon=problem.horizon,
            budget=problem.budget / len(choices),  # a start-up and a population are sized by it
            changeable=problem.changeable & frozenset(space.names),
            **inner_options,
        )
        in_space = [config for config in problem.initial if name is None or config[name] == choice]
        without_choice = [
            Config({key: value for key, value in config.items() if key != name})
            for config in in_space
        ]
        # An arm begins with what the study gives it, and with its own default in any case. `make`
        # would put that default first, before the study's own.
        initial = tuple(dict.fromkeys([*without_choice, space.default()]))
        kind = type(optimizer)
        yield Arm(kind(replace(optimizer.problem, initial=initial), optimizer.options), fixed)
