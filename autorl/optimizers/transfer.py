"""Search that begins with landscapes and trusts them by evidence.

The landscapes, earlier studies and prior files that `prior` names are mapped to the study's space
when the study begins, and stand in its frozen study file (`prior_data`). Two arms take turns:

*Prior*: the configuration of the tasks' best that adds most to the best score so far, in the
weighted mean over tasks: a greedy portfolio. Tasks of the study's own family of environments weigh
most.

*Plain search*: the largest upper confidence bound by a Gaussian process of the study's own
results, at first a random draw; both by the priors of the space, if it has any.

The prior's share of the proposals is Phi(2 min(z_hits, z_agreement)), at most 0.65. Each z is the
mean of a belief in its standard deviations: the prior's proposals are among the best quarter more
often than those of plain search, and results rank as the prior expects. The first beliefs are
measured on the prior's tables, each left out in turn, and the study's results move them
(`autorl.optimizers.priors.trust`). If recorded ranges differ from the study's, tables are read
twice, by value and by place in the range, and the reading that agrees better proposes. Shares are
added up, and plain search proposes when the sum passes 1, so that nothing is drawn.

    hits 0.9 +- 1.2, agreement 0.4 +- 0.3    z = 0.75 and 1.33: the share is min(0.65, Phi(1.5))
    ask 0..3   -> one of the portfolio, the default configuration, one more of the portfolio,
                  one of plain search
    observe    -> hits 0.2 +- 0.8
    ask 4      -> Phi(0.5) = 0.69 is still 0.65; at hits -0.4 +- 0.7 it would be 0.13
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autorl.core.types import Config, Event, InputError, Proposal, ProposalId, Proposed
from autorl.optimizers._own_results import ranks
from autorl.optimizers.base import BaseOptimizer, Problem, Record, Surroundings, option
from autorl.optimizers.model_share import PORTFOLIO
from autorl.optimizers.priors.build import fitted_prior
from autorl.optimizers.priors.ensemble import Ensemble, gains
from autorl.optimizers.priors.mapping import categories_of, config_at, moved, places_of, searched
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.priors.sources import AUTO, NONE, STUDIES, check_sources, gather
from autorl.optimizers.priors.study_prior import StudyPrior, searched_names, study_prior_of
from autorl.optimizers.priors.trust import Trust, agreement, difference, hits
from autorl.optimizers.process import Process, normal_scores, rows_of
from autorl.space.prior import log_prior
from autorl.store.events import ENQUEUED

if TYPE_CHECKING:
    from autorl.space import Space

_PRIOR_KEY = "optimizer.prior"
_WORDS = (AUTO, STUDIES, NONE)
MODELLED = 8
"""Outcomes before plain search has a model."""
LATEST = 192  # outcomes the process is conditioned on, beside the best
BEST = 32
CONFIDENCE = 2.0
"""Deviations of the upper confidence bound."""
CANDIDATES = 256  # of the bound, anywhere, and as many near the best
NEAR = 4  # configurations whose neighbourhood is looked at
RADIUS = 0.2
PRIOR_ARM = "prior"
PLAIN_ARM = "plain"
AT_RANDOM = "transfer, at random"
BY_RESULTS = "transfer, results of the study"


@dataclass(frozen=True)
class TransferOptions:
    prior: str | Sequence[Any] = option(
        AUTO, "what to learn from: auto, studies (too), none, or a list of ids, folders, files"
    )
    prior_data: Mapping[str, Any] | None = option(
        None, "the prior mapped to the space; a study writes it when it begins"
    )
    startup: int = option(4, "proposals, and scores, before results are evidence", minimum=1)


class Reading:
    """A prior's tables, read in one way.

    Args:
        name: of the reading.
        ensemble: of its tasks.
        trust: in it, before evidence.
    """

    def __init__(self, name: str, ensemble: Ensemble, trust: Trust) -> None:
        self.name = name
        self.ensemble = ensemble
        self.trust = trust
        self._known: dict[Config, tuple[Array, float]] = {}  # a cache

    def _look_up(self, configs: Sequence[Config]) -> None:
        missing = [config for config in dict.fromkeys(configs) if config not in self._known]
        if missing:
            scores = self.ensemble.scores(missing).T
            units = places_of(self.ensemble.space, missing)
            expected = self.ensemble.weights @ self.ensemble.predicted(units)
            self._known.update(zip(missing, zip(scores, expected, strict=True), strict=True))

    def scores(self, configs: Sequence[Config]) -> Array:
        """Return what each task says of configurations, shape (tasks, n)."""
        self._look_up(configs)
        return np.array([self._known[config][0] for config in configs]).T

    def expected(self, configs: Sequence[Config]) -> Array:
        """Return the mean of the tasks' normal scores, shape (n,)."""
        self._look_up(configs)
        return np.array([self._known[config][1] for config in configs])


