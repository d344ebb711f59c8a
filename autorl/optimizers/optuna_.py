"""Search by a sampler of Optuna's: `nsga2`.

One Optuna study lives as long as the optimizer, and holds one trial per proposal: what was really
proposed (after repairs), pending ones as running trials, penalties of failed ones as values. Each
ask gets a fresh sampler seeded from `rng`, lets it fill in a draft trial along the conditions of
the space, reads it and throws it away, so `ask` leaves no trace. Attributes that a sampler sets on
the draft or the study (NSGA-II: generation and parents) travel in `Proposal.meta` and come back
with `Proposed`; from parameters and values alone NSGA-II would lose its generations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from autorl.core.plain_values import plain
from autorl.core.quiet import quieted
from autorl.core.types import Config, Event, Failed, Proposal, Proposed
from autorl.optimizers.base import BaseOptimizer, Problem, option

if TYPE_CHECKING:
    import numpy as np
    from optuna.samplers import BaseSampler

    from autorl.optimizers._optuna import TrialTable

O = TypeVar("O")  # noqa: E741  (the options of a subclass)


class OptunaOptimizer(BaseOptimizer[O]):
    """The base of optimizers that ask one of Optuna's samplers.

    They share the study as a view of the history, drafts, validity and failures.
    """

    multi_objective = True
    search_kind = "search"
    learns = True
    redraws: ClassVar[int] = 5  # after drafts that repeat a proposal or break a rule of the space
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
        with table.draft(), quieted("optuna"):
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
            from optuna.study import Study

            self._table = _bridge().TrialTable(self.problem.n_objectives)
            self._study = Study("autorl", self._table)
            searched = {
                n: h for n, h in self.problem.space.hyperparameters.items() if h.type != "constant"
            }
            self._distributions = {n: _bridge().distribution_of(h) for n, h in searched.items()}
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
            self._table.study_attributes |= plain(record.proposal.meta.get("study", {}))
        self._stale.clear()
        return self._table


def _bridge() -> ModuleType:
    """Give the module that imports optuna."""
    from autorl.optimizers import _optuna

    return _optuna


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
