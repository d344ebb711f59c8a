"""Population-based training [1]: who copies whom, when, and what may change.

A population of runs trains in generations of equal length. A member that is behind exploits one
that is ahead: it resumes from the donor's checkpoint with the donor's whole configuration, or, by
`exploit`, from the mean of its own weights and the donor's, as WARP [2] merges policies. It
explores: each changeable hyperparameter is moved or drawn anew in the unit cube, valid and within
its bounds always. Everybody else continues. A member that failed or stopped itself is replaced in
the same way, by a clone of a survivor. Members are compared at equal steps.

    generation 0   member 0: Proposal(c0, until=10)   member 1: Proposal(c1, until=10)
    Scored(0, 1.0), Scored(1, 0.2)
    generation 1   member 0: Proposal(c0, until=20, Continue(0))
                   member 1: Proposal(c0', until=20, Exploit(0, "1"))

Selection: `truncation` replaces the bottom quantile by draws from the top one; in a binary
`tournament` each member meets another at random and copies it if it is better. Synchronous by
default: a generation is decided when all of it is scored. Otherwise each member is decided when it
is scored itself, among those scored at its step by then.

In the first `ready` part of a run only failed members are replaced, because who leads early says
little about who will lead. Replacing from the start, a population of SAC on Pendulum-v1 loses all
members that learn to those that do not yet get worse.

A member that copied others has an agent that was picked for being ahead, and luck is a part of
that: its score is provisional. In the end the best schedules found so are trained from step 0
again, within the same budget, and compete by that score with the members that copied nobody
(`retrain`; with 0 everybody competes by the score they have). On DQN for CartPole-v1 the winners of
populations scored 305 on tuning seeds, their schedules 175 on others, and those of random search
231 and 197.

References:
    [1] Jaderberg et al., "Population based training of neural networks", 2017 (arXiv 1711.09846).
    [2] Rame et al., "WARP: On the benefits of weight averaged rewarded policies", 2024 (arXiv
        2406.16768).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from autorl.core.plain_text import counted
from autorl.core.types import (
    Change,
    Config,
    Continue,
    Done,
    Event,
    Exploit,
    FrozenMap,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Wait,
)
from autorl.optimizers._retraining import Retraining
from autorl.optimizers.base import BaseOptimizer, Problem, Record, equal_parts, option
from autorl.optimizers.hyperband import may_go_on, merit

if TYPE_CHECKING:
    import numpy as np

EXPLOITS = ("copy", "average", "slerp")
MOVES = ("step", "factor", "ratio")
MOST_MEMBERS = 64  # when the study's budget decides


@dataclass(frozen=True)
class PBTOptions:
    population: int | None = option(
        None,
        "members; null: as many full-length runs as the budget affords beside those of `retrain`",
        minimum=2,
    )
    generations: int = option(
        10, "segments of equal length between which members exploit and explore", minimum=2
    )
    selection: str = option(
        "truncation", "who is replaced by whom", choices=("truncation", "tournament")
    )
    quantile: float = option(
        0.25,
        "truncation: part of the population that is replaced, and part that is copied",
        minimum=0.0,
        maximum=0.5,
    )
    exploit: str = option(
        "copy",
        "what a member that is behind goes on from: a `copy` of the better agent; or one with the "
        "`average` of both agents' weights, or their middle on the sphere (`slerp`, as in WARP)",
        choices=EXPLOITS,
    )
    # The paper's rule: steps, which multiply a learning rate by ten, are not told apart from it on
    # three live tasks (`docs/optimizers.md`).
    explore: str = option(
        "factor",
        "how explore moves numbers: by `step` of their range, times `factor` as in the paper, or "
        "by a `ratio`, times `factor` or divided by it",
        choices=MOVES,
    )
    step: float = option(
        0.2, "how far explore moves, in units of a hyperparameter's range", minimum=0.0, maximum=1.0
    )
    factor: float = option(
        1.2,
        "explore: factor multiplies by this or by 2 minus this (1.2 or 0.8)",
        minimum=1.0,
        maximum=1.99,
    )
    resample: float = option(
        0.25, "probability that explore draws a hyperparameter anew", minimum=0.0, maximum=1.0
    )
    # On seven landscapes that come with the package the ranking of configurations correlates with
    # the final one by -0.10 to 0.48 after a tenth of a run, and by 0.70 to 0.88 after half.
    ready: float = option(
        0.5,
        "part of the horizon before which only failed members are replaced",
        minimum=0.0,
        maximum=1.0,
    )
    retrain: int | None = option(
        None,
        "so many schedules of members that copied others are trained from step 0 again in the end, "
        "and judged by that; 0: members are judged as they are; null: a quarter of the budget; "
        "with `population`, what it leaves",
        minimum=0,
    )
    synchronous: bool = option(
        True, "decide a generation when all of it is scored, not each member on its own"
    )


O = TypeVar("O", bound=PBTOptions)  # noqa: E741  (the options of a subclass)


@dataclass(frozen=True)
class Copy:
    """A copy that a member which is behind takes over.

    It resumes `donor` with the configuration of `source`, explored or as it is. If `source` is not
    the donor, only its changeable hyperparameters are taken.
    """

    donor: Record
    source: Record
    explore: bool = True


class Population(BaseOptimizer[O]):
    """Selection among the members of a population.

    Subclasses say who competes with whom, and how a copy explores.

    Class attributes:
        members: how many there are when the study's budget is unlimited.

    Attributes:
        population: number of members.
        retrain: number of schedules that are trained again in the end.
        steps: where the generations end; the last is the horizon.
    """

    partial = True
    population_based = True
    learns = True
    lag_free = True
    search_kind = "population"
    done_text = "has trained all its generations"
    takes_enqueued = False
    members = 8

    def __init__(self, problem: Problem, options: O) -> None:
        super().__init__(problem, options)
        self.averages = options.exploit != "copy"
        self.population, self.retrain = _sizes(problem.budget, options, self.members)
        _check(problem, self.population)
        self.steps = self.cuts(problem.horizon, options)
        # The proposal of each member, by generation.
        self._generations: list[dict[int, ProposalId]] = [{} for _ in self.steps]
        self._reached = [-1] * self.population  # generation of each member's last proposal
        self._retraining = Retraining(self.history, problem.horizon)

    @classmethod
    def cuts(cls, horizon: int, options: O) -> tuple[int, ...]:
        return equal_parts(horizon, options.generations)

    def outline(self) -> tuple[str, ...]:
        """Say who is replaced from when on, and what is trained again."""
        earliest = self.options.ready * self.problem.horizon
        ready = [step for step in self.steps[:-1] if step >= earliest]
        copying = "only failed members copy others"
        if ready:
            copying = f"members copy others from step {ready[0]} on"
            if self.averages:
                copying += f", with the {self.options.exploit} of both agents' weights, "
                copying += "and test runs train both"
        members = counted(self.population, "member")
        lines = [f"{members} in {counted(len(self.steps), 'generation')}; {copying}"]
        if self.retrain:
            schedules = counted(self.retrain, "schedule")
            lines.append(f"then at most {schedules} of members that copied, from step 0 again")
            lines.append("if fewer copied, that part of the budget stays unused")
        return tuple(lines)

    def cautions(self) -> tuple[str, ...]:
        """Say how much of the budget this population cannot use."""
        budget = self.problem.budget
        planned = self.population + self.retrain
        if math.isinf(budget) or budget - planned < 1:
            return ()
        return (
            f"{budget - planned:g} of the {budget:g} full-length runs of the budget stay unused: "
            f"{counted(self.population, 'member')} and at most "
            f"{counted(self.retrain, 'schedule')} trained again "
            f"need {planned}; a larger `population` uses them",
        )

    def blind(self, number: int) -> bool:
        """Proposals of the first generation are drawn at random."""
        return number < self.population

    def _explore(
        self, donor: Record, generation: int, rng: np.random.Generator
    ) -> tuple[Config, FrozenMap]:
        """Choose a valid configuration for a copy of `donor` to train.

        Only changeable hyperparameters differ. With it comes what a later `ask` needs to know of
        the decision, for the proposal's meta.
        """
        return self._perturbed(donor, rng), FrozenMap()

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        last = len(self.steps) - 1
        # Whoever is farthest behind has its turn first, the lowest number among equals.
        behind = sorted(
            (reached, member) for member, reached in enumerate(self._reached) if reached < last
        )
        if not behind:
            return self._again()
        for reached, member in behind:
            if reached < 0:
                first = self._initial_at(member)
                config, origin = first or (self.problem.space.sample(rng), "random")
                return self._segment(config, member, 0, origin)
            if self._decidable(member, reached):
                return self._next(member, reached + 1, rng)
        return Wait()

    def _again(self) -> Proposal | Wait | Done:
        """Propose what is trained when all members are at the end."""
        if not self.retrain:
            return Done()
        ends = self._settled(len(self.steps) - 1)
        if len(ends) < self.population:
            return Wait()
        copied = [record for record in ends if record.proposal.provisional]
        scored = [record for record in copied if isinstance(record.result, Scored)]
        return self._retraining.ask(sorted(scored, key=merit)[: self.retrain])

    def _decidable(self, member: int, generation: int) -> bool:
        """Tell whether what decides how `member` goes on is known."""
        proposals = self._generations[generation]
        if self.options.synchronous:
            return len(self._settled(generation)) == self.population
        if self.history[proposals[member]].result is None:
            return False
        settled = self._settled(generation)
        if any(map(may_go_on, settled)):
            return True
        # Nobody to copy: somebody slower may survive, so it is the last who decides that none did.
        return min(self._reached) >= generation and len(settled) == len(proposals)

    def _segment(
        self, config: Config, member: int, generation: int, origin: str, **facts: object
    ) -> Proposal:
        """Propose a generation of a member, from scratch."""
        meta = FrozenMap(generation=generation, **facts)
        until = self.steps[generation]
        return Proposal(config, until, member=str(member), origin=origin, meta=meta, retain=True)

    def _next(self, member: int, generation: int, rng: np.random.Generator) -> Proposal:
        settled = self._settled(generation - 1)
        current = self.history[self._generations[generation - 1][member]]
        ranked = sorted(filter(may_go_on, settled), key=merit)
        if not ranked:
            config = self.problem.space.sample(rng)
            return self._segment(config, member, generation, "random: nobody survived")
        copy = self._select(current, settled, ranked, generation, rng)
        if copy is None:
            # A provisional score stays provisional: the agent was picked for being ahead.
            return replace(
                current.proposal,
                until=self.steps[generation],
                parent=Continue(current.id),
                origin="continue",
                meta=FrozenMap(generation=generation),
                changes=None,
            )
        donor = copy.donor
        facts = FrozenMap()
        if copy.explore:
            config, facts = self._explore(donor, generation, rng)
            how = "exploit"
        else:
            config = self._mixed(copy, rng)
            how = "migrate from"
        # A stream for each member: copies of one donor would otherwise have the same luck.
        parent = Exploit(donor.id, stream=str(member))
        # Whoever failed has no agent of its own.
        if self.averages and current in ranked:
            parent = replace(parent, second=current.id, mean=self.options.exploit)
            how = f"{parent.mean} with"
        origin = f"{how} member {donor.proposal.member}"
        return replace(
            self._segment(config, member, generation, origin, **facts),
            parent=parent,
            provisional=self.retrain > 0,
            informed=True,
            changes=_changes(donor.proposal.config, config),
        )

    # -- selection ---------------------------------------------------------------------------------

    def _select(
        self,
        member: Record,
        settled: Sequence[Record],
        ranked: Sequence[Record],
        generation: int,
        rng: np.random.Generator,
    ) -> Copy | None:
        """Choose whom `member` copies, None if it continues.

        `ranked` are those of `settled` that may go on, best first.
        """
        peers = self._peers(member, ranked)
        size = len(self._peers(member, settled))
        count = math.ceil(self.options.quantile * size)  # failed members count, as the lowest
        # 1. whoever cannot go on is replaced, early too
        if member not in ranked:
            donor = self._survivor(peers or ranked, count, rng)
            return Copy(donor, donor)
        # 2. nobody else before the population is ready
        early = self.steps[generation - 1] < self.options.ready * self.problem.horizon
        if early or not self._evolves(member, generation):
            return None
        better = self._better(member, peers, count, rng)
        return (
            self._migrant(member, peers, ranked, count) if better is None else Copy(better, better)
        )

    def _peers(self, member: Record, records: Sequence[Record]) -> Sequence[Record]:
        """Return those of `records` that `member` competes with."""
        return records

    def _evolves(self, member: Record, generation: int) -> bool:
        """Tell whether a member may copy another in a generation."""
        return True

    def _migrant(
        self, member: Record, peers: Sequence[Record], ranked: Sequence[Record], count: int
    ) -> Copy | None:
        """Choose whom a member copies that copies none of its peers.

        The best `count` of these are ahead, the worst behind.
        """
        return None

    def _better(
        self, member: Record, peers: Sequence[Record], count: int, rng: np.random.Generator
    ) -> Record | None:
        """Choose whom `member`, which may go on, copies among its peers."""
        if self.options.selection == "truncation":
            # If few are left the quantiles overlap: members that are copied are never replaced.
            behind = member in peers[max(count, len(peers) - count) :]
            return self._survivor(peers, count, rng) if behind else None
        opponents = [record for record in peers if record is not member]
        if not opponents:
            return None
        met = opponents[int(rng.integers(len(opponents)))]
        return met if merit(met) < merit(member) else None

    def _survivor(self, ranked: Sequence[Record], count: int, rng: np.random.Generator) -> Record:
        """Draw whom one copies that has to copy somebody."""
        if self.options.selection == "truncation":
            return ranked[int(rng.integers(max(1, min(count, len(ranked)))))]
        # The better of two that are drawn: `ranked` has the best first.
        return ranked[int(rng.integers(len(ranked), size=2).min())]

    def _mixed(self, copy: Copy, rng: np.random.Generator) -> Config:
        """Mix the donor's configuration with what may change of the source.

        The configuration stays as it is if the mixture breaks a rule.
        """
        config = copy.donor.proposal.config
        changeable = self.problem.changeable
        source = copy.source.proposal.config
        values = {name: value for name, value in source.items() if name in changeable}
        return self.problem.space.place(config, values, rng, changeable) or config

    def _perturbed(self, donor: Record, rng: np.random.Generator) -> Config:
        """The donor's configuration with all that may change moved or drawn anew."""
        options = self.options
        factor = None if options.explore == "step" else options.factor
        return self.problem.space.perturb(
            donor.proposal.config,
            rng,
            self.problem.changeable,
            options.step,
            options.resample,
            factor,
            divide=options.explore == "ratio",
        )

    # -- state -------------------------------------------------------------------------------------

    def _settled(self, generation: int) -> list[Record]:
        """Return the proposals of a generation that have an outcome, by member."""
        proposals = self._generations[generation]
        records = (self.history[proposals[member]] for member in sorted(proposals))
        return [record for record in records if record.result is not None]

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed) and not self._retraining.observe(event):
            member = int(event.proposal.member or 0)
            generation = int(event.proposal.meta["generation"])
            self._generations[generation][member] = event.id
            self._reached[member] = generation

    def keeps(self) -> Collection[ProposalId]:
        """Return possible donors: proposals of the oldest open generation and later ones."""
        oldest = max(0, min(self._reached))
        generations = self._generations[oldest:-1]  # nobody copies at the end
        donors = [number for generation in generations for number in generation.values()]
        return donors + self._retraining.keeps()


