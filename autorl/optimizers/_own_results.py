"""A Gaussian process of a study's results, beside a prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.types import Config, Event, Failed, Proposed, Scored
from autorl.optimizers import _pb2_gp as gp
from autorl.optimizers.base import History, Record, violation
from autorl.optimizers.priors.ensemble import Columns, normal_scores
from autorl.optimizers.priors.mapping import places_of
from autorl.optimizers.priors.packed import Array
from autorl.space import Space

LATEST = 192  # outcomes the process is conditioned on, beside the best
BEST = 32
FITTED = 96  # of the latest, those its parameters are fitted to
REFIT = 4  # outcomes between two fits, at first
FEWEST = 3  # outcomes a process is fitted to


@dataclass(frozen=True)
class OwnBelief:
    """Belief from the study's own results.

    Attributes:
        configs: n configurations that have an outcome.
        values: shape (n,): normal scores of their ranks.
        left_out: shape (n,): what the others predict for each.
        posterior: of normal scores, pending proposals included.
    """

    configs: tuple[Config, ...]
    values: Array
    left_out: Array
    posterior: gp.Posterior


class OwnResults:
    """Outcomes in the order they came, and the process fitted to them.

    A function of the events: parameters are fitted to the outcomes as they were when there were so
    many, so that a resumed study fits to the same ones.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._columns = Columns(space)
        self._log: list[Scored | Failed] = []
        self._fit: tuple[int, tuple[float, ...]] = (0, ())  # a cache

    def observe(self, event: Event) -> None:
        """Take note of an outcome."""
        if not isinstance(event, Proposed) and event.values:
            self._log.append(event)

    def rows(self, configs: Sequence[Config]) -> Array:
        """Encode configurations as rows of the process."""
        return self._columns.rows(places_of(self._space, configs))

    def distances(self, rows: Array, others: Array) -> Array:
        """Return distances of rows, shape (n, k).

        A category is at distance 1 of another.
        """
        equally = np.ones(rows.shape[1])
        return np.sqrt(gp.weighted_distances(rows, others, self._columns.n_numeric, equally))

    def belief(self, history: History) -> OwnBelief | None:
        """Condition the process on what is known.

        None before there are `FEWEST` outcomes.
        """
        ended = len(self._log)
        if ended < FEWEST:
            return None
        logs = self._parameters(ended, history)
        latest = list(dict.fromkeys(event.proposal for event in reversed(self._log)))
        keys = {number: _rank_key(history[number]) for number in latest}
        best = sorted(latest, key=lambda number: (keys[number], -number), reverse=True)[:BEST]
        chosen = sorted({*latest[:LATEST], *best})
        records = [history[number] for number in chosen]
        configs = tuple(record.proposal.config for record in records)
        values = normal_scores(ranks(records))
        pending = [history[number].proposal.config for number in history.pending]
        numeric = self._columns.n_numeric
        posterior = gp.Posterior(logs, self.rows(configs), values, self.rows(pending), numeric)
        return OwnBelief(configs, values, posterior.left_out(), posterior)

    def _parameters(self, ended: int, history: History) -> tuple[float, ...]:
        every = REFIT << int(math.log2(max(1, ended / 16)))  # rarer with each doubling
        count = max(ended // every * every, FEWEST)
        if self._fit[0] != count:
            records = as_they_were(self._log[:count], history)
            rows = self.rows([record.proposal.config for record in records])
            logs = gp.fit(rows, normal_scores(ranks(records)), self._columns.n_numeric)
            self._fit = count, logs
        return self._fit[1]


def as_they_were(outcomes: Sequence[Scored | Failed], history: History) -> list[Record]:
    """Return the latest records as they were after these outcomes.

    Later scores have superseded some of them since.
    """
    then = {event.proposal: event for event in outcomes}
    numbers = list(then)[-FITTED:]
    return [Record(number, history[number].proposal, then[number]) for number in numbers]


def _rank_key(record: Record, unscored: float = -math.inf) -> tuple[bool, float, float]:
    """Return what results are ordered by, larger is better.

    Failures come last, before them what is infeasible.
    """
    value = record.values[0] if record.values else unscored
    return (not isinstance(record.result, Failed), -violation(record), value)


def ranks(records: Sequence[Record], unscored: float = -math.inf) -> Array:
    """Return places of results from the worst, shape (n,).

    Equal ones share a place. A failure without a penalty counts as `unscored`.
    """
    keys = [_rank_key(record, unscored) for record in records]
    place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys], dtype=np.float64)