class Transfer(BaseOptimizer[TransferOptions]):
    """Search that learns from landscapes of the same algorithm.
    Takes turns of a portfolio and plain search, by measured trust and by evidence.
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
        if options.get("prior_data") is not None or prior == NONE:
            return options
        gathered = gather(prior, surroundings, _PRIOR_KEY)
        named = not isinstance(prior, str)
        made = fitted_prior(gathered, surroundings.space, surroundings.environment, named=named)
        return {**options, "prior_data": made.to_dict()}

    @classmethod
    def has_prior(cls, options: Mapping[str, Any]) -> bool:
        """Say whether a prior has tasks."""
        data = options.get("prior_data")
        tasks = data.get("tasks") if isinstance(data, Mapping) else None
        return isinstance(tasks, Mapping) and any(tasks.values())

    def __init__(self, problem: Problem, options: TransferOptions) -> None:
        super().__init__(problem, options)
        self.prior = _prior_of(options, problem.space)
        self._readings: dict[str, Reading] = {}  # a cache
        self._latest: dict[ProposalId, None] = {}  # outcomes, in the order they came
        self._due = 0.0  # shares of plain search since it last proposed
        self._arms: dict[ProposalId, str] = {}

    @property
    def readings(self) -> Mapping[str, Reading]:
        """The readings of the prior by name, built at the first use."""
        if not self._readings and self.prior.tasks:
            space = self.problem.space
            self._readings = {
                name: Reading(name, Ensemble(tasks, space), self.prior.trust[name])
                for name, tasks in self.prior.readings.items()
            }
        return self._readings

    def outline(self) -> tuple[str, ...]:
        """Say what the prior is made of, or why there is none."""
        if self.options.prior == NONE:
            return ("no prior: prior is none",)
        lines = self.prior.lines()
        return lines[:1] if self.prior.tasks else lines

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether results have a part in the proposal."""
        return min(proposed, scored) >= self.options.startup

    def blind(self, number: int) -> bool:
        """The portfolio and the draws of the start-up read no score."""
        return number < self.options.startup

    def _initial(self) -> Proposal | None:
        # The earliest of equal scores is chosen. Where no result tells configurations apart, a
        # trusted prior decides, not the default: 0.7 of the range on ARLBench's MiniGrid Unlock.
        leads = any(trust.share > 0.5 for trust in self.prior.trust.values())
        number = len(self.history) - leads
        first = self._initial_at(number) if number >= 0 else None
        return None if first is None else self._propose(*first)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        records = [record for record in self.history if record.values]
        informed = self.modelled(len(self.history), len(records))
        share, reading = self._share_of_prior(records if informed else [])
        # Rounded: nine shares of 0.1 and one more are 1.
        due = round(self._due + 1.0 - share, 9)
        if due < 1.0 and reading is not None:
            chosen = self._next_of(reading)
            if chosen is not None:
                meta = {"arm": PRIOR_ARM, "due": due}
                return self._propose(*chosen, meta, informed=informed)
        meta = {"arm": PLAIN_ARM, "due": round(max(0.0, due - 1.0), 9)}
        modelled = informed and len(records) >= MODELLED
        config = self._by_results(records, rng) if modelled else None
        if config is not None:
            return self._propose(config, BY_RESULTS, meta, informed=True)
        return self._propose(self.problem.space.sample(rng), AT_RANDOM, meta, informed=informed)

    def _share_of_prior(self, records: Sequence[Record]) -> tuple[float, Reading | None]:
        """Return the prior's share of the proposals, and the reading that proposes.

        Args:
            records: results that count as evidence.
        """
        if not self.readings:
            return 0.0, None
        results = ranks(records)
        arms = [self._arms.get(record.id) for record in records]
        of_arms = np.array([arm is not None for arm in arms], dtype=bool)
        by_prior = np.array([arm == PRIOR_ARM for arm in arms], dtype=bool)
        configs = [record.proposal.config for record in records]
        counted = hits(results) if records else results
        ahead = difference(counted[of_arms], by_prior[of_arms])
        trusted = []
        for reading in self.readings.values():
            agreed = agreement(reading.expected(configs), results)
            first = reading.trust
            trust = Trust(first.hits.given(*ahead), first.agreement.given(*agreed))
            trusted.append((trust, reading))
        trust, reading = max(trusted, key=lambda pair: pair[0].agreement.z)
        return trust.share, reading

    def _next_of(self, reading: Reading) -> tuple[Config, str] | None:
        """Choose what adds most to the tasks' best scores, or None."""
        ensemble = reading.ensemble
        best = np.zeros(len(ensemble.weights))
        if self.history.configs:
            best = reading.scores([*self.history.configs]).max(axis=1)
        for place in np.argsort(-gains(ensemble.values, best, ensemble.weights), kind="stable"):
            config = ensemble.pool[place]
            if config not in self.history.configs and config not in self.problem.initial:
                return config, f"{PORTFOLIO}, from {ensemble.source_of(int(place))}"
        return None

    def _by_results(self, records: Sequence[Record], rng: np.random.Generator) -> Config | None:
        """Choose by the study's results alone.

        The result is None if all candidates were proposed before.
        """
        space = self.problem.space
        places = ranks(records)
        best = {records[row].id for row in np.argsort(-places, kind="stable")[:BEST]}
        taken = {*list(self._latest)[-LATEST:]} | best
        rows = [row for row, record in enumerate(records) if record.id in taken]
        units = places_of(space, [records[row].proposal.config for row in rows])
        pending = [self.history[number].proposal.config for number in self.history.pending]
        process = Process(
            rows_of(space, units),
            normal_scores(places[rows]),
            rows_of(space, places_of(space, pending)),
        )
        order = np.argsort(-process.mean(rows_of(space, units)), kind="stable")
        candidates = self._candidates(units[order], rng)
        mean, deviation = process.at(rows_of(space, candidates))
        bound = mean + CONFIDENCE * deviation
        bound += log_prior(searched(space), candidates, len(self.history))
        for row in np.argsort(-bound, kind="stable"):
            config = config_at(space, candidates[row])
            if config not in self.history.configs and not space.violated(config):
                return config
        return None

    def _candidates(self, units: Array, rng: np.random.Generator) -> Array:
        """Draw places anywhere and near the best, shape (2 `CANDIDATES`, d).

        Args:
            units: places of results, best first.
            rng: of the draws.
        """
        anywhere = rng.random((2 * CANDIDATES, units.shape[1]))
        centres = units[np.arange(CANDIDATES) % min(NEAR, len(units))]
        near = moved(centres, RADIUS, categories_of(self.problem.space), rng, anywhere[:CANDIDATES])
        anywhere[:CANDIDATES] = near
        return anywhere

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            # Its `meta` is that of the proposal whose place it took.
            if event.proposal.origin == ENQUEUED:
                return
            meta = event.proposal.meta
            self._due = meta.get("due", self._due)
            if "arm" in meta:
                self._arms[event.id] = meta["arm"]
        elif event.values:
            self._latest.pop(event.proposal, None)
            self._latest[event.proposal] = None


def _prior_of(options: TransferOptions, space: Space) -> StudyPrior:
    """Return the prior that a study has, empty without one.

    Raises:
        InputError: landscapes are named and were not looked up, or the content was changed.
    """
    if options.prior_data is None and options.prior in _WORDS:
        return StudyPrior(searched_names(space))
    if options.prior_data is None:
        message = "landscapes are looked up when a study file is read: `prior_data` is missing"
        raise InputError(message, key="optimizer.prior_data")
    return study_prior_of(options.prior_data, space)
