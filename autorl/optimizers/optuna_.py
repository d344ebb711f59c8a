"""Search by Optuna's samplers: `tpe`, `gp`, `nsga2`.

Model-based and evolutionary.

One Optuna study lives as long as the optimizer, and holds one trial per proposal: what was really
proposed (after repairs), pending ones as running trials, penalties of failed ones as values. Each
ask gets a fresh sampler seeded from `rng`, lets it fill in a draft trial along the conditions of
the space, reads it and throws it away, so `ask` leaves no trace. Attributes that a sampler sets on
the draft or the study (NSGA-II: generation and parents) travel in `Proposal.meta` and come back
with `Proposed`; from parameters and values alone NSGA-II would lose its generations.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from autorl.core.plain_values import plain
from autorl.core.quiet import quieted
from autorl.core.seeds import digest
from autorl.core.types import Config, Event, Failed, Proposal, Proposed
from autorl.optimizers._startup import startup_option, startup_size
from autorl.optimizers.base import BaseOptimizer, Problem, option, require, seed_counts

if TYPE_CHECKING:
    import numpy as np
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    from autorl.optimizers._optuna import TrialTable

O = TypeVar("O")  # noqa: E741  (the options of a subclass)
Rank: TypeAlias = tuple[float, float]
"""By how much a result breaks the constraints, and its value, negative: smaller is better."""

BEST = 25  # as many as TPE takes for good, whatever the number of results (Bergstra et al. 2011)


class ResultSample:
    """Chooses the results of a model: the best and a sample.

    The densities of TPE hold one kernel for every result, so that an ask costs more with each.
    From `most` results on they are made of as many: the best, which alone make the density of the
    good, and of the others a sample. A proposal's place in the sample is a hash of its number, so
    the sample is the same in every session, hardly changes from one result to the next, and holds
    early and late proposals alike.

    Orders are kept sorted, so that a result costs a bisection. The choice is a function of the
    results alone, in whatever order they came.

    Args:
        most: results that are chosen, at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranks: dict[int, Rank] = {}
        self._by_rank: list[tuple[Rank, int]] = []
        self._by_hash: list[tuple[int, int]] = []

    def put(self, number: int, rank: Rank) -> None:
        """Take note of a result.

        It takes the place of an earlier one of the same number.
        """
        self.remove(number)
        self._ranks[number] = rank
        insort(self._by_rank, (rank, number))
        insort(self._by_hash, (_place(number), number))

    def remove(self, number: int) -> None:
        """Forget a result.

        Nothing happens where there is none.
        """
        rank = self._ranks.pop(number, None)
        if rank is not None:
            del self._by_rank[bisect_left(self._by_rank, (rank, number))]
            del self._by_hash[bisect_left(self._by_hash, (_place(number), number))]

    def chosen(self) -> list[int]:
        """List the numbers of what the model is made of, ascending."""
        if len(self._ranks) <= self._most:
            return sorted(self._ranks)
        best = {number for _, number in self._by_rank[:BEST]}
        sampled = (number for _, number in self._by_hash if number not in best)
        return sorted([*best, *islice(sampled, self._most - BEST)])


def _place(number: int) -> int:
    return digest(0, "sample of results", number)


