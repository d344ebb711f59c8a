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
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.types import (
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
from autorl.optimizers import process as gp
from autorl.optimizers._own_results import as_they_were, ranks
from autorl.optimizers._startup import startup_option, startup_size
from autorl.optimizers.base import BaseOptimizer, Problem, Record, option, violation
from autorl.optimizers.de import point_of
from autorl.optimizers.hyperband import EARLY, may_go_on
from autorl.optimizers.priors.mapping import moved, places_of, searched
from autorl.optimizers.priors.packed import Array
from autorl.space.prior import log_prior

MOST = 256  # observations a model is conditioned on: the front and the latest
FEWEST = 2  # scores a process is fitted to
NEARBY = 0.75  # part of the neighbours that have about the length of their run on the front


@dataclass(frozen=True)
class CostAwareOptions:
    lengths: int = option(5, "lengths of a run, evenly spaced on the logarithm", minimum=1)
    shortest: float = option(EARLY, "the shortest length, in horizons", minimum=0.001, maximum=1.0)
    startup: int | None = startup_option(minimum=FEWEST)
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
    """Bayesian search near the Pareto front of score against cost.
    It chooses how long to train as well.
    """

    Options = CostAwareOptions
    search_kind = "search"
    multi_objective = True
    partial = True
    learns = True

    def __init__(self, problem: Problem, options: CostAwareOptions) -> None:
        if problem.n_objectives > 2:
            raise InputError(
                f"cost_aware takes a score and a cost, got {problem.n_objectives}", key="objective"
            )
        super().__init__(problem, options)
        self.steps = self.cuts(problem.horizon, options)
        self._startup = startup_size(options.startup, problem.budget, FEWEST)
        items = problem.space.hyperparameters.values()
        self._is_category = np.array([item.type == "categorical" for item in items])
        self._encoding = gp.Encoding(problem.space)
        # Feasible runs that no run of at most their cost beats, in any order.
        self._front: list[ProposalId] = []
        self._kept: dict[ProposalId, None] = {}
        self._started: set[Config] = set()
        self._ended: dict[ProposalId, None] = {}
        self._log: list[Scored | Failed] = []  # in the order they came
        # A cache: of each objective how many outcomes were fitted, and the parameters.
        self._fits: dict[int, tuple[int, tuple[float, ...]]] = {}

    @classmethod
    def cuts(cls, horizon: int, options: CostAwareOptions) -> tuple[int, ...]:
        ends = np.ones(1)
        if options.lengths > 1:
            ends = np.geomspace(options.shortest, 1.0, options.lengths)
        # `geomspace` may miss a whole step by a hair, which would then be rounded up to the next.
        steps = [math.ceil(round(horizon * end, 9)) for end in ends]
        return tuple(dict.fromkeys(max(1, min(horizon, step)) for step in steps))

    def outline(self) -> tuple[str, ...]:
        """Describe the lengths runs may have."""
        lengths = ", ".join(f"{step:,}" for step in self.steps)
        return (f"runs are trained to {lengths} steps, as the front suggests",)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        started = len(self._started)
        # 1. the initial configurations
        first = self._initial_at(started)
        if first is not None:
            return self._propose(*first)
        # 2. the start-up: one length after the other, so that the model knows all of them
        if started < self._startup or len(self._ended) < FEWEST or not self._front:
            until = self.steps[started % len(self.steps)]
            return Proposal(space.sample(rng), until, origin="random")
        # 3. the most promising candidate
        candidates = [*self._neighbours(rng), *self._continuations()]
        if not candidates:
            until = self.steps[int(rng.integers(len(self.steps)))]
            origin = "random: every neighbour was proposed before"
            return Proposal(space.sample(rng), until, origin=origin, informed=True)
        chosen = candidates[int(np.argmax(self._promise(candidates, rng)))]
        parent = None if chosen.parent is None else Continue(chosen.parent)
        return Proposal(
            chosen.config, chosen.until, parent=parent, origin=chosen.origin, informed=True
        )

    def blind(self, number: int) -> bool:
        """Tell whether a proposal belongs to the random start-up."""
        return number < self._startup

    def _neighbours(self, rng: np.random.Generator) -> list[Candidate]:
        """Draw valid configurations near those of the front.

        Their lengths are near as well, and none was proposed before.
        """
        space = self.problem.space
        candidates: list[Candidate] = []
        front = [self.history[number] for number in self._front]
        units = [np.array(point_of(space, record.proposal.config)) for record in front]
        for _ in range(self.options.candidates):
            index = int(rng.integers(len(front)))
            unit = moved(units[index], self.options.radius, self._is_category, rng)
            config = space.from_unit(unit)
            place = self.steps.index(front[index].proposal.until) + int(rng.integers(-1, 2))
            if rng.random() > NEARBY:
                place = int(rng.integers(len(self.steps)))
            until = self.steps[min(max(place, 0), len(self.steps) - 1)]
            if config not in self._started and not space.violated(config):
                origin = f"neighbour of proposal {front[index].id}"
                candidates.append(Candidate(config, until, None, origin))
        return candidates

    def _continuations(self) -> list[Candidate]:
        """List the front's runs that can be trained on, to every length."""
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
        rows = self._rows(candidates)
        front = [self.history[number] for number in self._front]
        # 1. the expected improvement (Jones et al. 1998) on the best of the front that costs no
        # more, by the model's estimate of it: scores are noisy
        score = self._model(0).belief
        mean, deviation = score.at(rows)
        on_front = score.at(self._rows_of(front))[0]
        cost = self._costs(candidates, rows)
        paid = np.array([self._cost(record) for record in front])
        best = np.where(paid <= cost[:, None] + 1e-9, on_front, -np.inf).max(axis=1)
        # Cheaper than all of the front: better than its worst would be something.
        best = np.where(np.isfinite(best), best, on_front.min())
        improvement = gp.log_improvement(mean, deviation, best)
        # 2. a cost to aim at, evenly over the range of the front, half a length beyond both ends
        low = math.log(self.steps[0] / self.problem.horizon)
        high = 0.0
        if self.problem.n_objectives == 2:
            low = float(paid.min())
            high = float(paid.max())
        width = max(high - low, 1e-3) / max(1, len(self.steps) - 1) / 2
        aim = rng.uniform(low - width, high + width)
        # 3. for the steps it still costs: a run that is trained on has paid a part of them
        unpaid = []
        for candidate in candidates:
            start = 0
            if candidate.parent is not None:
                start = self.history[candidate.parent].proposal.until
            unpaid.append((candidate.until - start) / candidate.until)
        places = places_of(self.problem.space, [candidate.config for candidate in candidates])
        improvement += log_prior(searched(self.problem.space), places, len(self.history))
        return np.asarray(improvement - 0.5 * ((cost - aim) / width) ** 2 - np.log(unpaid))

    def _model(self, objective: int) -> Model:
        """Return the belief about an objective.

        Its parameters are fitted now and then, and it is conditioned on all results.
        """
        ended = len(self._log)
        every = self.options.refit << int(math.log2(max(1, ended / 64)))  # rarer with each doubling
        # A function of how many outcomes there are, so that a resumed study fits to the same ones.
        count = max(ended // every * every, min(ended, self._startup))
        if self._fits.get(objective, (0, ()))[0] != count:
            records = as_they_were(self._log[:count], self.history)
            rows = self._rows_of(records)
            values = _targets(records, objective)[0]
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
            return np.log([candidate.until / self.problem.horizon for candidate in candidates])
        model = self._model(1)
        return model.centre + model.unit * model.belief.at(rows)[0]

    def _cost(self, record: Record) -> float:
        if self.problem.n_objectives == 1:
            return math.log(record.proposal.until / self.problem.horizon)
        return math.asinh(-record.values[1])  # about the logarithm of a large cost

    def _rows_of(self, records: Sequence[Record]) -> Array:
        return self._rows([record.proposal for record in records])

    def _rows(self, runs: Sequence[Proposal | Candidate]) -> Array:
        """Encode runs as rows of a process.

        Lengths are on the logarithm, from 0 at the first of the steps to 1 at the last.
        """
        span = math.log(self.steps[-1] / self.steps[0]) or 1.0
        places = places_of(self.problem.space, [run.config for run in runs])
        return self._encoding.rows(
            places, np.log([run.until / self.steps[0] for run in runs]) / span
        )

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            if event.proposal.resume_from is None:
                self._started.add(event.proposal.config)
            else:  # trained on once: what follows can be trained on in its place
                self._kept.pop(event.proposal.resume_from, None)
            if event.proposal.until < self.problem.horizon:
                self._kept[event.id] = None
            return
        # A later score may be lower, and what the earlier one had beaten is on the front again.
        rivals = [*self._front, event.proposal]
        if event.proposal in self._ended:
            rivals = [*self._ended]
        self._ended[event.proposal] = None
        self._log.append(event)
        self._front = self._front_with(rivals)
        still = {
            *self.history.pending,
            *(number for number in self._front if may_go_on(self.history[number])),
        }
        self._kept = {number: None for number in self._kept if number in still}

    def _front_with(self, numbers: Sequence[ProposalId]) -> list[ProposalId]:
        """Return the feasible runs that none as cheap scores as well as.

        Only these runs are compared; "as cheap" means at most their cost.
        """
        records = [self.history[number] for number in numbers]
        feasible = [
            record
            for record in records
            if isinstance(record.result, Scored) and not violation(record)
        ]
        front: list[ProposalId] = []
        best = -math.inf
        feasible.sort(key=lambda record: (self._cost(record), -record.values[0], record.id))
        for record in feasible:
            if record.values[0] > best:  # of equal ones the cheapest, and of these the first
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


def _targets(records: Sequence[Record], objective: int) -> tuple[Array, float, float]:
    """Return what a process is fitted to, shape (records,).

    With it come the centre and the unit it was standardized with.

    Scores are ranked, failures and the infeasible last, and the ranks spread as a normal
    distribution: a crash is no farther away than any other bad run. Costs are on their scale; those
    of failures are unknown: average.
    """
    if objective == 0:
        return gp.normal_scores(ranks(records)), 0.0, 1.0
    costs = np.full(len(records), np.nan)
    for row, record in enumerate(records):
        if isinstance(record.result, Scored):
            costs[row] = math.asinh(-record.values[1])
    centre = float(np.nanmean(costs))
    unit = float(np.nanstd(costs)) or 1.0
    return np.nan_to_num((costs - centre) / unit), centre, unit
