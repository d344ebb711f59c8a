"""Search that begins with landscapes and trusts them by evidence.

The landscapes, earlier studies and prior files that `prior` names are mapped to the study's space
when the study begins, and stand in its frozen study file (`prior_data`). Two arms take turns:

*Prior*: the configuration of the tasks' best that adds most to the best score so far, in the
weighted mean over tasks: a greedy portfolio. Tasks of the study's own family of environments weigh
most at first; how well each ranks the study's results counts more and more (ranking-weighted
ensembles, [Feurer2018]).

*Plain search*: an upper confidence bound by a process of the study's own results, at a distance
from what was proposed, or a random draw where the prior does not expect least. The prior guides it
only where results rank as it expects, beyond chance.

Plain search has a share of the proposals: nothing at first where a task is of the study's family,
nearly all where none is. Then the odds of prior to plain search are those of the beginning, times
exp(2 z) for how the runs of the prior rank among those of plain search (z of the rank-sum test),
times (12 / proposals)^8, so that the prior goes on only where its runs are the better ones. Shares
are added up, and plain search proposes whenever the sum passes 1: nothing is drawn.

    prior: two tasks of the family   trust 0.80
    ask 0..9   -> the default configuration, then the portfolio
    ask 10     -> odds 4 : 1, the sum is 0.2: prior
    observe    -> runs of plain search are the better ones: z = -1.2
    ask 20     -> odds 0.01 : 1: the sum passes 1, plain search

The rule was chosen on ARLBench's tables of DQN and PPO: weights by rank agreement cost there what
they gained, trust by evidence did not. References: see `autorl.optimizers.priors.ensemble`, and
    [Kendall1938] Kendall, "A new measure of rank correlation", Biometrika 30, 1938.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autorl.core.types import Config, Event, InputError, Proposal, ProposalId, Proposed
from autorl.optimizers._own_results import OwnBelief, OwnResults, ranks
from autorl.optimizers._startup import startup_option, startup_size
from autorl.optimizers.base import BaseOptimizer, Problem, Surroundings, option
from autorl.optimizers.cost_aware import Encoding
from autorl.optimizers.model_share import PORTFOLIO
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.ensemble import Ensemble, ensemble_of, gains, ranking_weights
from autorl.optimizers.priors.mapping import places_of
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.priors.sources import AUTO, NONE, STUDIES, check_sources, gather
from autorl.optimizers.priors.stated import check_beliefs, stated_table
from autorl.optimizers.priors.study_prior import StudyPrior, searched_names, study_prior_of
from autorl.statistics.confirmation import SHARE
from autorl.store.events import ENQUEUED

if TYPE_CHECKING:
    from autorl.space import Space

_PRIOR_KEY = "optimizer.prior"
_WORDS = (AUTO, STUDIES, NONE)
FEWEST_SCORES = 4
"""Outcomes before evidence counts."""
FIRST_RANDOM = 8
"""Outcomes before plain search has a model."""
TRUSTED = 0.5
"""Trust before evidence from which on the prior proposes alone at first."""
ALONE = 10
"""Proposals that a trusted prior makes alone, at most half of the budget."""
FREE = 12
"""Proposals from which on the prior loses trust by their number."""
FIRM = 2.0
"""Weight of the evidence in the odds."""
LEAST = 0.05
"""Share that either arm has at least, once plain search has begun."""
CONFIRMED = 0.4
"""Share of a budget that confirms where the prior is trusted.

