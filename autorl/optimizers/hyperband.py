"""Successive halving and Hyperband, continuing from checkpoints.

A bracket starts many short runs and lets the best 1/eta of each rung go on to the next, eta times
longer; a promotion is the next segment of the same run, so a rung costs only the steps that are
new. Hyperband cycles through brackets that start with fewer, longer runs, for tasks where short
runs mislead. Rungs end at horizon / eta^k, rounded up.

    eta 3, 3 rungs, horizon 90:   bracket 0: 9 runs to 10, 3 to 30, 1 to 90
                                  bracket 1: 5 runs to 30, 1 to 90
                                  bracket 2: 3 runs to 90

A rung is decided when all of it is scored; meanwhile the next bracket is begun (at most `ahead` of
them), so that workers are not idle. Failed runs, runs with a failed seed and runs that stopped
themselves are never promoted.

References:
    Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
    optimization", AISTATS 2016.
    Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar, "Hyperband: a novel bandit-based approach to
    hyperparameter optimization", JMLR 18, 2018.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

from autorl.core.plain_text import counted
from autorl.core.types import (
    Config,
    Continue,
    Event,
    FrozenMap,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Wait,
)
from autorl.optimizers.base import BaseOptimizer, Problem, Record, option, violation

if TYPE_CHECKING:
    import numpy as np


Merit: TypeAlias = tuple[float, float, ProposalId]
EARLY = 0.2  # of the horizon: rankings of shorter runs say little about full ones


@dataclass(frozen=True)
class RungOptions:
    # Together they put the first rung at a quarter of the horizon. In the 42 tasks of ARLBench
    # the ranking of configurations after a tenth of a run correlates by 0.26 to 0.56 with the
    # final one, after three tenths by 0.72 to 0.74.
    eta: int = option(2, "a rung lets one in eta runs go on, eta times longer", minimum=2)
    rungs: int = option(
        3, "lengths a run is scored at: horizon / eta^(rungs-1), ..., horizon", minimum=1
    )


@dataclass(frozen=True)
class HyperbandOptions(RungOptions):
    ahead: int = option(1, "brackets begun while an earlier one waits for scores", minimum=0)


R = TypeVar("R", bound=RungOptions)
B = TypeVar("B", bound=HyperbandOptions)


def rung_steps(horizon: int, eta: int, rungs: int) -> tuple[int, ...]:
    """Return the steps at which the rungs end, ascending.

    The last is the horizon.

    Raises:
        InputError: the horizon is too short for so many rungs.
    """
    steps = tuple(-(-horizon // eta**k) for k in reversed(range(rungs)))  # rounded up
    if len(set(steps)) < rungs:
        raise InputError(
            f"{counted(rungs, 'rung')} with eta {eta} do not fit into {counted(horizon, 'step')}",
            key="optimizer.rungs",
        )
    return steps


class RungOptimizer(BaseOptimizer[R]):
    """Runs are scored at rungs, from which the best go on.

    Attributes:
        steps: where the rungs end.
    """

    Options: ClassVar[type[RungOptions]] = RungOptions
    search_kind = "search"
    partial = True

    def __init__(self, problem: Problem, options: R) -> None:
        super().__init__(problem, options)
        self.steps = self.cuts(problem.horizon, options)

    @classmethod
    def cuts(cls, horizon: int, options: R) -> tuple[int, ...]:
        return rung_steps(horizon, options.eta, options.rungs)

    def cautions(self) -> tuple[str, ...]:
        """Say if the lowest rung is too early to rank anything."""
        share = self.steps[0] / self.steps[-1]
        if share >= EARLY:
            return ()
        advice = "fewer `rungs` or a smaller `eta` make it longer"
        return (
            f"the lowest rung ends after {share:.1%} of a run, "
            f"where rankings say little about full runs: {advice}",
        )


def may_go_on(record: Record) -> bool:
    """Tell whether a run was scored and did not stop itself."""
    result = record.result
    # A run that stopped itself has a score, but there is no more of it to train.
    return (
        isinstance(result, Scored) and result.resumable and result.reached >= record.proposal.until
    )


def merit(record: Record) -> Merit:
    """Return a key that sorts better runs first.

    Feasible before infeasible, then by score, then the earlier.
    """
    # The number makes the order total: scores are equal wherever a task has a best score.
    return violation(record), -record.values[0], record.id


@dataclass
class Bracket:
    """A bracket under way.

    Attributes:
        number: of the bracket, from 0.
        sizes: runs by rung.
        steps: where the rungs end.
        rungs: the proposals made so far, by rung.
        promoted: those to be brought to each rung.
    """

    number: int
    sizes: list[int]
    steps: tuple[int, ...]
    rungs: list[list[ProposalId]] = field(default_factory=lambda: [[]])
    promoted: list[list[ProposalId]] = field(default_factory=lambda: [[]])

    @property
    def rung(self) -> int:
        return len(self.rungs) - 1

    @property
    def awaited(self) -> list[ProposalId]:
        """Runs that are promoted, but not continued yet."""
        # They are continued in the order of their promotion, so those proposed are the first.
        return self.promoted[-1][len(self.rungs[-1]) :]

    @property
    def proposed(self) -> bool:
        """Whether the current rung is all proposed."""
        return len(self.rungs[-1]) == self.sizes[self.rung]

    @property
    def finished(self) -> bool:
        """Whether nothing more will be proposed."""
        return self.proposed and self.rung == len(self.sizes) - 1


class Hyperband(RungOptimizer[B]):
    """Random configurations in brackets of successive halving.
    The brackets go from many short runs to few long ones.
    """

    Options: ClassVar[type[HyperbandOptions]] = HyperbandOptions

    def __init__(self, problem: Problem, options: B) -> None:
        super().__init__(problem, options)
        self._open: dict[int, Bracket] = {}  # by number; those that are not finished
        self._begun = 0  # brackets
        self._started = 0  # configurations tried so far

    def shape(self, bracket: int) -> tuple[list[int], tuple[int, ...]]:
        """Return runs per rung and the steps they are brought to.

        They are of the bracket with this number.
        """
        # s, n and n_i of Li et al. 2018, algorithm 1: s_max + 1 is the number of rungs.
        halvings = len(self.steps) - 1 - bracket % len(self.steps)
        eta = self.options.eta
        first = math.ceil(len(self.steps) * eta**halvings / (halvings + 1))
        return [first // eta**k for k in range(halvings + 1)], self.steps[-1 - halvings :]

    def outline(self) -> tuple[str, ...]:
        """Describe the brackets, and how many the budget pays for."""
        texts = [_shape_text(*self.shape(number)) for number in range(len(self.steps))]
        shapes = list(dict.fromkeys(texts))  # one, where all brackets are alike
        lines = [f"bracket {number}: {text}" for number, text in enumerate(shapes)]
        if math.isfinite(self.problem.budget):
            steps = sum(_cost(*self.shape(number)) for number in range(len(shapes)))
            cost = steps / self.problem.horizon
            brackets = self.problem.budget / cost * len(shapes)
            lines.append(
                f"the budget pays for {counted(brackets, 'bracket', form='.3g')} "
                f"({counted(cost, 'full run', form='.3g')} for each {len(shapes)})"
            )
        return tuple(lines)

    def blind(self, number: int) -> bool:
        """Proposals of the very first rung are drawn at random."""
        sizes, _ = self.shape(0)
        return number < sizes[0]

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait:
        # The oldest first: what was begun ahead is only for workers who would wait otherwise.
        for bracket in self._open.values():
            if not bracket.proposed:
                return self._next_of(bracket, rng)
        if len(self._open) > self.options.ahead:
            return Wait()
        return self._next_of(Bracket(self._begun, *self.shape(self._begun)), rng)

    def _next_of(self, bracket: Bracket, rng: np.random.Generator) -> Proposal:
        """Make the next proposal of a bracket's current rung."""
        if bracket.rung == 0:
            config, origin, informed = self._new_configuration(rng)
            meta = FrozenMap(bracket=bracket.number, rung=0)
            return Proposal(config, bracket.steps[0], origin=origin, meta=meta, informed=informed)
        parent = bracket.awaited[0]
        rung = bracket.rung
        origin = f"promoted to rung {rung} of bracket {bracket.number}"
        meta = FrozenMap(bracket=bracket.number, rung=rung)
        config = self.history[parent].proposal.config
        until = bracket.steps[rung]
        return Proposal(config, until, Continue(parent), origin=origin, meta=meta, informed=True)

    def _new_configuration(self, rng: np.random.Generator) -> tuple[Config, str, bool]:
        """Return a configuration that starts from scratch, and its origin.

        With them comes whether scores had a part in it.
        """
        first = self._initial_at(self._started)
        return self._draw(rng) if first is None else (*first, False)

    def _draw(self, rng: np.random.Generator) -> tuple[Config, str, bool]:
        """Draw a configuration after the initial ones, with its origin."""
        return self.problem.space.sample(rng), "random", False

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            number = event.proposal.meta["bracket"]
            if number == self._begun:
                self._open[number] = Bracket(number, *self.shape(number))
                self._begun += 1
            bracket = self._open[number]
            bracket.rungs[-1].append(event.id)
            self._started += bracket.rung == 0
        else:
            record = self.history[event.proposal]
            number = record.proposal.meta["bracket"]
            if number not in self._open:
                return  # a later score, of a run whose bracket is over
            bracket = self._open[number]
            if record.id in bracket.awaited and not may_go_on(record):
                # A later seed has failed: its promotion is withdrawn.
                bracket.promoted[-1].remove(record.id)
                bracket.sizes[bracket.rung] -= 1
            self._close_rung(bracket)
        if bracket.finished:
            del self._open[number]  # or what every ask looks through would grow for ever

    def _close_rung(self, bracket: Bracket) -> None:
        """Decide who goes on once the current rung is all scored."""
        records = [self.history[proposal] for proposal in bracket.rungs[-1]]
        if (
            bracket.finished
            or not bracket.proposed
            or any(record.result is None for record in records)
        ):
            return
        # Fewer than the paper's n_i where runs failed: there is nobody to take their places.
        size = self._promote(bracket, records)
        bracket.rungs.append([])
        bracket.sizes[bracket.rung] = size
        if not size:  # nobody left to promote: the bracket ends here
            del bracket.sizes[bracket.rung + 1 :]

    def _promote(self, bracket: Bracket, records: list[Record]) -> int:
        """Note who of the rung goes on.

        Returns how many runs the next rung has.
        """
        best = sorted(filter(may_go_on, records), key=merit)[: bracket.sizes[bracket.rung + 1]]
        bracket.promoted.append([record.id for record in best])
        return len(best)

    def keeps(self) -> Collection[ProposalId]:
        """Return the runs that open brackets may continue.

        In each they are those of the current rung and those promoted but not continued yet.
        """
        resumable: list[ProposalId] = []
        for bracket in self._open.values():
            resumable += bracket.awaited
            if bracket.rung < len(bracket.sizes) - 1:
                resumable += bracket.rungs[-1]
        return resumable


class SuccessiveHalving(Hyperband[HyperbandOptions]):
    """Random configurations, of which the best 1/eta go on at every rung.
    They go on eta times longer: it is Hyperband's first bracket, again and again.
    """

    def shape(self, bracket: int) -> tuple[list[int], tuple[int, ...]]:
        """Return runs per rung and the steps they are brought to."""
        return super().shape(0)


def _shape_text(sizes: list[int], steps: Sequence[int]) -> str:
    parts = (f"{counted(size, 'run')} to {step:,}" for size, step in zip(sizes, steps, strict=True))
    return ", ".join(parts) + " steps"


def _cost(sizes: list[int], steps: Sequence[int]) -> int:
    """Add up the steps of a bracket whose runs continue from checkpoints."""
    starts = (0, *steps[:-1])  # a promotion pays for its new steps only
    return sum(
        size * (step - start) for size, step, start in zip(sizes, steps, starts, strict=True)
    )
