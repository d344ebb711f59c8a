"""The seed layer: from learning curves to one score per proposal.

    curve of a run  --reduce-->  value per seed  --aggregate-->  value per proposal  --rank-->  incumbent

Inside, larger is better: minimised metrics change sign on the way in (`Objective.sign`) and back on the way out.
Nothing here does I/O or knows time: every function depends on recorded outcomes alone, so a resumed study decides the
same again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.reductions import parse_reduction
from autorl.types import Event, Failed, Outcome, ProposalId, Proposed, Scored, Status

COST_METRICS = ("wall_seconds", "environment_steps")
_ROUNDING = 1e-9  # relative to the largest of what is compared, so that no decision depends on the unit of a metric


@dataclass(frozen=True)
class Objective:
    """One thing to optimise: a metric, how its curve becomes a number, and the direction."""

    metric: str
    reduce: str = "last"
    direction: str = "maximize"

    @property
    def sign(self) -> float:
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def label(self) -> str:
        return f"{self.reduce} {self.metric}"


@dataclass(frozen=True)
class Constraint:
    """`metric` of the last evaluation (or a cost) must stay within `max` or `min`."""

    metric: str
    max: float | None = None
    min: float | None = None

    @property
    def label(self) -> str:
        return (
            f"{self.metric} <= {self.max:g}"
            if self.max is not None
            else f"{self.metric} >= {self.min:g}"
        )

    def violation(self, value: float) -> float:
        """How far `value` is outside; infeasible where > 0."""
        if self.max is not None:
            return value - self.max
        assert self.min is not None
        return self.min - value


@dataclass(frozen=True)
class Curve:
    """What one run has shown so far: evaluations at ascending nominal steps, cost, and how it ended.

    Chains of segments are joined: a continued run has one curve from step 0.
    """

    steps: tuple[int, ...]
    metrics: tuple[Mapping[str, float], ...]
    cost: Mapping[str, float]
    status: Status

    def series(self, metric: str) -> np.ndarray:
        """Values of `metric`, one per evaluation; a metric some evaluation lacks is an error.

        Raises:
            KeyError: the trainer never reported it.
        """
        return np.array([values[metric] for values in self.metrics], dtype=float)

    def position(self, step: int) -> int:
        """Index of the evaluation at `step`; of the last one before it in a run that stopped itself."""
        return max(bisect_right(self.steps, step) - 1, 0)


def join(outcomes: Sequence[Outcome], without: Collection[int] = ()) -> Curve:
    """The curve of a chain of segments, oldest first.

    `without`: steps that were evaluated only because a segment ended there; without them a run that was cut has the
    curve of one that was not.
    """
    points = {report.step: report.metrics for outcome in outcomes for report in outcome.reports}
    points = {step: metrics for step, metrics in points.items() if step not in without}
    cost: dict[str, float] = {}
    for outcome in outcomes:
        for name, value in outcome.cost.items():
            cost[name] = cost.get(name, 0.0) + value
    steps = tuple(sorted(points))
    return Curve(steps, tuple(points[step] for step in steps), cost, outcomes[-1].status)


@dataclass(frozen=True)
class SeedValue:
    """One seed of one proposal: its objective values (empty when the seed failed), constraints and status."""

    seed: int
    status: Status
    values: tuple[float, ...] = ()
    constraints: tuple[float, ...] = ()
    message: str = ""


class Judge:
    """Scores runs and proposals by the study's objectives, constraints, aggregate and penalty rule.

    Args:
        objectives, constraints: as in the study file.
        aggregate: over seeds, by name.
        penalty: a number in the first objective's own direction, or None for "the worst score told so far".
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        constraints: Sequence[Constraint] = (),
        aggregate: str = "mean",
        penalty: float | None = None,
    ) -> None:
        self.objectives = tuple(objectives)
        self.constraints = tuple(constraints)
        self.aggregate = aggregate
        self._aggregate = parse_aggregate(aggregate)
        self._reduce = [parse_reduction(objective.reduce) for objective in objectives]
        self._penalty = penalty
        metrics = [objective.metric for objective in objectives] + [
            rule.metric for rule in constraints
        ]
        self._needed = [metric for metric in metrics if metric not in COST_METRICS]

    def value(self, seed: int, curve: Curve, message: str = "") -> SeedValue:
        """The objective values of one run. A metric that is NaN or infinite makes the run `diverged`.

        Raises:
            KeyError: the trainer did not report a metric the study needs.
        """
        if curve.status.failed:
            return SeedValue(seed, curve.status, message=message)
        if not curve.steps and self._needed:
            raise KeyError(self._needed[0])
        curves = [
            objective.sign * self._curve_of(curve, objective.metric)
            for objective in self.objectives
        ]
        constraints = tuple(
            rule.violation(self._last(curve, rule.metric)) for rule in self.constraints
        )
        if not (
            all(np.isfinite(series).all() for series in curves)
            and all(map(math.isfinite, constraints))
        ):
            return SeedValue(
                seed, Status.DIVERGED, message="a metric of the objective is NaN or infinite"
            )
        values = tuple(reduce(series) for reduce, series in zip(self._reduce, curves, strict=True))
        return SeedValue(seed, curve.status, values, constraints)

    def reductions(self, curve: Curve) -> list[tuple[str, int, float, float, int, float, float]]:
        """Every reduction of every objective metric, whichever the study uses, to look at the choice again later.

        Rows (metric, until, last, best, step of the best, mean of the last 5, area under the curve) in the metric's own
        direction; metrics that are costs have no curve and no row.
        """
        rows = []
        for objective in self.objectives:
            if objective.metric in COST_METRICS or not curve.steps:
                continue
            series = objective.sign * curve.series(objective.metric)
            if not np.isfinite(series).all():
                continue
            values = [
                objective.sign * float(value)
                for value in (series[-1], series.max(), series[-5:].mean(), series.mean())
            ]
            best_step = curve.steps[int(np.argmax(series))]
            rows.append(
                (
                    objective.metric,
                    curve.steps[-1],
                    values[0],
                    values[1],
                    best_step,
                    values[2],
                    values[3],
                )
            )
        return rows

    def at_step(self, seed: int, curve: Curve, step: int | None) -> SeedValue:
        """Like `value`, but `reduce: best` is read at `step`, which was chosen on tuning seeds."""
        found = self.value(seed, curve)
        if found.status.failed or step is None:
            return found
        position = curve.position(step)
        values = tuple(
            reduce.read(objective.sign * self._curve_of(curve, objective.metric), position)
            if objective.metric not in COST_METRICS
            else value
            for reduce, objective, value in zip(
                self._reduce, self.objectives, found.values, strict=True
            )
        )
        return SeedValue(seed, found.status, values, found.constraints)

    def score(
        self, proposal: ProposalId, reached: int, seeds: Sequence[SeedValue], worst: Worst
    ) -> Scored | Failed:
        """One event for a proposal whose seeds are all in.

        A failed seed scores the penalty; when every seed failed the proposal did. `worst` knows what was told before.
        """
        good = [seed for seed in seeds if not seed.status.failed]
        penalty = self.penalty(reached, good, worst)
        if not good:
            return Failed(proposal, seeds[0].status, penalty, seeds[0].message)
        table = np.array([seed.values or penalty for seed in seeds])
        spread = table.std(axis=0, ddof=1) if len(seeds) > 1 else np.zeros(table.shape[1])
        limits = np.array([seed.constraints for seed in good])
        return Scored(
            proposal,
            values=tuple(float(self._aggregate(column)) for column in table.T),
            spread=tuple(float(value) for value in spread),
            n_seeds=len(seeds),
            reached=reached,
            constraints=tuple(float(value) for value in limits.mean(axis=0))
            if self.constraints
            else (),
            resumable=all(seed.status is Status.DONE for seed in seeds),
            mean=tuple(float(value) for value in table.mean(axis=0)),
        )

    def best_step(self, curves: Sequence[Curve]) -> int | None:
        """For `reduce: best`: the step at which the aggregate over `curves` (tuning seeds that did not fail) is best.

        The first objective with that reduction chooses. None for other reductions, or when every seed failed.
        """
        choosing = [
            objective
            for objective, reduce in zip(self.objectives, self._reduce, strict=True)
            if reduce.chooses_step and objective.metric not in COST_METRICS
        ]
        if not choosing or not curves:
            return None
        objective = choosing[0]
        steps = sorted({step for curve in curves for step in curve.steps})
        columns = [
            [curve.metrics[curve.position(step)][objective.metric] for curve in curves]
            for step in steps
        ]
        scores = [objective.sign * float(self._aggregate(np.array(column))) for column in columns]
        return steps[int(np.argmax(scores))]

    @property
    def chooses_step(self) -> bool:
        """Whether an objective is read at a step that the tuning seeds choose."""
        pairs = zip(self.objectives, self._reduce, strict=True)
        return any(
            reduce.chooses_step and objective.metric not in COST_METRICS
            for objective, reduce in pairs
        )

    @property
    def reads_one_step(self) -> bool:
        """Whether every objective is read at one chosen step, so that no score needs what comes after it."""
        metrics = [objective.metric for objective in self.objectives]
        return all(reduce.chooses_step for reduce in self._reduce) and not set(metrics) & set(
            COST_METRICS
        )

    def combine(self, values: npt.ArrayLike) -> float:
        """The study's aggregate of raw values, one per seed."""
        return float(self._aggregate(np.asarray(values, dtype=float)))

    def _curve_of(self, curve: Curve, metric: str) -> np.ndarray:
        if metric in COST_METRICS:
            return np.array([curve.cost.get(metric, math.nan)])
        return curve.series(metric)

    def _last(self, curve: Curve, metric: str) -> float:
        return float(self._curve_of(curve, metric)[-1])

    def penalty(self, reached: int, good: Sequence[SeedValue], worst: Worst) -> tuple[float, ...]:
        """What a failed seed scores: the number the study file gives, else the worst told so far at that fidelity.

        Before anything was told, the worst of the proposal's own good seeds; empty when there is none either.
        """
        if self._penalty is not None:
            return tuple(objective.sign * self._penalty for objective in self.objectives)
        told = worst.at(reached)
        if told:
            return told
        if good:
            return tuple(
                min(seed.values[index] for seed in good) for index in range(len(self.objectives))
            )
        return ()


