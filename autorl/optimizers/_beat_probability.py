"""The probability that a run beats the incumbent, from learning curves.

Reference curves are made into situations like that of the study: of a task, as many curves as the
study has ended runs are drawn, the best final score among them is the incumbent, and other curves
of the task are runs that go on. Whether such a run beat the incumbent, a tie counting half, is
regressed on its scores so far by a logistic regression of the rung at hand. The probability
therefore falls with the number of ended runs, and knows by how much a rank at a rung is to be
trusted.

Scores are on the scale of the situation, 0 the 10 % quantile of the first rung and 1 the incumbent:

    situation of 8 ended runs: first rung 12 to 40, incumbent 180
    run at rung 2: 15, 60, 90  -> score 0.46, gained 0.18
    among reference runs alike: 4 of 100 beat the incumbent

Curves of another task are less alike than the regression thinks: its log odds are divided by a
temperature, under which each task is most likely given the others, each left out in turn.

A task counts as 100 curves, and its curves share that. The study's own complete runs are one
more task, which counts n / (n + inertia): with their number they outweigh the references. A
situation is never fitted to the curves of its own draw, so every probability is of a curve left
out.

Stopping where such a probability is low is of [Domhan2015], a regression on recorded curves in
place of parametric ones of [Baker2018].

References:
    [Domhan2015] Domhan, Springenberg, Hutter, "Speeding up automatic hyperparameter optimization of
        deep neural networks by extrapolation of learning curves", IJCAI 2015.
    [Baker2018] Baker, Gupta, Raskar, Naik, "Accelerating neural architecture search using
        performance prediction", ICLR 2018 workshop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autorl.core import seeds
from autorl.optimizers.priors.packed import Array

ENDED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of ended runs that situations are made for: of more, those of the next lower one."""
DRAWS = 4  # situations of a task
GOING = 48  # runs of a situation, at most
TASK_WEIGHT = 100.0
"""Curves that a task counts as: runs of one task are more alike than runs of two."""
HOTTEST = 4.0
"""Largest temperature."""
INERTIA = 24
"""Own complete runs that count as much as all references."""
OWN = (6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
"""Numbers of own complete runs that a model is fitted to: of more, the first so many."""
RIDGE = 1.0
_LOW = 0.1  # quantile of the scores at the first rung that is 0 of a situation
_CLIP = (-1.0, 2.0)
_ROUNDS = 16
_LEAST_DEVIATION = 0.05  # of features: where all are alike, others must not lie far out


@dataclass(frozen=True, eq=False)
class Reference:
    """Complete curves of a task, at the rungs of the study.

    Attributes:
        scores: shape (curves, rungs); the last is final.
        first: the first rung that they say something of.
        weight: what the task counts beside others; their sum is 1.
    """

    scores: Array
    first: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class Standing:
    """Scale on which the ended runs place scores.

    Attributes:
        low: a score that is poor at the first rung.
        best: the incumbent's final score.
        high: the largest score at any rung.
    """

    low: float
    best: float
    high: float

    @classmethod
    def of(cls, first: Array, best: float, high: float) -> Standing:
        """Make it of the first rung's scores, shape (runs,)."""
        return cls(float(np.quantile(first, _LOW)), best, high)

    def features(self, scores: Array) -> Array:
        """Return the last score and its last gain, shape (runs, 2).

        Args:
            scores: of runs until a rung, shape (runs, rungs).
        """
        scale = self.best - self.low
        if scale <= 0:  # the incumbent is what others had at the first rung
            scale = self.high - self.low
        off = scores[:, -2:] - self.best
        # If all scores are equal, nothing says how far away another score is.
        off = off / scale if scale > 0 else np.sign(off) * _CLIP[1]
        units = np.clip(1.0 + off, *_CLIP)
        return np.column_stack([units[:, -1], units[:, -1] - units[:, 0]])


@dataclass(frozen=True, eq=False)
class Rows:
    """Situations as rows of a regression.

    Attributes:
        features: shape (rows, 2).
        outcomes: 1 where the run beat the incumbent, 0.5 at a tie, shape (rows,).
        weights: shape (rows,).
    """

    features: Array
    outcomes: Array
    weights: Array

    def scaled(self, total: float) -> Rows:
        """Copy them with weights of another sum."""
        return Rows(self.features, self.outcomes, self.weights * (total / self.weights.sum()))


def own_count(complete: int) -> int:
    """Return how many complete runs a model is fitted to."""
    return max((size for size in OWN if size <= complete), default=0)


def situations(curves: Array, ended: int, rung: int) -> Rows:
    """Draw situations of a task.

    Args:
        curves: of the task, shape (curves, rungs), at least 2.
        ended: runs of the study that have ended.
        rung: at which a run is to be judged.
    """
    count = min(max(size for size in ENDED if size <= max(1, ended)), max(1, len(curves) * 2 // 3))
    # Independent of the study: the references say the same to all.
    rng = seeds.generator(0, "algorithm", "situations", len(curves), count, rung)
    features = []
    outcomes = []
    for _ in range(DRAWS):
        order = rng.permutation(len(curves))
        peers = curves[order[:count]]
        runs = curves[order[count : count + GOING]]
        standing = Standing.of(peers[:, 0], float(peers[:, -1].max()), float(peers.max()))
        features.append(standing.features(runs[:, : rung + 1]))
        final = runs[:, -1]
        outcomes.append((final > standing.best) + 0.5 * (final == standing.best))
    outcome = np.concatenate(outcomes)
    return Rows(np.concatenate(features), outcome, np.full(len(outcome), 1.0 / len(outcome)))


def joined(parts: Sequence[Rows]) -> Rows:
    """Put rows of several tasks together."""
    return Rows(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.outcomes for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class Logistic:
    """A logistic regression.

    Attributes:
        coefficients: of a constant and the standardized features.
        mean, deviation: that features are standardized by.
        temperature: that log odds are divided by.
    """

    coefficients: Array
    mean: Array
    deviation: Array
    temperature: float = 1.0

    @classmethod
    def fit(cls, rows: Rows) -> Logistic:
        """Fit by penalized Newton steps."""
        weights = rows.weights
        mean = np.average(rows.features, axis=0, weights=weights)
        variance = np.average((rows.features - mean) ** 2, axis=0, weights=weights)
        deviation = np.maximum(np.sqrt(variance), _LEAST_DEVIATION)
        design = np.column_stack([np.ones(len(weights)), (rows.features - mean) / deviation])
        # Half a success and half a failure more: a probability of 0 is never stated.
        rate = (weights @ rows.outcomes + 0.5) / (weights.sum() + 1.0)
        coefficients = np.zeros(design.shape[1])
        coefficients[0] = np.log(rate / (1.0 - rate))
        centre = coefficients.copy()
        penalty = np.full(design.shape[1], RIDGE)
        for _ in range(_ROUNDS):
            chance = _sigmoid(design @ coefficients)
            slope = design.T @ (weights * (rows.outcomes - chance))
            slope -= penalty * (coefficients - centre)
            curvature = (design * (weights * chance * (1.0 - chance))[:, None]).T @ design
            step = np.linalg.solve(curvature + np.diag(penalty), slope)
            largest = float(np.abs(step).max())
            # Separable outcomes would send the first steps far out.
            coefficients = coefficients + step * min(1.0, 2.0 / max(largest, 2.0))
            if largest < 1e-6:
                break
        return cls(coefficients, mean, deviation)

    def log_odds(self, features: Array) -> Array:
        """Return log odds before the temperature, shape (rows,).

        Args:
            features: shape (rows, 2).
        """
        design = np.column_stack([np.ones(len(features)), (features - self.mean) / self.deviation])
        return np.asarray(design @ self.coefficients)

    def probability(self, features: Array) -> Array:
        """Return probabilities at features of shape (rows, 2): (rows,)."""
        return _sigmoid(self.log_odds(features) / self.temperature)


def temperature(log_odds: Array, outcomes: Array, weights: Array) -> float:
    """Return the likeliest divisor of log odds, from 1 to `HOTTEST`.

    Args:
        log_odds: stated of each row, shape (rows,).
        outcomes: of the rows, 0 to 1.
        weights: of the rows.
    """
    from scipy.optimize import minimize_scalar

    def loss(heat: float) -> float:
        logits = log_odds / heat
        return float(weights @ (np.logaddexp(0.0, logits) - outcomes * logits))

    return float(minimize_scalar(loss, bounds=(1.0, HOTTEST), method="bounded").x)


def _sigmoid(values: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(values, -40.0, 40.0))))


class BeatProbability:
    """States the probability that a run beats the incumbent.

    Args:
        references: one for each task; empty without.
    """

    def __init__(self, references: Sequence[Reference]) -> None:
        self.references = tuple(references)
        self._fits: dict[tuple[int, int, int], Logistic] = {}  # a cache

    def __call__(self, scores: Array, standing: Standing, ended: int, own: Array) -> float | None:
        """Return the probability, None where no curve says anything of the rung.

        Args:
            scores: of the run, until its rung, shape (rungs so far,).
            standing: of the ended runs.
            ended: how many these are.
            own: `own_count` complete runs of the study, always the same of a count, shape (runs,
                rungs).
        """
        rung = len(scores) - 1
        model = self._model(ended, rung, own)
        if model is None:
            return None
        return float(model.probability(standing.features(scores[None]))[0])

    def _model(self, ended: int, rung: int, own: Array) -> Logistic | None:
        size = max(size for size in ENDED if size <= max(1, ended))
        key = (size, rung, len(own))
        if key not in self._fits:
            rows = self._joined(size, rung, own)
            if rows is None:
                return None
            model = Logistic.fit(rows)
            self._fits[key] = replace(model, temperature=self._temperature(size, rung))
        return self._fits[key]

    def _temperature(self, ended: int, rung: int) -> float:
        """Return the temperature of the references, 1 where there are no two."""
        tasks = self._tasks(ended, rung)
        if len(tasks) < 2:
            return 1.0
        odds = []
        for left_out, rows in enumerate(tasks):
            fitted = joined([*tasks[:left_out], *tasks[left_out + 1 :]])
            model = Logistic.fit(fitted.scaled(TASK_WEIGHT * (len(tasks) - 1)))
            odds.append(model.log_odds(rows.features))
        every = joined(tasks)
        return temperature(np.concatenate(odds), every.outcomes, every.weights)

    def _joined(self, ended: int, rung: int, own: Array) -> Rows | None:
        """Return situations of the references and of own runs, or None."""
        references = self._of_references(ended, rung)
        if not len(own):
            return references
        rows = situations(own, ended, rung)
        if references is None:
            return rows.scaled(len(own))
        total = float(references.weights.sum()) + len(own)
        share = len(own) / (len(own) + INERTIA)
        return joined([references.scaled(total * (1.0 - share)), rows.scaled(total * share)])

    def _of_references(self, ended: int, rung: int) -> Rows | None:
        """Return situations of all tasks that know a rung, or None."""
        tasks = self._tasks(ended, rung)
        return joined(tasks).scaled(TASK_WEIGHT * len(tasks)) if tasks else None

    def _tasks(self, ended: int, rung: int) -> list[Rows]:
        """Return situations of each task that knows a rung."""
        return [
            situations(task.scores, ended, rung).scaled(task.weight)
            for task in self.references
            if task.first <= rung and len(task.scores) > 1
        ]
