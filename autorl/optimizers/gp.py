"""Search by a Gaussian process with log expected improvement: `gp`.

The process (`autorl.optimizers.process`) has Matérn 5/2 with a length for each hyperparameter, a
signal and a noise, all fitted anew to every history, so that a resumed study has the same. It is
made of the best and the latest results, an inactive hyperparameter at its default. Proposals in
flight count as if they had scored what the process expects (kriging believer, Ginsbourger et al.
2010).

Places drawn anywhere and near the best results compete by the logarithm of their expected
improvement on the best expectation so far (Ament et al. 2023). Then the few most promising are
searched around, by steps that halve. Rules of the space reject what breaks them.

*Several objectives*: each proposal improves on one augmented Chebyshev scalar of them, with weights
drawn for it (ParEGO, Knowles 2006).

*Outcome constraints*: each has a process of its own, of normal scores, and the logarithms of the
probabilities that they are kept are added. Failed runs have the worst violation. As long as nothing
is feasible these probabilities decide alone. Once runs have failed, the probability that a run does
not fail is added like them. Priors of the space are added too, and count less and less.

    scores 1, 2, 5; constraint -1, 0.5, -2; 4 in flight
    best = max of the expected scores of runs 0, 2 and 4
    ask -> the largest log EI(x, best) + log P(constraint(x) <= 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autorl.core.types import Config, Event, Proposal, Proposed
from autorl.optimizers import process
from autorl.optimizers._parzen import Feasibility, points_of
from autorl.optimizers._startup import StartedOptimizer, StartupOptions
from autorl.optimizers.base import Problem, Record, seed_counts
from autorl.optimizers.priors.mapping import categories_of, config_at, moved, places_of, searched
from autorl.optimizers.priors.packed import Array
from autorl.space.prior import log_prior

BEST = 32  # results the process is made of, beside the latest
LATEST = 160
ANYWHERE = 512  # places drawn
NEAR = 256  # and near the best results
RADIUS = 0.2
SURVIVORS = 4  # places searched around
AROUND = 32  # draws around each
RADII = tuple(0.1 * 0.5**halved for halved in range(8))
FEWEST_MOVED = 2  # hyperparameters of a step
AUGMENTED = 0.05  # weight of the sum in the scalar of several objectives (Knowles 2006)


class GP(StartedOptimizer[StartupOptions]):
    """Gaussian process with log expected improvement, as in BoTorch and Optuna."""

    Options = StartupOptions
    search_kind = "search"
    multi_objective = True
    learns = True

    def __init__(self, problem: Problem, options: StartupOptions) -> None:
        super().__init__(problem, options)
        self._encoding = process.Encoding(problem.space)
        self._fits: dict[bytes, tuple[float, ...]] = {}  # a cache

    def _ask(self, rng: np.random.Generator) -> Proposal:
        records = [record for record in self.history if record.values]
        informed = self.modelled(len(self.history), len(records))
        chosen = self._searched(*self._promise(records, rng), rng) if informed else None
        if chosen is not None:
            return self._propose(chosen, "gp", informed=True)
        origin = "gp, at random: nothing new was found" if informed else "gp, start-up"
        return self._propose(self._sampled(rng), origin, informed=informed)

    def _observe(self, event: Event) -> None:
        if not isinstance(event, Proposed):
            self._fits.clear()

    def _promise(
        self, records: Sequence[Record], rng: np.random.Generator
    ) -> tuple[Callable[[Array], Array], Array]:
        """Return the promise of places, and the best results' places.

        Places have the shape (q, d), the best result first.
        """
        from scipy.special import log_ndtr, ndtri

        values = scalars(np.array([record.values for record in records]), rng)
        broken = constraints_of(records)
        is_feasible = np.asarray((broken <= 0).all(axis=1))
        order = np.lexsort((-values, ~is_feasible))
        taken = np.union1d(order[:BEST], np.arange(len(records))[-LATEST:])
        chosen = [records[row] for row in taken]
        pending = [self.history[number] for number in self.history.pending]
        rows, waiting = (self._encoding.rows(self._places(some)) for some in (chosen, pending))
        counts = seed_counts(chosen) if self.problem.weigh_seeds else [1]
        kind = (self._encoding.n_numeric, process.SMOOTH, 1.0 / np.array(counts))

        def belief(targets: Array) -> process.Posterior:
            key = rows.tobytes() + targets.tobytes()
            if key not in self._fits:
                self._fits[key] = process.fit(rows, targets, *kind)
            return process.Posterior(self._fits[key], rows, targets, waiting, *kind)

        values = values[taken]
        score = belief((values - values.mean()) / (values.std() or 1.0))
        limited = []
        for column in broken[taken].T:
            # Between the scores of the last that keeps it and the first that breaks it.
            bound = ndtri(((column <= 0).sum() + 0.25) / (len(column) + 0.5))
            limited.append((belief(process.normal_scores(column)), bound))
        items = searched(self.problem.space)
        ended = [record for record in self.history if record.result is not None]
        feasibility = Feasibility.of(items, self._places(ended), ended)
        # The expectation, not the best score, which is the luckiest of noisy ones.
        best = -np.inf
        if is_feasible.any():
            counted = np.append(is_feasible[taken], np.ones(len(pending), dtype=bool))
            best = score.at(score.seen[counted])[0].max()

        def promise(places: Array) -> Array:
            at = self._encoding.rows(places)
            total = np.zeros(len(at))
            if best > -np.inf:
                total += process.log_improvement(*score.at(at), best)
            total += log_prior(items, places, len(self.history))
            if feasibility.needed:
                total += feasibility.log_probability(points_of(items, places))
            for limit, bound in limited:
                mean, deviation = limit.at(at)
                total += log_ndtr((bound - mean) / deviation)
            return total

        return promise, self._places([records[row] for row in order[:SURVIVORS]])

    def _places(self, records: Sequence[Record]) -> Array:
        return places_of(self.problem.space, [record.proposal.config for record in records])

    def _searched(
        self, promise: Callable[[Array], Array], best: Array, rng: np.random.Generator
    ) -> Config | None:
        """Search for the most promising valid configuration that was not proposed.

        The result is None if there is none among the draws.
        """
        space = self.problem.space
        near = self._near(best, NEAR // len(best), RADIUS, rng)
        drawn = np.concatenate([rng.random((ANYWHERE, best.shape[1])), near])
        finest: list[tuple[float, Config, Array]] = []
        for radius in (*RADII, 0.0):
            barred = {*self.history.configs, *(config for _, config, _ in finest)}
            fresh: list[Config] = []
            for row in np.argsort(-promise(drawn), kind="stable"):
                config = config_at(space, drawn[row])
                if config not in barred and config not in fresh and not space.violated(config):
                    fresh.append(config)
                    if len(fresh) == SURVIVORS:
                        break
            if fresh:
                # Integers are rounded by now, and what is inactive is at its default.
                places = places_of(space, fresh)
                finest += zip(promise(places).tolist(), fresh, places, strict=True)
                finest = sorted(finest, key=lambda entry: -entry[0])[:SURVIVORS]
            if not finest:
                return None
            drawn = self._near(np.array([place for *_, place in finest]), AROUND, radius, rng)
        return finest[0][1]

    def _near(self, centres: Array, count: int, radius: float, rng: np.random.Generator) -> Array:
        """Draw places around each centre, each a step of some hyperparameters."""
        repeated = np.repeat(centres, count, axis=0)
        steps = moved(repeated, radius, categories_of(self.problem.space), rng)
        # In 20 dimensions steps of all of them leave twice the regret (sphere, 60 evaluations).
        part = rng.random((len(repeated), 1)) ** 2
        part = np.maximum(part, FEWEST_MOVED / max(1, centres.shape[1]))
        return np.where(rng.random(repeated.shape) < part, steps, repeated)


def scalars(values: Array, rng: np.random.Generator) -> Array:
    """Make one number of each result, larger is better, shape (n,).

    No value counts as farther below the median than twice what the best lies above it: beside a
    crash of -1e6 all scores would look the same.

    Args:
        values: shape (n, objectives).
        rng: of the weights of several objectives.
    """
    middle = np.median(values, axis=0)
    best = values.max(axis=0)
    values = np.maximum(values, middle - 2 * (best - middle))
    if values.shape[1] == 1:
        return values[:, 0]
    missing = (best - values) / np.maximum(best - values.min(axis=0), 1e-300)
    weighted = rng.dirichlet(np.ones(values.shape[1])) * missing
    return np.asarray(-weighted.max(axis=1) - AUGMENTED * weighted.sum(axis=1))


def constraints_of(records: Sequence[Record]) -> Array:
    """Return the constraints of results, shape (n, constraints).

    Failed runs have the worst of each.
    """
    worst = np.max([record.constraints for record in records if record.constraints] or [()], axis=0)
    return np.array([record.constraints or worst for record in records]).reshape(len(records), -1)