class Worst:
    """The worst values told so far, per fidelity: a fold over `Scored`."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[float, ...]] = {}

    def observe(self, event: Scored) -> None:
        before = self._values.get(event.reached, event.values)
        self._values[event.reached] = tuple(map(min, before, event.values))

    def at(self, reached: int) -> tuple[float, ...]:
        """At this fidelity; failing that at the nearest one; empty before anything was scored."""
        if not self._values:
            return ()
        return self._values[min(self._values, key=lambda step: (abs(step - reached), step))]


class Ranking:
    """Who is best: highest fidelity, then most seeds, then score; ties by mean, spread, earliest. A fold over events.

    Feasible proposals come before infeasible ones, the least infeasible first; at equal fidelity provisional ones come
    last. With several objectives the first decides here; `front` gives the Pareto set.
    """

    def __init__(self) -> None:
        self._scored: dict[ProposalId, Scored] = {}
        self._provisional: set[ProposalId] = set()
        self._ascending: list[
            tuple[float, ...]
        ] = []  # keys of all that were scored, best first; each ends in its id

    def observe(self, event: Event) -> None:
        """A `Scored` replaces an earlier one of its proposal; a `Failed` leaves the ranking as it is."""
        if isinstance(event, Proposed) and event.proposal.provisional:
            self._provisional.add(event.id)
        if not isinstance(event, Scored):
            return
        if event.proposal in self._scored:
            del self._ascending[bisect_left(self._ascending, self._key(event.proposal))]
        self._scored[event.proposal] = event
        insort(self._ascending, self._key(event.proposal))

    def __getitem__(self, proposal: ProposalId) -> Scored:
        return self._scored[proposal]

    def __contains__(self, proposal: ProposalId) -> bool:
        return proposal in self._scored

    def __len__(self) -> int:
        return len(self._scored)

    def best(self) -> ProposalId | None:
        """The incumbent's proposal; None before anything was scored."""
        return int(self._ascending[0][-1]) if self._ascending else None

    def ordered(self, count: int | None = None) -> list[ProposalId]:
        """The best `count` scored proposals, best first; None = all."""
        return [int(key[-1]) for key in self._ascending[:count]]

    def front(self) -> list[ProposalId]:
        """The feasible proposals of the highest fidelity that no other dominates, in the order they were proposed."""
        feasible = [scored for scored in self._scored.values() if _infeasibility(scored) == 0]
        top = max((scored.reached for scored in feasible), default=0)
        points = [scored for scored in feasible if scored.reached == top]
        return undominated({scored.proposal: scored.values for scored in points})

    def _key(self, proposal: ProposalId) -> tuple[float, ...]:
        scored = self._scored[proposal]
        spread = scored.spread[0] if scored.spread else 0.0
        mean = scored.mean[0] if scored.mean else scored.values[0]
        fidelity = (-scored.reached, proposal in self._provisional, -scored.n_seeds)
        return (_infeasibility(scored), *fidelity, -scored.values[0], -mean, spread, proposal)


