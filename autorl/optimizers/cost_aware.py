"""Cost-aware search along the Pareto front of score against cost.

After CARBS (Fetterman et al. 2023).

How long to train is part of what is searched: runs have one of `lengths` lengths, evenly spaced on
the logarithm between `shortest` and the whole horizon. The front is made of the runs that no
cheaper run beats. A candidate is a neighbour of a run on the front, at its length or near it, or
the same run trained on from its checkpoint. A Gaussian process over (configuration, length)
predicts its score; a cost is drawn for each ask, evenly over the range of the front, and of the
candidates of about that cost the one is taken whose expected improvement on the front, for the
steps it still costs, is largest.

Cost is the number of environment steps, and known beforehand. With two objectives it is the second
one (say `wall_seconds`, minimized), and predicted by a process of its own, as in CARBS: wide
networks make long seconds.

    lengths 20, 45, 100
    Scored(0, until 100, 5.0)  Scored(1, until 20, 3.0)  Scored(2, until 45, 2.0)
    front: 1 (20 steps, 3.0), 0 (100 steps, 5.0)
    ask -> a neighbour of 1 to 45, or 1 itself from 20 on to 45, ...

References:
    Fetterman, Kitanidis, Albrecht et al., "Tune as you scale: hyperparameter optimization for
    compute efficient training", arXiv 2306.08055, 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autorl.optimizers import _pb2_gp as gp
from autorl.optimizers._startup import (
    EARLIER_STARTUP,
    counts_option,
    startup_option,
    startup_over,
    startup_size,
)
from autorl.optimizers.base import BaseOptimizer, Problem, Record, option, violation
from autorl.optimizers.hyperband import EARLY, may_go_on
from autorl.types import (
    Config,
    Continue,
    Event,
    Failed,
    InputError,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
)

if TYPE_CHECKING:
    from autorl.space import Space

Array = NDArray[np.float64]

SQRT_2PI = math.sqrt(2 * math.pi)
MOST = 256  # observations a model is conditioned on: the front and the latest
FITTED = 96  # of the latest, those its parameters are fitted to
FEWEST = 2  # scores a process is fitted to
# Part of the neighbours whose length is at most one step from that of the run they are neighbours
# of.
NEARBY = 0.75


@dataclass(frozen=True)
class CostAwareOptions:
    lengths: int = option(5, "lengths of a run, evenly spaced on the logarithm", minimum=1)
    shortest: float = option(EARLY, "the shortest length, in horizons", minimum=0.001, maximum=1.0)
    startup: int | None = startup_option(minimum=FEWEST)
    startup_counts: str = counts_option()
    candidates: int = option(128, "neighbours of the front, of which one is taken", minimum=1)
    radius: float = option(
        0.2, "of a neighbourhood, in units of a hyperparameter's range", minimum=0.01, maximum=1.0
    )
    refit: int = option(8, "scores between two fits of the models' parameters, at first", minimum=1)


@dataclass(frozen=True)
class Candidate:
    """A configuration and a length that could be proposed.

    `parent` is the run it continues, None = from scratch.
    """

    config: Config
    until: int
    parent: ProposalId | None
    origin: str


class CostAware(BaseOptimizer[CostAwareOptions]):
    """Bayesian search near the Pareto front of score against cost, which also chooses how long to
    train.
    """

    Options = CostAwareOptions
    search_kind = "search"
    multi_objective = True
    partial = True
    learns = True

    @classmethod
    def earlier_defaults(cls, read_space: Callable[[], Space]) -> Mapping[str, Any]:
        return EARLIER_STARTUP

    def __init__(self, problem: Problem, options: CostAwareOptions) -> None:
        if problem.n_objectives > 2:
            raise InputError(
                f"cost_aware has a score and a cost, got {problem.n_objectives}", key="objective"
            )
        super().__init__(problem, options)
        self.steps = self.cuts(problem.horizon, options)
        self._startup = startup_size(options.startup, problem.budget, FEWEST)
        self._encoding = Encoding(problem.space)
        self._front: list[
            ProposalId
        ] = []  # feasible runs that no run of at most their cost beats, in any order
        self._kept: dict[ProposalId, None] = {}
        self._started: set[Config] = set()
        self._ended: dict[ProposalId, None] = {}
        self._log: list[Scored | Failed] = []  # in the order they came
        self._fits: dict[
            int, tuple[int, tuple[float, ...]]
        ] = {}  # cache: objective -> outcomes fitted, parameters

    @classmethod
    def cuts(cls, horizon: int, options: CostAwareOptions) -> tuple[int, ...]:
        return _lengths(horizon, options.lengths, options.shortest)

    def outline(self) -> tuple[str, ...]:
        """Describe the lengths runs may have."""
        lengths = ", ".join(f"{step:,}" for step in self.steps)
        return (f"runs are trained to {lengths} steps, as the front suggests",)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space, initial = self.problem.space, self.problem.initial
        started = len(self._started)
        if started < len(initial):
            return Proposal(
                initial[started],
                self.problem.horizon,
                origin="warm start" if started else "default",
            )
        over = startup_over(
            self.options.startup_counts, self._startup, started, len(self._ended), FEWEST
        )
        if not over or not self._front:
            return Proposal(
                space.sample(rng), self.steps[started % len(self.steps)], origin="random"
            )
        candidates = [*self._neighbours(rng), *self._continuations()]
        if not candidates:
            until = self.steps[int(rng.integers(len(self.steps)))]
            origin = "random: every neighbour was proposed before"
            return Proposal(space.sample(rng), until, origin=origin, informed=True)
        chosen = candidates[int(np.argmax(self._promise(candidates, rng)))]
        return Proposal(
            chosen.config,
            chosen.until,
            parent=None if chosen.parent is None else Continue(chosen.parent),
            origin=chosen.origin,
            informed=True,
        )

    def _neighbours(self, rng: np.random.Generator) -> list[Candidate]:
        """Draw valid configurations near those of the front.

        Their lengths are near as well, and none was proposed before.
        """
        space, found = self.problem.space, list[Candidate]()
        front = [self.history[number] for number in self._front]
        units = [self._encoding.unit(record.proposal.config) for record in front]
        for _ in range(self.options.candidates):
            index = int(rng.integers(len(front)))
            config = space.from_unit(self._encoding.moved(units[index], self.options.radius, rng))
            place = self.steps.index(front[index].proposal.until) + int(rng.integers(-1, 2))
            if rng.random() > NEARBY:
                place = int(rng.integers(len(self.steps)))
            until = self.steps[min(max(place, 0), len(self.steps) - 1)]
            if config not in self._started and not space.violated(config):
                found.append(
                    Candidate(config, until, None, f"neighbour of proposal {front[index].id}")
                )
        return found

    def _continuations(self) -> list[Candidate]:
        """List runs of the front that can be trained on, to every length."""
        ended = [
            self.history[number] for number in self._kept if number not in self.history.pending
        ]
        return [
            Candidate(record.proposal.config, until, record.id, f"proposal {record.id}, trained on")
            for record in ended
            for until in self.steps
            if until > record.proposal.until
        ]

    def _promise(self, candidates: Sequence[Candidate], rng: np.random.Generator) -> Array:
        """Return the logarithm of the improvement expected for the steps it costs.

        It is near the cost drawn. Shape (candidates,).
        """
        from scipy.special import ndtr

        rows = self._encoding.rows(candidates, self.steps)
        front = [self.history[number] for number in self._front]
        score = self._model(0).belief
        mean, deviation = score.at(rows)
        known = score.at(self._rows_of(front))[0]
        cost, paid = (
            self._costs(candidates, rows),
            np.array([self._cost(record) for record in front]),
        )
        best = np.where(paid <= cost[:, None] + 1e-9, known, -np.inf).max(axis=1)
        z = (mean - np.where(np.isfinite(best), best, known.min())) / deviation
        improvement = np.log(
            np.maximum(deviation * (z * ndtr(z) + np.exp(-0.5 * z**2) / SQRT_2PI), 1e-300)
        )
        low, high = (math.log(self.steps[0] / self.problem.horizon), 0.0)
        if self.problem.n_objectives == 2:
            low, high = float(paid.min()), float(paid.max())
        width = max(high - low, 1e-3) / max(1, len(self.steps) - 1) / 2
        aim = rng.uniform(low - width, high + width)
        start = [
            0 if one.parent is None else self.history[one.parent].proposal.until
            for one in candidates
        ]
        left = [
            (one.until - begin) / one.until for one, begin in zip(candidates, start, strict=True)
        ]
        return np.asarray(improvement - 0.5 * ((cost - aim) / width) ** 2 - np.log(left))

    def _model(self, objective: int) -> Model:
        """Return the belief about an objective.

        Its parameters are fitted now and then, and it is conditioned on all results.
        """
        ended = len(self._log)
        every = self.options.refit << int(
            math.log2(max(1, ended / 64))
        )  # rarer with every doubling
        count = max(ended // every * every, min(ended, self._startup))
        if self._fits.get(objective, (0, ()))[0] != count:
            then = {event.proposal: event for event in self._log[:count]}
            records = [
                Record(number, self.history[number].proposal, then[number])
                for number in list(then)[-FITTED:]
            ]
            rows, values = self._rows_of(records), _targets(records, objective)[0]
            self._fits[objective] = count, gp.fit(rows, values, self._encoding.n_numeric)
        recent = [
            self.history[number]
            for number in dict.fromkeys([*self._front, *list(self._ended)[-MOST:]])
        ]
        values, centre, unit = _targets(recent, objective)
        pending = self._rows_of([self.history[number] for number in self.history.pending])
        logs = self._fits[objective][1]
        belief = gp.Posterior(
            logs, self._rows_of(recent), values, pending, self._encoding.n_numeric
        )
        return Model(belief, centre, unit)

    def _costs(self, candidates: Sequence[Candidate], rows: Array) -> Array:
        """Return costs on the scale of `_cost`, shape (candidates,).

        They are predicted where cost is an objective.
        """
        if self.problem.n_objectives == 1:
            return np.log([one.until / self.problem.horizon for one in candidates])
        model = self._model(1)
        return model.centre + model.unit * model.belief.at(rows)[0]

    def _cost(self, record: Record) -> float:
        if self.problem.n_objectives == 1:
            return math.log(record.proposal.until / self.problem.horizon)
        return _scaled(-record.values[1])

    def _rows_of(self, records: Sequence[Record]) -> Array:
        return self._encoding.rows([one.proposal for one in records], self.steps)

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            if event.proposal.resume_from is None:
                self._started.add(event.proposal.config)
            else:
                self._kept.pop(event.proposal.resume_from, None)
            if event.proposal.until < self.problem.horizon:
                self._kept[event.id] = None
            return
        again = event.proposal in self._ended
        self._ended[event.proposal] = None
        self._log.append(event)
        self._front = self._front_with([*self._ended] if again else [*self._front, event.proposal])
        still = {
            *self.history.pending,
            *(number for number in self._front if may_go_on(self.history[number])),
        }
        self._kept = {number: None for number in self._kept if number in still}

    def _front_with(self, numbers: Sequence[ProposalId]) -> list[ProposalId]:
        """Return the feasible runs that none as cheap scores as well as.

        Of these runs only; "as cheap" is of at most their cost.
        """
        records = [self.history[number] for number in numbers]
        feasible = [
            record
            for record in records
            if isinstance(record.result, Scored) and not violation(record)
        ]
        front: list[ProposalId] = []
        best = -math.inf
        for record in sorted(
            feasible, key=lambda record: (self._cost(record), -record.values[0], record.id)
        ):
            if record.values[0] > best:
                best = record.values[0]
                front.append(record.id)
        return front

    def keeps(self) -> Collection[ProposalId]:
        """Return runs that may be trained on.

        They are below the horizon, and pending, or on the front and not trained on yet.
        """
        return list(self._kept)


@dataclass(frozen=True)
class Model:
    """A belief about a standardized quantity.

    `centre + unit * value` gives it back (for costs).
    """

    belief: gp.Posterior
    centre: float
    unit: float


class Encoding:
    """Configurations and lengths as rows of the Gaussian process.

    The columns are time (unused), length, numbers, categories.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        items = list(space.hyperparameters.values())
        self._defaults = np.array([item.to_unit(item.default) for item in items])
        self._choices = np.array(
            [item.n_choices if item.type == "categorical" else 0 for item in items]
        )
        varied = np.array([item.numeric or item.n_choices > 1 for item in items])
        self._numeric, self._category = varied & (self._choices == 0), varied & (self._choices > 0)
        self.n_numeric = int(self._numeric.sum())

    def rows(self, runs: Sequence[Proposal | Candidate], steps: Sequence[int]) -> Array:
        """Encode runs as rows, shape (runs, 2 + n).

        Lengths are on the logarithm, from 0 at the first of `steps` to 1 at the last.
        """
        units = np.array([self.unit(run.config) for run in runs]).reshape(
            len(runs), len(self._defaults)
        )
        span = math.log(steps[-1] / steps[0]) or 1.0
        length = np.log([run.until / steps[0] for run in runs]) / span
        categories = np.floor(units[:, self._category] * self._choices[self._category])
        return np.column_stack([np.zeros(len(runs)), length, units[:, self._numeric], categories])

    def moved(self, unit: Array, radius: float, rng: np.random.Generator) -> Array:
        """Draw a point of the unit cube near another.

        Numbers make a step, and now and then there is another choice.
        """
        step = unit + radius * rng.standard_normal(len(unit))
        reflected = 1 - np.abs(1 - np.abs(step) % 2)
        other = np.where(rng.random(len(unit)) < radius, rng.random(len(unit)), unit)
        return np.where(self._choices > 0, other, reflected)

    def unit(self, config: Config) -> Array:
        """Return where a configuration lies in the unit cube, shape (n,).

        What is inactive is at its default.
        """
        unit = self._space.to_unit(config)
        return np.where(np.isnan(unit), self._defaults, unit)


