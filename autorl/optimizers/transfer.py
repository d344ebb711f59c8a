"""Search that begins with what landscapes of the algorithm say, and trusts it by evidence.

The landscapes, earlier studies and prior files that `prior` names are mapped to the study's space
when the study begins, and stand in its frozen study file (`prior_data`). Then, proposal by proposal:

1. *Portfolio*, as long as the start-up lasts: the configuration that adds most to the best score so
   far, in the weighted mean over tasks. Tasks of the study's own family of environments weigh most.
2. *Ensemble*: the same, with weights by how well each task ranks the study's own results, and with
   the expected improvement under a process of these results alone as one more member [Wistuba2018,
   Feurer2018]. What the prior said before there were results counts half at `inertia` results, a
   fifth at twice as many.
3. *Plain search*: the part of the proposals that follow neither prior nor rank agreement is drawn
   by the process of the study's own results, or at random. It is nothing with a prior of the
   study's own family and grows as that is contradicted; without a prior it is all.

    prior: three tasks               weights 0.45 0.45 0.10, trust 1.00
    ask 0..3   -> the default configuration, then the portfolio
    observe    -> ranks agree with the first task
    ask 4      -> what is best there and not tried; weights 0.71 0.20 0.02, own 0.04, chance 0.03

References: see `autorl.optimizers.priors.ensemble`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autorl.optimizers._own_results import OwnBelief, OwnResults
from autorl.optimizers._startup import startup_option, startup_size
from autorl.optimizers.base import BaseOptimizer, Problem, Surroundings, option
from autorl.optimizers.cost_aware import Encoding
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.ensemble import Ensemble, ensemble_of, gains, ranking_weights
from autorl.optimizers.priors.sources import automatic_tables, named_tables
from autorl.optimizers.priors.study_prior import StudyPrior, searched_names, study_prior_of
from autorl.optimizers.priors.table import Array
from autorl.types import Config, Event, InputError, Proposal, Proposed

if TYPE_CHECKING:
    from autorl.space import Space

AUTO = "auto"
NONE = "none"
OWN_UNIT = 0.3
"""Standard deviation of recorded scores between 0 and 1: a unit of the own process."""
FEWEST_SCORES = 4
"""Outcomes before members are weighed."""
RADIUS = 0.2
NEAR = 6  # configurations whose neighbourhood is looked at
SQRT_2PI = math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class TransferOptions:
    prior: str | Sequence[Any] = option(
        AUTO,
        "landscapes to learn from: auto, none, or a list of ids, folders of landscapes and studies, "
        "and prior files",
    )
    prior_data: Mapping[str, Any] | None = option(
        None, "the prior mapped to the space; a study writes it when it begins"
    )
    startup: int | None = startup_option()
    inertia: int = option(
        16, "results at which what the prior said before any counts half", minimum=0
    )
    explore: float = option(
        0.15, "part of plain search that is drawn at random", minimum=0.0, maximum=1.0
    )
    candidates: int = option(
        128, "neighbours of the best configurations, looked at for each proposal", minimum=1
    )


@dataclass(frozen=True)
class Weights:
    """How far members are followed; all of it has the sum 1.

    Attributes:
        tasks: shape (tasks,).
        own: of the study's own results, and of chance.
    """

    tasks: Array
    own: float

    @property
    def prior(self) -> float:
        """Weight of all tasks together."""
        return float(self.tasks.sum())


class Transfer(BaseOptimizer[TransferOptions]):
    """Search that learns from landscapes of the same algorithm, and from its own results.
    A portfolio first, then a ranking-weighted ensemble; what contradicts the prior ends it.
    """

    Options = TransferOptions
    search_kind = "search"
    learns = True
    resolved: ClassVar[tuple[str, ...]] = ("prior_data",)

    @classmethod
    def resolved_options(
        cls, options: Mapping[str, Any], surroundings: Surroundings
    ) -> Mapping[str, Any]:
        """Look up the landscapes that `prior` names, and map them to the space.

        Raises:
            InputError: `prior` is none of what it may be, or a source it names cannot be used.
        """
        prior = options.get("prior", AUTO)
        names = _named(prior)
        if options.get("prior_data") is not None or prior == NONE:
            return options
        folder = surroundings.folder
        if names is None:
            gathered = automatic_tables(folder, surroundings.algorithms, surroundings.replays)
        else:
            gathered = named_tables(names, folder, surroundings.algorithms)
        made = fitted_prior(
            gathered, surroundings.space, surroundings.environment, named=names is not None
        )
        return {**options, "prior_data": made.to_dict()}

    def __init__(self, problem: Problem, options: TransferOptions) -> None:
        super().__init__(problem, options)
        _named(options.prior)
        self.prior = _prior_of(options, problem.space)
        self._own = OwnResults(problem.space)
        self._encoding = Encoding(problem.space)
        self._startup = startup_size(options.startup, problem.budget)
        self._proposed: dict[Config, None] = {}
        self._scores: dict[Config, Array] = {}  # of each task; a cache

    @property
    def ensemble(self) -> Ensemble:
        """The tasks of the prior, built when they are first needed."""
        return ensemble_of(self.prior, self.problem.space)

    def outline(self) -> tuple[str, ...]:
        """Say which landscapes the prior is made of, and which not and why."""
        if self.options.prior == NONE:
            return ("no prior: prior is none",)
        return self.prior.lines()

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the start-up is over and there are results to weigh by."""
        return proposed >= self._startup and scored >= FEWEST_SCORES

    def blind(self, number: int) -> bool:
        """The portfolio and the draws of the start-up read no score."""
        # Fewer proposals than scores are needed have no more scores.
        return number < max(self._startup, FEWEST_SCORES)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        belief = None
        if self.modelled(len(self.history), sum(bool(record.values) for record in self.history)):
            belief = self._own.belief(self.history)
        if belief is None:
            return self._of_startup(rng)
        weights = self._weights(belief, rng)
        follows = rng.random() < weights.prior
        if not follows and rng.random() < self.options.explore:
            return self._drawn(rng, informed=True)
        candidates = self._candidates(belief, weights, rng)
        if not candidates:
            return self._drawn(rng, informed=True)
        values = self.ensemble.scores(candidates)
        promise = OWN_UNIT * weights.own * self._improvement(belief, candidates)
        if follows:
            promise = promise + gains(values, self._best(), weights.tasks)
        chosen = candidates[int(promise.argmax())]
        origin = f"transfer, own results (prior {weights.prior:.0%})"
        if follows:
            liked = self.prior.tasks[int(weights.tasks.argmax())]
            origin = f"transfer, prior {weights.prior:.0%}, most {liked.source}"
        return self._propose(chosen, origin, informed=True)

    def _of_startup(self, rng: np.random.Generator) -> Proposal:
        """Propose by the portfolio, or at random, without any score."""
        if rng.random() >= self.prior.trust:
            return self._drawn(rng, informed=False)
        promise = gains(self.ensemble.values, self._best(), self.ensemble.weights)
        for place in np.argsort(-promise, kind="stable"):
            config = self.ensemble.pool[place]
            if config not in self._proposed:
                return self._propose(config, "transfer, portfolio")
        return self._drawn(rng, informed=False)

    def _drawn(self, rng: np.random.Generator, *, informed: bool) -> Proposal:
        return self._propose(
            self.problem.space.sample(rng), "transfer, at random", informed=informed
        )

    def _weights(self, belief: OwnBelief, rng: np.random.Generator) -> Weights:
        """Weigh tasks and own results: what was said before any, and rank agreement."""
        tasks = self._scores_of(belief.configs)
        members = np.vstack([tasks, belief.left_out])
        agreement = ranking_weights(belief.values, members, rng)
        count = len(belief.values)
        # By squares: a prior that is contradicted has cost enough after some tens of results.
        before = self.options.inertia**2 / (self.options.inertia**2 + count**2)
        said = self.prior.trust * self.ensemble.weights
        weights = before * said + (1 - before) * agreement[: len(tasks)]
        return Weights(weights, 1.0 - float(weights.sum()))

    def _candidates(
        self, belief: OwnBelief, weights: Weights, rng: np.random.Generator
    ) -> list[Config]:
        """List configurations that could be proposed: the pool, and neighbours of the best."""
        space = self.problem.space
        pool = self.ensemble.pool
        liked = np.argsort(-(weights.tasks @ self.ensemble.values), kind="stable")[:NEAR]
        means = belief.posterior.mean(self._own.rows(belief.configs))
        best = np.argsort(-means, kind="stable")[:NEAR]
        centres = [belief.configs[place] for place in best]
        if weights.prior > 0:
            centres += [pool[place] for place in liked]
        candidates = dict.fromkeys(pool)
        for number in range(self.options.candidates):
            centre = self._encoding.unit(centres[number % len(centres)])
            config = space.from_unit(self._encoding.moved(centre, RADIUS, rng))
            if not space.violated(config):
                candidates[config] = None
        drawn = space.try_sample(rng, self.options.candidates)
        if drawn is not None:
            candidates[drawn] = None
        return [config for config in candidates if config not in self._proposed]

    def _improvement(self, belief: OwnBelief, candidates: Sequence[Config]) -> Array:
        """Return the expected improvement by the study's own results (Jones et al. 1998)."""
        from scipy.special import ndtr

        mean, deviation = belief.posterior.at(self._own.rows(candidates))
        # The best by the process, not by a score: scores are noisy.
        best = belief.posterior.mean(self._own.rows(belief.configs)).max()
        z = (mean - best) / deviation
        return np.asarray(deviation * (z * ndtr(z) + np.exp(-0.5 * z**2) / SQRT_2PI))

    def _best(self) -> Array:
        """Return the best score of what was proposed, in each task, 0 where nothing was."""
        if not self._proposed:
            return np.zeros(len(self.prior.tasks))
        return self._scores_of([*self._proposed]).max(axis=1)

    def _scores_of(self, configs: Sequence[Config]) -> Array:
        """Return what each task says of proposed configurations, shape (tasks, n)."""
        missing = [config for config in dict.fromkeys(configs) if config not in self._scores]
        if missing:
            columns = self.ensemble.scores(missing).T
            self._scores.update(zip(missing, columns, strict=True))
        return np.array([self._scores[config] for config in configs]).T

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._proposed[event.proposal.config] = None
        else:
            self._own.observe(event)


def _named(prior: object) -> list[str] | None:
    """Return the sources that the option `prior` names, None where it names none.

    Raises:
        InputError: it is none of what it may be.
    """
    if prior in (AUTO, NONE):
        return None
    if isinstance(prior, str) or not isinstance(prior, Sequence):
        message = f"expected {AUTO}, {NONE} or a list of landscapes, got {prior!r}"
        raise InputError(message, key="optimizer.prior")
    wrong = [name for name in prior if not isinstance(name, str)]
    if wrong or not prior:
        message = "expected ids or folders of landscapes in the list"
        message += f", got {wrong[0]!r}" if wrong else ", got none: `none` is without a prior"
        raise InputError(message, key="optimizer.prior")
    return list(prior)


def _prior_of(options: TransferOptions, space: Space) -> StudyPrior:
    """Return the prior that a study has, empty without one.

    Raises:
        InputError: landscapes are named and were not looked up, or the content was changed.
    """
    if options.prior == NONE or (options.prior_data is None and options.prior == AUTO):
        return StudyPrior(searched_names(space), ())
    if options.prior_data is None:
        message = "landscapes are looked up when a study file is read: `prior_data` is missing"
        raise InputError(message, key="optimizer.prior_data")
    return study_prior_of(options.prior_data, space)
