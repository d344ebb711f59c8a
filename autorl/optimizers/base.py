"""The contract of an optimizer, and the parts all of them share.

An optimizer decides which configuration is trained next, how far, and from which checkpoint. It
trains nothing, stores nothing and knows no clock. Three calls make up its life:

`ask(rng)` returns the next `Proposal`, `Wait` (another outcome must be observed first) or `Done`
(nothing left, and so for ever). It has no durable effect: asked again with an equal generator it
gives an equal answer, and an optimizer that was asked and never told about it equals one that was
not asked. Results that `ask` computes may be cached, never remembered.

`observe(event)` is the only change of state: `Proposed` (the proposal is durable and has got its
number), `Scored` (it was evaluated; larger is better; a later one supersedes) or `Failed` (every
seed of it failed; `values` is the penalty, empty as long as no score exists to derive one from).
State is therefore a fold over events. A study is resumed by observing its stored events on a fresh
instance; the next answers are then bit for bit those of the process that was killed. Nothing is
pickled. Decisions of `ask` that cannot be recomputed from the events go into `Proposal.meta`, as
JSON.

A proposal says whose agent it trains on: nobody's (`parent=None`), that of an earlier proposal of
its own chain (`Continue(id)`), or a copy of another's (`Exploit(id, stream)`), which goes on with
other random streams. `member` names a slot for people and tables and decides nothing.

`keeps()` names the proposals that may still be resumed; other checkpoints may be deleted.
`blind(number)` says which proposals no outcome has a part in: those need not wait for any.

The driver is single-threaded. Proposals are numbered by their first `Proposed`, ascending. Outcomes
come later, in any order; which of them precede which `ask` depends on the study file alone. A trace
with two proposals in flight:

    ask(rng 0)              -> Proposal(default configuration, until=horizon)
    observe(Proposed(0, ...))
    ask(rng 1)              -> Proposal(...)                 # 0 is pending: its result is unknown
    observe(Proposed(1, ...))
    observe(Scored(0, (12.5,)))
    ask(rng 2)              -> Wait()                        # a generation is out: 1 is needed
    observe(Failed(1, DIVERGED, (12.5,)))                    # the penalty: the worst score so far
    ask(rng 2)              -> Proposal(..., parent=Continue(0))   # the same rng as before `Wait`
    observe(Proposed(2, ...))
    observe(Scored(0, (12.1,), n_seeds=2))                   # one more seed: supersedes 12.5

To write an optimizer: subclass `BaseOptimizer`, implement `_ask` (and `_observe` if there is state
beyond the history), declare the options as a frozen dataclass and, as `search_kind`, what decides
the configurations. Name the class in `registry.py`, or in a package of your own under the entry
point group `autorl.optimizers`; the conformance kit tests it.
"""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from autorl.core.types import (
    Config,
    Done,
    Event,
    Failed,
    FrozenMap,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Wait,
)

if TYPE_CHECKING:
    import numpy as np

    from autorl.space import Space


SearchKind: TypeAlias = Literal["search", "design", "phased_design", "population", "schedule"]
"""What decides which configurations an optimizer has trained:

- search: scores, by a model, by selection, or by how far each is trained
- design: a plan made before any score is known
- phased_design: such a plan, trained phase by phase from the best agent of the phase before
- population: members that change their configurations while they train, by copying and exploring
- schedule: the user, who gives one configuration for each step
"""


TRIES = 100  # draws until one is new

RETRAINS = "retrains"
"""A key of `Proposal.meta`: the proposal whose schedule this one is a part of, trained again."""


@dataclass(frozen=True)
class Problem:
    """The problem to be optimized, as far as an optimizer may know.

    Attributes:
        horizon: steps of a full-length run.
        budget: full-length runs the study can afford; may be infinite.
        n_objectives: length of `Scored.values`.
        changeable: hyperparameters that may differ between a proposal and the one it resumes from.
        initial: configurations proposed first: the default configuration, then the warm starts; no
            repeats.
        weigh_seeds: scores count by the seeds behind them (`seed_counts`).
    """

    space: Space
    horizon: int
    budget: float
    n_objectives: int
    changeable: frozenset[str]
    initial: tuple[Config, ...]
    weigh_seeds: bool = False