class OptunaOptimizer(BaseOptimizer[O]):
    """The base of optimizers that ask one of Optuna's samplers.

    They share the study as a view of the history, drafts, validity and failures.
    """

    multi_objective = True
    search_kind = "search"
    learns = True
    redraws: ClassVar[int] = 5  # after drafts that repeat a proposal or break a rule of the space
    relax: ClassVar[float] = math.inf  # integers with more values are continuous for the sampler
    # Attributes of trials that no sampler drafted: the initial configurations.
    first_attributes: ClassVar[Mapping[str, object]] = {}

    def __init__(self, problem: Problem, options: O) -> None:
        super().__init__(problem, options)
        self._numbers: dict[int, int] = {}  # proposal -> trial
        self._proposed: set[Config] = set()
        self._scored: set[int] = set()  # proposals with a score or a penalty
        self._stale: dict[int, None] = {}  # proposals whose trial is not up to date
        # Largest value of each constraint: what a failed run is told to have.
        self._worst: tuple[float, ...] = ()
        self._study: Any = None
        self._table: TrialTable | None = None

    @abstractmethod
    def _sampler(self, seed: int) -> BaseSampler:
        """Make a fresh sampler."""

    def _ready(self) -> bool:
        """Tell whether the next proposal is made from the scores known."""
        return self.modelled(len(self.history), len(self._scored))

    def _sampling(self) -> AbstractContextManager[None]:
        """Return a context around the sampler's work."""
        return nullcontext()

    def _shared(self) -> dict[str, BaseDistribution] | None:
        """Return the parameters that every trial has, if these are all.

        The result is None where some depend on others.
        """
        if self.problem.space.conditions:
            return None
        # Sorted like Optuna's intersection of the trials' parameters: the order of draws.
        return {
            name: distribution
            for name, distribution in sorted(self._distributions.items())
            if not distribution.single()
        }

    def _seed_counts(self) -> list[int] | None:
        """Return the seeds behind the score of each trial.

        The result is None where all count the same.
        """
        return seed_counts(self.history) if self.problem.weigh_seeds else None

    def _ask(self, rng: np.random.Generator) -> Proposal:
        table = self._synchronized()
        space = self.problem.space
        informed = self._ready()
        name = type(self).__name__.lower()
        if not informed:
            name = f"{name}, start-up"
        # 1. what the sampler drafts, until it is valid and new
        for _ in range(1 + self.redraws):
            config, meta = self._draft(table, seed=int(rng.integers(2**31)))
            valid = space.is_valid(config)
            if valid and config not in self._proposed:
                return self._propose(config, name, meta, informed=informed)
        # 2. its last draft, made valid
        repaired = config if valid else space.repair(config, rng)
        if repaired not in self._proposed:
            return self._propose(repaired, f"{name}, repaired", meta, informed=informed)
        # 3. any other: a repeat would be trained on the same seeds and teach nothing
        origin = f"{name}, at random: its choice was proposed before"
        return self._propose(space.sample(rng), origin, meta, informed=informed)

    def _draft(self, table: TrialTable, seed: int) -> tuple[Config, dict[str, Any]]:
        """Draft a configuration, perhaps invalid.

        With it comes what the sampler wants remembered.
        """
        space = self.problem.space
        config: dict[str, Any] = {}
        before = table.study_attributes
        # Optuna remarks on experimental arguments and slower fall-backs.
        with table.draft(), quieted("optuna"), self._sampling():
            self._study.sampler = self._sampler(seed)
            trial = self._study.ask()
            for name in space.names:
                hyperparameter = space.hyperparameters[name]
                if not space.is_active(name, config):
                    continue
                if hyperparameter.type == "constant":
                    config[name] = hyperparameter.default
                else:
                    drawn = trial._suggest(name, self._distributions[name])
                    config[name] = _bridge().decode(hyperparameter, drawn)
            # These are copies of the configuration, for other processes that ask: there are none.
            attached = {
                key: value
                for key, value in table.trials[-1].system_attrs.items()
                if "relative_params" not in key
            }
            changed = {
                key: value for key, value in table.study_attributes.items() if key not in before
            }
        meta = {"trial": attached, "study": changed}
        return Config(config), {key: value for key, value in meta.items() if value}

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._numbers[event.id] = len(self._numbers)
            self._stale[event.id] = None
            self._proposed.add(event.proposal.config)
            return
        self._stale[event.proposal] = None
        if self.history[event.proposal].values:
            self._scored.add(event.proposal)
        else:
            self._scored.discard(event.proposal)
        constraints = self.history[event.proposal].constraints
        worst = tuple(map(max, constraints, self._worst)) if self._worst else constraints
        # Failed runs are told the worst violation, lest a sampler take a crash for feasible.
        if worst and worst != self._worst:
            self._worst = worst
            self._stale |= {
                record.id: None for record in self.history if isinstance(record.result, Failed)
            }

    def _synchronized(self) -> TrialTable:
        """Bring the table to the state of the history, and return it.

        It is built whole after a resume, touched up otherwise.
        """
        if self._table is None:
            self._table = _bridge().TrialTable(self.problem.n_objectives)
            self._study = _bridge().Study("autorl", self._table)
            searched = {
                n: h for n, h in self.problem.space.hyperparameters.items() if h.type != "constant"
            }
            self._distributions = {
                n: _bridge().distribution_of(h, self.relax) for n, h in searched.items()
            }
        # In the order of proposals: the table grows by one trial at a time, and of the study's
        # attributes the latest stand.
        for proposal in sorted(self._stale):
            record = self.history[proposal]
            failed = isinstance(record.result, Failed)
            trial = _bridge().told_trial(
                record,
                self._distributions,
                self.problem.space.hyperparameters,
                plain(record.proposal.meta.get("trial", self.first_attributes)),
                self._worst if failed else record.constraints,
            )
            self._table.put(self._numbers[proposal], trial)
            self._take_told(trial)
            self._table.study_attributes |= plain(record.proposal.meta.get("study", {}))
        self._stale.clear()
        self._table.shown = self._shown()
        return self._table

    def _take_told(self, trial: FrozenTrial) -> None:
        """Take note of a trial that is new or has changed."""

    def _shown(self) -> Sequence[int] | None:
        """List the trials that the sampler sees, by number.

        None: all of them.
        """
        return None


def _bridge() -> ModuleType:
    """Give the module that imports optuna."""
    from autorl.optimizers import _optuna

    return _optuna


@dataclass(frozen=True)
class StartupOptions:
    startup: int | None = startup_option()


S = TypeVar("S", bound=StartupOptions)