def undominated(values: Mapping[ProposalId, tuple[float, ...]]) -> list[ProposalId]:
    """The proposals whose values (larger is better) no other's dominate, ascending.

    Whoever dominates comes before in descending order, so each is compared with the front so far and not with all.
    """
    front: list[ProposalId] = []
    for number in sorted(values, key=values.__getitem__, reverse=True):
        if not any(_dominates(values[other], values[number]) for other in front):
            front.append(number)
    return sorted(front)


def _infeasibility(scored: Scored) -> float:
    return sum(max(0.0, violation) for violation in scored.constraints)


def _dominates(a: Iterable[float], b: Iterable[float]) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)


@dataclass(frozen=True)
class Fixed:
    """Every proposal is trained with every tuning seed."""

    seeds: tuple[int, ...]

    @property
    def first(self) -> tuple[int, ...]:
        return self.seeds

    @property
    def full(self) -> tuple[int, ...]:
        return self.seeds

    def more(self, mine: Sequence[SeedValue], reference: Sequence[SeedValue]) -> tuple[int, ...]:
        """Never any more seeds."""
        return ()


@dataclass(frozen=True)
class Racing:
    """Seeds in fixed order, doubled only while a proposal holds against the incumbent on the seeds both have.

    The incumbent always has the most seeds. SMAC's intensification (Hutter, Hoos and Leyton-Brown 2011) with paired
    seeds; `rule: t` keeps a proposal until a one-sided paired t-test at 0.1 rejects it.
    """

    seeds: tuple[int, ...]
    minimum: int = 1
    maximum: int | None = None
    rule: str = "mean"

    @property
    def first(self) -> tuple[int, ...]:
        return self.seeds[: self.minimum]

    @property
    def full(self) -> tuple[int, ...]:
        return self.seeds[: self.maximum]

    def more(self, mine: Sequence[SeedValue], reference: Sequence[SeedValue]) -> tuple[int, ...]:
        """The next seeds for a proposal whose seeds `mine` are in, raced against the incumbent's `reference`.

        Empty when it is settled: it lost, a seed of it failed, or it has as many seeds as the incumbent. Without a
        reference (nothing was scored yet) a proposal stays at the first seeds; once incumbent it is brought to the
        most.
        """
        known = {seed.seed: seed for seed in reference}
        shared = [(seed, known[seed.seed]) for seed in mine if seed.seed in known]
        target = [seed for seed in self.full if seed in known]
        if not shared or len(mine) >= len(target) or any(seed.status.failed for seed in mine):
            return ()
        pairs = [(ours.values[0], theirs.values[0]) for ours, theirs in shared if theirs.values]
        if pairs and self._clearly_worse(np.array([ours - theirs for ours, theirs in pairs])):
            return ()
        have = {seed.seed for seed in mine}
        count = min(2 * len(mine), len(target))
        return tuple(seed for seed in target[:count] if seed not in have)

    def _clearly_worse(self, differences: np.ndarray) -> bool:
        """Whether paired differences to the incumbent, (seeds,), drop a proposal; the metric's unit does not matter."""
        if self.rule == "mean":
            return bool(differences.mean() < 0)
        largest = np.abs(differences).max()
        if len(differences) < 2 or largest == 0:
            return False
        relative = differences / largest
        if (
            np.ptp(relative) <= _ROUNDING
        ):  # constant: the test statistic is 0 / 0 or made of rounding errors
            return bool(relative[0] < 0)
        from scipy.stats import ttest_1samp

        return bool(ttest_1samp(relative, 0.0, alternative="less").pvalue < 0.1)