@dataclass(frozen=True)
class Surroundings:
    """Facts about a study that options may be resolved by.

    Attributes:
        space: the search space.
        algorithms: of its trainers, such as `ppo`; empty where that is not known.
        environment: what is trained on, None where that is not known.
        replays: id of the landscape whose recorded runs answer for training, or "".
        folder: of the study file, None without one.
        n_seeds: tuning seeds that a score is made of, at least.
        reduction: of the objective: how a score is made of a learning curve.
    """

    space: Space
    algorithms: tuple[str, ...] = ()
    environment: str | None = None
    replays: str = ""
    folder: Path | None = None
    n_seeds: int = 1
    reduction: str = "last"


@dataclass(frozen=True)
class Record:
    """A proposal and its latest result."""

    id: ProposalId
    proposal: Proposal
    result: Scored | Failed | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """Score or penalty, one per objective.

        Empty while pending, and for a failure without a penalty.
        """
        return self.result.values if self.result is not None else ()

    @property
    def constraints(self) -> tuple[float, ...]:
        return self.result.constraints if isinstance(self.result, Scored) else ()


class History:
    """All that was observed: one frozen `Record` per proposal.

    They are in the order of the proposals. It is itself a fold.

    Attributes:
        configs: the configurations that were proposed, in order.
    """

    def __init__(self) -> None:
        self.configs: dict[Config, None] = {}
        self._records: dict[ProposalId, Record] = {}
        self._pending: dict[ProposalId, None] = {}  # no set: the order of proposals is kept

    def observe(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, Proposed):
            assert not self._records or event.id > next(reversed(self._records)), (
                f"proposal {event.id} out of order"
            )
            self._records[event.id] = Record(event.id, event.proposal)
            self.configs[event.proposal.config] = None
            self._pending[event.id] = None
        else:
            assert event.proposal in self._records, f"outcome of an unknown proposal: {event}"
            # NaN is neither better nor worse than anything: no order of runs would hold.
            assert all(math.isfinite(value) for value in event.values), (
                f"a score that is not finite: {event}"
            )
            assert not any(map(math.isnan, getattr(event, "constraints", ()))), (
                f"a constraint is NaN: {event}"
            )
            proposal = self._records[event.proposal].proposal
            self._records[event.proposal] = Record(event.proposal, proposal, event)
            self._pending.pop(event.proposal, None)

    @property
    def pending(self) -> Collection[ProposalId]:
        """Proposals without any outcome, in order."""
        return self._pending.keys()

    def __getitem__(self, proposal: ProposalId) -> Record:
        return self._records[proposal]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)