Its first proposals are good ones already, so that choosing among them gains more than exploring.
"""
CONFIRMED_RUNS = 50
"""Exploring runs beyond which no more runs confirm: the tables say nothing of larger studies."""
CONFIDENCE = 1.0
RADIUS = 0.2
DRAWS = 32  # of which one is taken that the prior does not expect least of
NEAR = 6  # configurations whose neighbourhood is looked at
PRIOR_ARM = "prior"
PLAIN_ARM = "plain"
AT_RANDOM = "transfer, at random"


@dataclass(frozen=True)
class TransferOptions:
    prior: str | Sequence[Any] = option(
        AUTO, "what to learn from: auto, studies (too), none, or a list of ids, folders, files"
    )
    prior_data: Mapping[str, Any] | None = option(
        None, "the prior mapped to the space; a study writes it when it begins"
    )
    beliefs: Mapping[str, Any] | None = option(
        None, "of hyperparameters, as {learning_rate: {centre: 3.0e-4, confidence: 0.8}}"
    )
    startup: int | None = startup_option()
    inertia: int = option(
        48, "results at which first weights and rank agreement of tasks count alike", minimum=0
    )
    decay: float = option(
        8.0,
        "power of the number of proposals by which the prior loses trust",
        minimum=0.0,
        maximum=16.0,
    )
    agreement: float | None = option(
        1.0,
        "least rank agreement with results, in standard errors, at which the prior guides plain "
        "search; null: where results do not contradict it",
        minimum=0.0,
        maximum=4.0,
    )
    explore: float = option(
        0.5, "part of plain search that is drawn at random", minimum=0.0, maximum=1.0
    )
    spacing: float = option(
        1.0,
        "least distance of a proposal of the model to others, in their median nearest distances",
        minimum=0.0,
        maximum=4.0,
    )
    leave_out: float = option(
        0.25,
        "part of the space that is not drawn from, where the prior expects least",
        minimum=0.0,
        maximum=0.9,
    )
    candidates: int = option(
        128, "neighbours of the best configurations, looked at by plain search", minimum=1
    )


class Transfer(BaseOptimizer[TransferOptions]):
    """Search that learns from landscapes of the same algorithm.
    A portfolio of them first, plain search by evidence; what contradicts the prior ends it.
    """

    Options = TransferOptions
    search_kind = "search"
    learns = True
    resolved: ClassVar[tuple[str, ...]] = ("prior_data",)

    @classmethod
    def resolved_options(
        cls, options: Mapping[str, Any], surroundings: Surroundings
    ) -> Mapping[str, Any]:
        """Look up what `prior` names and map it to the space.

        Raises:
            InputError: `prior` is none of what it may be, or a source it names cannot be used.
        """
        prior = options.get("prior", AUTO)
        check_sources(prior, _PRIOR_KEY, "a prior", _WORDS)
        beliefs = options.get("beliefs")
        if options.get("prior_data") is not None or (prior == NONE and not beliefs):
            return options
        gathered = gather(prior, surroundings, _PRIOR_KEY)
        space = surroundings.space
        if isinstance(beliefs, Mapping) and beliefs:
            check_beliefs(beliefs, space)
            algorithm = ", ".join(surroundings.algorithms)
            table = stated_table(beliefs, space, algorithm, surroundings.environment or "")
            gathered.groups.append([table])
        named = not isinstance(prior, str)
        made = fitted_prior(gathered, space, surroundings.environment, named=named)
        return {**options, "prior_data": made.to_dict()}

    @classmethod
    def confirming_share(cls, options: Mapping[str, Any], runs: float) -> float | None:
        """Return a large share where a prior is trusted."""
        data = options.get("prior_data")
        trust = data.get("trust") if isinstance(data, Mapping) else None
        # Data that somebody wrote by hand is checked when the optimizer is made.
        if not isinstance(trust, float) or trust < TRUSTED:
            return None
        share = CONFIRMED * min(1.0, CONFIRMED_RUNS / runs)
        return round(share, 3) if share > SHARE else None

    @classmethod
    def has_prior(cls, options: Mapping[str, Any]) -> bool:
        """Say whether a prior has tasks."""
        data = options.get("prior_data")
        return isinstance(data, Mapping) and bool(data.get("tasks"))

    def __init__(self, problem: Problem, options: TransferOptions) -> None:
        super().__init__(problem, options)
        self.prior = _prior_of(options, problem.space)
        self._own = OwnResults(problem.space)
        self._encoding = Encoding(problem.space)
        self._startup = startup_size(options.startup, problem.budget)
        self._proposed: dict[Config, None] = {}
        self._scores: dict[Config, Array] = {}  # of each task; a cache
        self._due = 0.0  # shares of plain search since it last proposed
        self._arms: dict[ProposalId, str] = {}

    @property
    def ensemble(self) -> Ensemble:
        """The tasks of the prior, built when they are first needed."""
        return ensemble_of(self.prior, self.problem.space)

    def outline(self) -> tuple[str, ...]:
        """Say what the prior is made of, or why there is none."""
        if self.options.prior == NONE and not self.prior.tasks:
            return ("no prior: prior is none",)
        lines = self.prior.lines()
        return lines[:1] if self.prior.tasks else lines

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether results have a part in the proposal."""
        return proposed >= self._startup and scored >= FEWEST_SCORES

    def blind(self, number: int) -> bool:
        """The portfolio and the draws of the start-up read no score."""
        # Fewer proposals than scores are needed have no more scores.
        return number < max(self._startup, FEWEST_SCORES)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        scored = sum(bool(record.values) for record in self.history)
        informed = self.modelled(len(self.history), scored)
        # Rounded: nine shares of 0.1 and one more are 1.
        due = round(self._due + self._share_of_plain(informed=informed), 9)
        if due < 1.0:
            chosen = self._next_of_prior(rng, informed=informed)
            if chosen is not None:
                config, origin = chosen
                meta = {"arm": PRIOR_ARM, "due": due}
                return self._propose(config, origin, meta, informed=informed)
        meta = {"arm": PLAIN_ARM, "due": round(max(0.0, due - 1.0), 9)}
        config, origin = self._next_of_plain(rng, informed=informed)
        return self._propose(config, origin, meta, informed=informed)

    def _share_of_plain(self, *, informed: bool) -> float:
        """Return the share of plain search in the next proposals.

        Args:
            informed: whether results count.
        """
        trust = min(self.prior.trust, 1.0 - LEAST)
        if not self.prior.tasks:
            return 1.0
        proposed = len(self.history)
        if trust >= TRUSTED and proposed < min(ALONE, self.problem.budget / 2):
            return 0.0
        fading = math.pow(min(1.0, FREE / max(1, proposed)), self.options.decay)
        odds = trust / (1.0 - trust) * fading
        if informed:
            odds *= math.exp(FIRM * self._evidence())
        least = 1.0 - trust if trust > 0.5 else LEAST
        return min(1.0 - LEAST, max(least, 1.0 / (1.0 + odds)))

    def _evidence(self) -> float:
        """Return z of the rank-sum test of the two arms.

        It is above 0 where runs of the prior rank higher, 0 while an arm has no result.
        """
        records = [self.history[number] for number in self._arms]
        records = [record for record in records if record.values]
        arms = np.array([self._arms[record.id] for record in records], dtype=str)
        places = ranks(records)
        prior = places[arms == PRIOR_ARM]
        plain = places[arms == PLAIN_ARM]
        if not len(prior) or not len(plain):
            return 0.0
        signs = np.sign(prior[:, None] - plain)
        spread = math.sqrt((len(records) + 1) / (3 * len(prior) * len(plain)))
        return float(signs.mean()) / spread

    def _next_of_prior(
        self, rng: np.random.Generator, *, informed: bool
    ) -> tuple[Config, str] | None:
        """Choose what adds most to the tasks' best scores, or None."""
        weights = self.ensemble.weights
        belief = self._own.belief(self.history) if informed else None
        if belief is not None:
            weights = self._weights(belief, rng)
        promise = gains(self.ensemble.values, self._best(), weights)
        for place in np.argsort(-promise, kind="stable"):
            config = self.ensemble.pool[place]
            if config not in self._proposed:
                task = self.prior.tasks[int(weights.argmax())]
                return config, f"{PORTFOLIO}, most of {task.source} ({weights.max():.0%})"
        return None

    def _next_of_plain(self, rng: np.random.Generator, *, informed: bool) -> tuple[Config, str]:
        """Choose by the study's results alone, or at random."""
        drawn = self.problem.space.sample(rng)
        belief = self._own.belief(self.history) if informed else None
        few = belief is None or len(belief.values) < FIRST_RANDOM
        if belief is None or few or rng.random() < self.options.explore:
            return self._promising(drawn, rng, informed=informed), AT_RANDOM
        candidates = self._candidates(belief, rng)
        if not candidates:
            return self._promising(drawn, rng, informed=informed), AT_RANDOM
        mean, deviation = belief.posterior.at(self._own.rows(candidates))
        place = int((mean + CONFIDENCE * deviation).argmax())
        return candidates[place], "transfer, results of the study"

    def _promising(self, drawn: Config, rng: np.random.Generator, *, informed: bool) -> Config:
        """Draw again where the prior expects least of what was drawn.

        Its expectation counts for as long as the study's results do not contradict it.
        """
        if not self.prior.tasks or not self.options.leave_out:
            return drawn
        # Draws of the start-up do not wait for results, so they must not read those there are.
        if informed and not self._agrees():
            return drawn
        space = self.problem.space
        draws = [drawn, *(space.sample(rng) for _ in range(DRAWS - 1))]
        expected = self.ensemble.weights @ self.ensemble.predicted(places_of(space, draws))
        least = np.quantile(expected, self.options.leave_out)
        return draws[int((expected >= least).argmax())]

    def _agrees(self) -> bool:
        """Say whether results rank as the prior expects."""
        from scipy.stats import kendalltau

        records = [record for record in self.history if record.values]
        expected = self.ensemble.weights @ self._scores_of(
            [record.proposal.config for record in records]
        )
        # Not a number where all results are equal.
        correlation = float(kendalltau(expected, ranks(records)).statistic)
        if self.options.agreement is None:
            return not correlation < 0
        # The standard error of the correlation of independent ranks without ties [Kendall1938].
        count = len(records)
        error = math.sqrt(2 * (2 * count + 5) / (9 * count * max(1, count - 1)))
        return correlation > self.options.agreement * error

    def _weights(self, belief: OwnBelief, rng: np.random.Generator) -> Array:
        """Weigh tasks by family and by rank agreement, shape (tasks,)."""
        tasks = self._scores_of(belief.configs)
        members = np.vstack([tasks, belief.left_out])
        agreement = ranking_weights(belief.values, members, rng)[: len(tasks)]
        count = len(belief.values)
        # By squares: rank agreement of few results is luck.
        first = self.options.inertia**2 / (self.options.inertia**2 + count**2)
        weights = first * self.ensemble.weights + (1.0 - first) * agreement
        total = float(weights.sum())
        return np.asarray(weights / total) if total > 0 else self.ensemble.weights

    def _candidates(self, belief: OwnBelief, rng: np.random.Generator) -> list[Config]:
        """List neighbours of the study's best, and the tasks' best."""
        space = self.problem.space
        means = belief.posterior.mean(self._own.rows(belief.configs))
        best = np.argsort(-means, kind="stable")[:NEAR]
        centres = [self._encoding.unit(belief.configs[place]) for place in best]
        # The tasks' best as well, unless ranks are reversed: then they are the worst, and their
        # places are the ones the model knows least of.
        agrees = self.prior.tasks and (self.options.agreement is None or self._agrees())
        candidates = dict.fromkeys(self.ensemble.pool if agrees else ())
        for number in range(self.options.candidates):
            moved = self._encoding.moved(centres[number % len(centres)], RADIUS, rng)
            far = rng.random(len(moved))
            # Every other one is anywhere: neighbours alone would never leave a valley.
            config = space.from_unit(far if number % 2 else moved)
            if not space.violated(config):
                candidates[config] = None
        return self._apart(
            [config for config in candidates if config not in self._proposed], belief
        )

    def _apart(self, candidates: Sequence[Config], belief: OwnBelief) -> list[Config]:
        """Leave out candidates that are too near to proposals.

        The others are as far from them as proposals usually are from each other. A lucky run once
        drew all further proposals to its place: of 82 configurations 36 had different answers on
        recorded tables, and plain search was worse than random draws.
        """
        if not candidates or not self.options.spacing:
            return [*candidates]
        seen = np.concatenate([belief.posterior.points, belief.posterior.pending])
        between = self._own.distances(seen, seen)
        np.fill_diagonal(between, np.inf)
        least = self.options.spacing * float(np.median(between.min(axis=1)))
        nearest = self._own.distances(self._own.rows(candidates), seen).min(axis=1)
        return [
            config
            for config, distance in zip(candidates, nearest, strict=True)
            if distance >= least
        ]

    def _best(self) -> Array:
        """Return each task's best score of what was proposed, at least 0."""
        if not self._proposed:
            return np.zeros(len(self.prior.tasks))
        return np.asarray(self._scores_of([*self._proposed]).max(axis=1))

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
            # Its `meta` is that of the proposal whose place it took.
            if event.proposal.origin == ENQUEUED:
                return
            meta = event.proposal.meta
            self._due = meta.get("due", self._due)
            if "arm" in meta:
                self._arms[event.id] = meta["arm"]
        else:
            self._own.observe(event)


def _prior_of(options: TransferOptions, space: Space) -> StudyPrior:
    """Return the prior that a study has, empty without one.

    Raises:
        InputError: landscapes are named and were not looked up, or the content was changed.
    """
    named = options.prior not in _WORDS or options.beliefs
    if options.prior_data is None and not named:
        return StudyPrior(searched_names(space), ())
    if options.prior_data is None:
        message = "landscapes are looked up when a study file is read: `prior_data` is missing"
        raise InputError(message, key="optimizer.prior_data")
    return study_prior_of(options.prior_data, space)