def _lengths(horizon: int, count: int, shortest: float) -> tuple[int, ...]:
    ends = np.geomspace(shortest, 1.0, count) if count > 1 else np.ones(1)
    return tuple(
        dict.fromkeys(max(1, min(horizon, math.ceil(round(horizon * end, 9)))) for end in ends)
    )


def _scaled(cost: float) -> float:
    """Return about the logarithm of a large cost, defined for any."""
    return math.asinh(cost)


def _targets(records: Sequence[Record], objective: int) -> tuple[Array, float, float]:
    """Return what a process is fitted to, shape (records,).

    With it come the centre and the unit it was standardized with.

    Scores are ranked, failures and the infeasible last, and the ranks spread as a normal
    distribution: a crash is no farther away than any other bad run. Costs are on their scale; those
    of failures are unknown: average.
    """
    from scipy.special import ndtri

    if objective == 0:
        order = [
            (isinstance(one.result, Failed), violation(one), -one.values[0] if one.values else 0.0)
            for one in records
        ]
        position = {key: place for place, key in enumerate(sorted(set(order), reverse=True))}
        places = np.array([position[key] for key in order])
        counts = np.bincount(places)
        middle = np.cumsum(counts) - counts / 2  # of the ranks that equal scores share
        return ndtri(middle[places] / len(places)), 0.0, 1.0
    known = np.array(
        [_scaled(-one.values[1]) if isinstance(one.result, Scored) else np.nan for one in records]
    )
    centre, unit = float(np.nanmean(known)), float(np.nanstd(known)) or 1.0
    return np.nan_to_num((known - centre) / unit), centre, unit