def option(
    default: object,
    text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Make a field of an options dataclass.

    It has a default, one line of help, and what is allowed; its type is the annotation's.
    """
    return field(
        default=default,
        metadata={"help": text, "minimum": minimum, "maximum": maximum, "choices": choices},
    )


@dataclass(frozen=True)
class NoOptions:
    """Options of optimizers that have none."""


O = TypeVar("O")  # noqa: E741  (the options of a subclass)


class BaseOptimizer(ABC, Generic[O]):
    """Proposes the initial configurations, then whatever `_ask` says.

    It checks and books what goes in and out.

    Class attributes:
        Options: frozen dataclass of the options, its fields made by `option`.
        multi_objective: whether more than one objective is understood.
        partial: proposes segments that end before the horizon (rungs, generations); such optimizers
            place the initial configurations themselves and cannot be combined with `stop`.
        population_based: a proposal may resume another run's checkpoint (exploit): racing over
            seeds is impossible.
        averages: a proposal may name a second agent, whose weights are averaged with the first's.
        learns: new configurations are meant to come from observed scores, after a start-up. Such an
            optimizer sets `Proposal.informed` where they do.
        reads_priors: draws configurations, or makes a model, by the priors of the space.
        lag_free: how many proposals are in flight does not change what is proposed, or only what a
            generation knows of itself: there is nothing to gain by waiting for scores.
        search_kind: what decides which configurations are trained; see `SearchKind`.
        resolved: options that `resolved_options` adds, which a study writes when it begins.
        watches: metrics that it sees besides the objective, in `Scored.watched`.
        takes_enqueued: a new configuration may be replaced by one of the caller's
            (`Tuner.enqueue`). Not where `meta` says more of the configuration, or a plan would
            lose a place.
        done_text: what is said of the optimizer where its `Done` has ended a search.
    """

    Options: ClassVar[type[Any]] = NoOptions
    multi_objective: ClassVar[bool] = False
    partial: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    reads_priors: ClassVar[bool] = True
    lag_free: ClassVar[bool] = False
    search_kind: ClassVar[SearchKind] = "search"
    resolved: ClassVar[tuple[str, ...]] = ()
    watches: ClassVar[tuple[str, ...]] = ()
    done_text: ClassVar[str] = "has nothing more to propose"
    takes_enqueued: bool = True
    population_based: bool = False  # of an instance where it depends on the options
    averages: bool = False

    def __init__(self, problem: Problem, options: O) -> None:
        self.problem = problem
        self.options = options
        self.history = History()

    def ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        """Return the next proposal, without a durable effect."""
        answer = self._initial() or self._ask(rng)
        # Assertions, not errors: only a fault of the algorithm can break them, no study file.
        if isinstance(answer, Proposal):
            assert self.problem.space.is_valid(answer.config), (
                f"{type(self).__name__} proposed {answer.config}"
            )
            assert 0 < answer.until <= self.problem.horizon, (
                f"{type(self).__name__}: until {answer.until}"
            )
        assert not isinstance(answer, Wait) or self.history.pending, (
            f"{type(self).__name__} waits for nothing"
        )
        return answer

    def observe(self, event: Event) -> None:
        """Take note of an event: the only state change."""
        if isinstance(event, Scored):
            assert len(event.values) == self.problem.n_objectives, (
                f"{len(event.values)} values: {event}"
            )
        self.history.observe(event)
        self._observe(event)

    def keeps(self) -> Collection[ProposalId]:
        """Return proposals that may still be resumed.

        None, for an optimizer of full-length runs.
        """
        return ()

    @classmethod
    def cuts(cls, horizon: int, options: O) -> tuple[int, ...]:
        """Return the steps its segments end at with these options.

        They ascend; the last is the horizon.
        """
        return (horizon,)

    @classmethod
    def resolved_options(
        cls, options: Mapping[str, Any], surroundings: Surroundings
    ) -> Mapping[str, Any]:
        """Resolve what options name outside the study file.

        It is asked once, when a study file is read, before options are checked: a stored study has
        the answer and depends on nothing else.

        Raises:
            InputError: what an option names cannot be used.
        """
        return options

    @classmethod
    def has_prior(cls, options: Mapping[str, Any]) -> bool:
        """Say whether there is anything to learn from beforehand.

        Args:
            options: resolved ones.
        """
        return False

    def outline(self) -> tuple[str, ...]:
        """Describe how runs are cut and how far the budget goes.

        These are lines for `--dry-run`, none for full-length runs.
        """
        return ()

    def cautions(self) -> tuple[str, ...]:
        """Say what a user had better know before the study starts."""
        if self.problem.space.has_priors and not self.reads_priors:
            return ("this optimizer does not read the priors of the space",)
        return ()

    def planned_configurations(self) -> int | None:
        """Count the configurations its options ask for.

        The result is None where the budget alone limits them.
        """
        return None

    def _initial(self) -> Proposal | None:
        """Propose the initial configuration whose turn it is.

        The result is None when all were proposed.
        """
        first = None if self.partial else self._initial_at(len(self.history))
        return None if first is None else self._propose(*first)

    def _initial_at(self, number: int) -> tuple[Config, str] | None:
        """Return initial configuration `number` and its origin, None behind the last."""
        if number >= len(self.problem.initial):
            return None
        return self.problem.initial[number], "warm start" if number else "default"

    def blind(self, number: int) -> bool:
        """Tell whether proposal `number` depends on no outcome at all.

        Then it is made without waiting for any, in studies with fixed seeds. The answer must be a
        function of `number`, the problem and the options. If it is True, `ask` gives the same
        proposal, from scratch, whichever outcomes were observed; and what `observe` leaves is the
        same whether they come before the proposal or after it. `Wait` and `Done` are asked again
        when all are in, so a design may end where it likes. Designs do not override it.
        """
        return self.search_kind == "design"

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether a model of full-length runs makes a proposal.

        It is proposal number `proposed`, with so many scores known.

        For counting without asking the model, which may be dear: `--dry-run` asks `DryRun` instead
        of an optimizer that overrides this.
        """
        return False

    def _propose(
        self,
        config: Config,
        origin: str,
        meta: Mapping[str, object] | None = None,
        *,
        informed: bool = False,
    ) -> Proposal:
        """Propose a full-length run of `config` from scratch."""
        return Proposal(
            config,
            self.problem.horizon,
            origin=origin,
            meta=FrozenMap(meta or {}),
            informed=informed,
        )

    def _sampled(self, rng: np.random.Generator) -> Config:
        """Draw a configuration, one that was not proposed where that is easy."""
        for _ in range(TRIES):
            config = self.problem.space.sample(rng)
            if config not in self.history.configs:
                break
        return config

    def _repaired(self, config: Config, rng: np.random.Generator) -> tuple[Config, str]:
        """Repair a configuration or draw another, and say which was done."""
        repaired = self.problem.space.repair(config, rng)
        if repaired not in self.history.configs:
            return repaired, "repaired"
        # A repeat would be trained on the same seeds and teach nothing.
        return self._sampled(rng), "at random: its choice was proposed before"

    @abstractmethod
    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        """Make the proposal after the initial ones: the algorithm.

        It must not change state.
        """

    def _observe(self, event: Event) -> None:
        """State beyond `self.history`, which has already taken note of `event`."""


def equal_parts(horizon: int, count: int) -> tuple[int, ...]:
    """Return where `count` parts of a run end, of equal length.

    Lengths differ by at most one step, and there is at most one part a step.
    """
    count = min(count, horizon)
    # Rounded up in whole numbers: a float quotient may lie a hair above the step it stands for.
    return tuple(-(-horizon * part // count) for part in range(1, count + 1))


def require(module: str, optimizer: str, extra: str) -> None:
    """Raise `InputError` if a package that an optimizer needs is not installed."""
    if importlib.util.find_spec(module) is None:  # not imported: torch and smac take seconds
        raise InputError(
            f"{optimizer} needs {module}: pip install 'autorl[{extra}]'", key="optimizer.name"
        )


def seed_counts(records: Iterable[Record]) -> list[int]:
    """Return how many seeds stand behind the results of records.

    They have no common divisor, so they are 1 where all results have as many. A record without a
    score counts as the fewest seeds.
    """
    scored = [
        record.result.n_seeds if isinstance(record.result, Scored) else None for record in records
    ]
    fewest = min((count for count in scored if count is not None), default=1)
    counts = [fewest if count is None else count for count in scored]
    divisor = math.gcd(*counts) or 1
    return [count // divisor for count in counts]


def violation(record: Record) -> float:
    """Return how far a proposal is from feasible.

    It is the sum of its positive constraint values, 0 when feasible or unknown.
    """
    return sum(value for value in record.constraints if value > 0)