class StartedOptimizer(OptunaOptimizer[S]):
    """A sampler that draws at random in its start-up."""

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the start-up is over."""
        return not self.blind(proposed) and scored > 0

    def blind(self, number: int) -> bool:
        """Tell whether a proposal belongs to the start-up, which reads no score."""
        return number < startup_size(self.options.startup, self.problem.budget)

    @property
    def _trials_needed(self) -> int:
        """Return how many scored trials the sampler is told to wait for.

        It is one, or for ever.
        """
        return 1 if self._ready() else sys.maxsize


@dataclass(frozen=True)
class TPEOptions(StartupOptions):
    candidates: int = option(
        24, "samples from the good configurations' density, of which the best is taken", minimum=1
    )
    most_results: int | None = option(
        1000,
        "results the densities are made of, where there is one objective: the best, and a fixed "
        "sample of the others; null: all of them",
        minimum=10 * BEST,  # with fewer TPE takes fewer for good
    )


class TPE(StartedOptimizer[TPEOptions]):
    """Multivariate tree-structured Parzen estimator (Bergstra et al. 2011).
    It is Optuna's TPESampler.
    """

    Options = TPEOptions

    def __init__(self, problem: Problem, options: TPEOptions) -> None:
        super().__init__(problem, options)
        # With several objectives the good results are whole fronts, which grow with the results.
        self._sample: ResultSample | None = None
        if options.most_results is not None and problem.n_objectives == 1:
            self._sample = ResultSample(options.most_results)

    def _take_told(self, trial: FrozenTrial) -> None:
        if self._sample is None:
            return
        if not trial.values:
            self._sample.remove(trial.number)
            return
        # As Optuna ranks: what breaks no constraint by its value, all else by how much it breaks.
        violated = sum(value for value in trial.constraints.values() if value > 0)
        value = 0.0 if violated else -trial.values[0]
        self._sample.put(trial.number, (violated, value))

    def _shown(self) -> Sequence[int] | None:
        if self._sample is None or len(self._scored) <= (self.options.most_results or 0):
            return None
        pending = [self._numbers[proposal] for proposal in self.history.pending]
        return sorted([*self._sample.chosen(), *pending])

    def _sampler(self, seed: int) -> BaseSampler:
        space = self.problem.space
        valid = self._valid if bool(space.forbidden or space.constraints) else None
        sampler: BaseSampler = _bridge().FastTPE(
            known=self._shared(),
            valid=valid,
            n_startup_trials=self._trials_needed,
            n_ei_candidates=self.options.candidates,
            multivariate=True,  # one density of all, which sees how they depend on each other
            group=bool(space.conditions),  # one for each set of parameters that are active together
            constant_liar=True,  # proposals in flight count as bad: the next is elsewhere
            counts=self._seed_counts(),
            seed=seed,
        )
        return sampler

    def _sampling(self) -> AbstractContextManager[None]:
        context: AbstractContextManager[None] = _bridge().compiled_normal()
        return context

    def _valid(self, parameters: Mapping[str, object]) -> bool:
        """Tell whether a candidate breaks no rule of the space.

        `parameters` are as the sampler has them.
        """
        space = self.problem.space
        constants = {
            name: h.default for name, h in space.hyperparameters.items() if h.type == "constant"
        }
        chosen = {
            name: _bridge().decode(space.hyperparameters[name], value)
            for name, value in parameters.items()
        }
        return not space.violated({**constants, **chosen})


class GP(StartedOptimizer[StartupOptions]):
    """Gaussian process with log expected improvement, Optuna's GPSampler.
    Hyperparameters that are not always active are drawn at random.

    Proposals in flight are integrated over (qLogEI), which leaves a seventh of the regret of a
    constant liar (4-d sphere, 8 in flight, 32 runs).
    """

    Options = StartupOptions
    # Up to so many values Optuna tries one by one. Its search along longer integers costs more than
    # all the rest, and the acquisition hardly changes from one to the next.
    relax = 16
    redraws = 0  # the acquisition has one maximum, found again with every seed, and dear to find

    def __init__(self, problem: Problem, options: StartupOptions) -> None:
        require("torch", "gp", "bo")
        super().__init__(problem, options)

    def _sampler(self, seed: int) -> BaseSampler:
        sampler: BaseSampler = _bridge().FastGP(
            known=self._shared(),
            n_startup_trials=self._trials_needed,
            warn_independent_sampling=False,
            counts=self._seed_counts(),
            seed=seed,
        )
        return sampler

    def _sampling(self) -> AbstractContextManager[None]:
        context: AbstractContextManager[None] = _bridge().one_torch_thread()
        return context


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


class NSGA2(OptunaOptimizer[NSGA2Options]):
    """Elitist genetic algorithm for several objectives (Deb et al. 2002).
    It is Optuna's NSGAIISampler.
    """

    Options = NSGA2Options
    # A trial without a generation would never be a parent.
    first_attributes: ClassVar[Mapping[str, object]] = {"NSGAIISampler:generation": 0}

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

    def _sampler(self, seed: int) -> BaseSampler:
        from optuna.samplers import NSGAIISampler

        return NSGAIISampler(
            population_size=self.population_size,
            crossover_prob=self.options.crossover_prob,
            swapping_prob=self.options.swapping_prob,
            seed=seed,
        )