class PBT(Population[PBTOptions]):
    """A population whose worst members copy the best and explore.
    They take over weights and configuration, and perturb what may change.
    """

    Options = PBTOptions


def _check(problem: Problem, population: int) -> None:
    if not problem.changeable:
        raise InputError(
            "a population changes hyperparameters during training: mark some `changeable: true`",
            key="space",
        )
    if problem.budget < 2:
        paid = counted(problem.budget, "full run", form=".2g")
        message = f"a population needs two members, and this pays for {paid} of each seed"
        raise InputError(message, key="budget")
    starts = len(problem.initial)
    if starts > population:
        starts_text = counted(starts - 1, "warm start")
        message = f"the default and {starts_text} do not fit into a population of {population}"
        raise InputError(message, key="optimizer.population")


def _sizes(budget: float, options: PBTOptions, unlimited: int) -> tuple[int, int]:
    """Count the members, and the schedules trained again.

    Together they are as many full-length runs as the budget affords. Members that do not use it up
    leave the rest to schedules, as many as there can be that copied others.
    """
    population = options.population
    retrain = options.retrain
    if math.isinf(budget):
        population = population or unlimited
        return population, population // 3 if retrain is None else retrain
    affordable = int(budget)
    if population is None:
        reserved = affordable // 4 if retrain is None else retrain
        population = max(2, min(MOST_MEMBERS, affordable - reserved))
    spare = max(0, affordable - population)
    return population, min(population, spare) if retrain is None else retrain


def _changes(old: Config, new: Config) -> tuple[Change, ...]:
    """List what explore has changed, in the order of the new configuration."""
    return tuple(
        Change(name, old.get(name), value)
        for name, value in new.items()
        if name not in old or value != old[name]  # explore may have made it active
    )
