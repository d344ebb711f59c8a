"""The seed layer turns learning curves into one score per proposal.

    curve of a run  --reduce-->  value per seed  --aggregate-->  value per proposal
                                                                      --rank-->  incumbent

Inside, larger is better: minimised metrics change sign on the way in (`Objective.sign`) and back on
the way out. Nothing here does I/O or knows time: every function depends on recorded outcomes alone,
so a resumed study decides the same again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from autorl.core.seeds import TASK
from autorl.core.types import (
    Event,
    Failed,
    FrozenMap,
    Outcome,
    ProposalId,
    Proposed,
    Scored,
    Status,
)
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.confirmation import SHARE, runs_to_confirm
from autorl.statistics.fronts import undominated
from autorl.statistics.reductions import never_reached, parse_reduction

PEAK_MEMORY = "peak_memory_mb"
MEASURED = ("wall_seconds", "steps_per_second", PEAK_MEMORY)
"""Costs that another run of the same segment has otherwise."""
COST_METRICS = (*MEASURED, "environment_steps")
"""Metrics of every run, whatever its trainer reports."""
# Relative to the largest of what is compared, so that no decision depends on the unit of a metric.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Objective:
    """A metric to optimise, with its reduction and its direction.

    Attributes:
        sign: makes larger scores better.
        of_metric: makes larger values of the metric better: other than `sign` where a score is a
            time.
    """

    metric: str
    reduce: str = "last"
    direction: str = "maximize"

    @property
    def of_metric(self) -> float:
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def sign(self) -> float:
        return parse_reduction(self.reduce).sign(self.of_metric)

    @property
    def is_time(self) -> bool:
        """Whether a score is the step of a value of the metric."""
        return parse_reduction(self.reduce).goal is not None

    @property
    def of_score(self) -> str:
        """The direction of scores."""
        return "maximize" if self.sign > 0 else "minimize"

    @property
    def label(self) -> str:
        return f"{self.reduce} {self.metric}"


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric or a cost of a run.

    Attributes:
        metric: its name; the last evaluation that has it counts.
        max, min: the bound, in the metric's unit; one of both is None.
    """

    metric: str
    max: float | None = None
    min: float | None = None

    @property
    def label(self) -> str:
        if self.max is not None:
            return f"{self.metric} <= {self.max:g}"
        return f"{self.metric} >= {self.min:g}"

    def violation(self, value: float) -> float:
        """Return by how much `value` is outside: infeasible where above 0."""
        if self.max is not None:
            return value - self.max
        assert self.min is not None
        return self.min - value


@dataclass(frozen=True)
class Curve:
    """Evaluations of one run so far, its cost, and how it ended.

    Chains of segments are joined: a continued run has one curve from step 0.

    Attributes:
        steps: nominal steps of the evaluations, ascending.
        metrics: what was measured at each of them.
        cost: by name, summed over segments; of memory the largest peak.
        status: of the last segment.
        seed: of the run, which says its task.
    """

    steps: tuple[int, ...]
    metrics: tuple[Mapping[str, float], ...]
    cost: Mapping[str, float]
    status: Status
    seed: int = 0

    def series(self, metric: str) -> np.ndarray:
        """Return the values of `metric`, one per evaluation.

        Raises:
            KeyError: an evaluation lacks it.
        """
        return np.array([values[metric] for values in self.metrics], dtype=float)

    def position(self, step: int) -> int:
        """Return the index of the evaluation at `step`.

        In a run that stopped itself before, it is the last one.
        """
        return max(bisect_right(self.steps, step) - 1, 0)


def join(outcomes: Sequence[Outcome], without: Collection[int] = (), seed: int = 0) -> Curve:
    """Make the curve of a chain of segments.

    Args:
        outcomes: of the segments, oldest first.
        without: steps that were evaluated only because a segment ended there. If they are left
            out, a cut run has the curve of an uncut one.
        seed: of the run.
    """
    points = {report.step: report.metrics for outcome in outcomes for report in outcome.reports}
    points = {step: metrics for step, metrics in points.items() if step not in without}
    cost: dict[str, float] = {}
    for outcome in outcomes:
        for name, value in outcome.cost.items():
            before = cost.get(name, 0.0)
            cost[name] = max(before, value) if name == PEAK_MEMORY else before + value
    if cost.get("wall_seconds"):
        cost["steps_per_second"] = cost.get("environment_steps", 0.0) / cost["wall_seconds"]
    steps = tuple(sorted(points))
    metrics = tuple(points[step] for step in steps)
    return Curve(steps, metrics, cost, outcomes[-1].status, seed)


def normalised(values: np.ndarray, scale: Sequence[float]) -> np.ndarray:
    """Write values of one task on a scale that tasks share.

    Args:
        values: in the metric's own unit and direction, which stays.
        scale: ascending values that count as 0, ..., 1 at equal distances. Two of them make a
            line, which goes on beyond both; more are quantiles, and nothing is beyond them.
    """
    if len(scale) == 2:
        low, high = scale
        return (values - low) / (high - low)
    points, place = np.unique(scale, return_inverse=True)
    # Equal quantiles have the mean of their levels.
    levels = np.bincount(place, np.linspace(0, 1, len(scale))) / np.bincount(place)
    scaled: np.ndarray = np.interp(values, points, levels)
    return scaled


@dataclass(frozen=True)
class SeedValue:
    """Result of one seed of one proposal.

    Attributes:
        seed: the tuning or test seed.
        status: how its run ended.
        values: one per objective; empty when the seed failed.
        constraints: violations, one per constraint.
        message: what a failed run said.
    """

    seed: int
    status: Status
    values: tuple[float, ...] = ()
    constraints: tuple[float, ...] = ()
    message: str = ""


class Judge:
    """Scores runs and proposals as the study file says.

    Args:
        objectives, constraints: as in the study file.
        aggregate: over seeds, by name.
        penalty: a number in the first objective's own direction, or None for "the worst score told
            so far".
        horizon: steps of a full run, where an objective is a time.
        scales: of each task, by metric (`normalised`); empty where scores are as measured.

    Attributes:
        needed: metrics that every evaluation of a run has.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        constraints: Sequence[Constraint] = (),
        aggregate: str = "mean",
        penalty: float | None = None,
        horizon: int = 0,
        scales: Sequence[Mapping[str, Sequence[float]]] = (),
    ) -> None:
        self.objectives = tuple(objectives)
        self.constraints = tuple(constraints)
        self.aggregate = aggregate
        self._aggregate = parse_aggregate(aggregate)
        self._reduce = [parse_reduction(objective.reduce) for objective in objectives]
        self._penalty = penalty
        self._horizon = horizon
        self._scales = scales
        self._choosing = [
            objective
            for objective, reduce in zip(self.objectives, self._reduce, strict=True)
            if reduce.chooses_step and objective.metric not in COST_METRICS
        ]
        metrics = [objective.metric for objective in objectives]
        metrics += [rule.metric for rule in constraints]
        self.needed = [metric for metric in metrics if metric not in COST_METRICS]

    def value(self, seed: int, curve: Curve, message: str = "") -> SeedValue:
        """Return the objective values of one run.

        A metric that is NaN or infinite makes the run `diverged`.

        Raises:
            KeyError: the trainer did not report a metric the study needs.
        """
        if curve.status.failed:
            return SeedValue(seed, curve.status, message=message)
        # If there is no evaluation, no report lacks the metric, but the curve is empty.
        if not curve.steps and self.needed:
            raise KeyError(self.needed[0])
        measured = [self._curve_of(curve, objective.metric) for objective in self.objectives]
        constraints = tuple(
            rule.violation(self._last(curve, rule.metric)) for rule in self.constraints
        )
        finite = all(np.isfinite(series).all() for series in measured)
        if not finite or not all(map(math.isfinite, constraints)):
            message = "a metric of the objective is NaN or infinite"
            return SeedValue(seed, Status.DIVERGED, message=message)
        values = tuple(
            float(reduce.at(curve.steps, self._horizon, objective.of_metric)(series))
            for objective, reduce, series in zip(
                self.objectives, self._reduce, self._scores(curve), strict=True
            )
        )
        return SeedValue(seed, curve.status, values, constraints)

    def reductions(self, curve: Curve) -> list[tuple[str, int, float, float, int, float, float]]:
        """Return every reduction of every objective metric.

        All of them are made, whichever the study uses, to look at the choice again later. Rows
        (metric, until, last, best, step of the best, mean of the last 5, area under the curve) are
        in the metric's own direction; metrics that are costs have no curve and no row.
        """
        rows = []
        for objective in self.objectives:
            if objective.metric in COST_METRICS or not curve.steps:
                continue
            series = objective.of_metric * curve.series(objective.metric)
            if not np.isfinite(series).all():
                continue
            last, best, mean_of_last, area = (
                objective.of_metric * float(value)
                for value in (series[-1], series.max(), series[-5:].mean(), series.mean())
            )
            best_step = curve.steps[int(np.argmax(series))]
            until = curve.steps[-1]
            rows.append((objective.metric, until, last, best, best_step, mean_of_last, area))
        return rows

    def at_step(self, seed: int, curve: Curve, step: int | None) -> SeedValue:
        """Return `value`, but with `reduce: best` read at a chosen step.

        Args:
            seed: of the run.
            curve: of the run.
            step: chosen on tuning seeds; None reads as `value` does.
        """
        at_end = self.value(seed, curve)
        if at_end.status.failed or step is None:
            return at_end
        position = curve.position(step)
        values = list(at_end.values)
        for index, series in enumerate(self._scores(curve)):
            # A maximum of a test curve is over its own noise: it is read where tuning chose.
            if self.objectives[index] in self._choosing:
                values[index] = float(series[position])
        return SeedValue(seed, at_end.status, tuple(values), at_end.constraints)

    def score(
        self, proposal: ProposalId, reached: int, seeds: Sequence[SeedValue], worst: Worst
    ) -> Scored | Failed:
        """Make the event for a proposal whose seeds are all in.

        A failed seed scores the penalty; when every seed failed the proposal did. `worst` knows
        what was told before.
        """
        good = [seed for seed in seeds if not seed.status.failed]
        penalty = self.penalty(reached, good, worst)
        if not good:
            return Failed(proposal, seeds[0].status, penalty, seeds[0].message)
        # A failed seed has no values: it counts with the penalty, never not at all.
        table = np.array([seed.values or penalty for seed in seeds])
        spread = table.std(axis=0, ddof=1) if len(seeds) > 1 else np.zeros(table.shape[1])
        # A failed seed has measured no constraint either.
        constraints: tuple[float, ...] = ()
        if self.constraints:
            violations = np.array([seed.constraints for seed in good])
            constraints = tuple(float(value) for value in violations.mean(axis=0))
        return Scored(
            proposal,
            values=tuple(float(self._aggregate(column)) for column in table.T),
            spread=tuple(float(value) for value in spread),
            n_seeds=len(seeds),
            reached=reached,
            constraints=constraints,
            resumable=all(seed.status is Status.DONE for seed in seeds),
            mean=tuple(float(value) for value in table.mean(axis=0)),
        )

    def watched(self, curves: Sequence[Curve], metrics: Sequence[str]) -> FrozenMap:
        """Average metrics over the curves of a proposal, evaluation by evaluation.

        Raises:
            KeyError: an evaluation lacks one.
        """
        shortest = min(len(curve.steps) for curve in curves)
        tables = {name: [curve.series(name)[:shortest] for curve in curves] for name in metrics}
        return FrozenMap({name: np.mean(table, axis=0).tolist() for name, table in tables.items()})

    def best_step(self, curves: Sequence[Curve]) -> int | None:
        """Choose the step that `reduce: best` is read at.

        It is the step at which the aggregate over `curves` (of tuning seeds, without those that
        failed) is best. The first objective with that reduction chooses. None for other
        reductions, or when every seed failed.
        """
        # A seed that failed does not choose: its curve breaks off where it failed.
        curves = [curve for curve in curves if not curve.status.failed]
        if not self._choosing or not curves:
            return None
        objective = self._choosing[0]
        steps = sorted({step for curve in curves for step in curve.steps})
        scaled = [(curve, self._scaled(curve, objective.metric)) for curve in curves]
        columns = [[series[curve.position(step)] for curve, series in scaled] for step in steps]
        scores = [objective.sign * float(self._aggregate(np.array(column))) for column in columns]
        return steps[int(np.argmax(scores))]  # the first of equals: the shortest training

    def raw(self, values: Sequence[float]) -> tuple[float, ...]:
        """Turn internal values into each metric's own direction."""
        return tuple(
            objective.sign * value
            for objective, value in zip(self.objectives, values, strict=False)
        )

    @property
    def chooses_step(self) -> bool:
        """Whether tuning seeds choose the step of an objective."""
        return bool(self._choosing)

    @property
    def reads_one_step(self) -> bool:
        """Whether every objective is read at one chosen step.

        No score needs later evaluations then.
        """
        return len(self._choosing) == len(self.objectives)

    def _curve_of(self, curve: Curve, metric: str) -> np.ndarray:
        if metric in COST_METRICS:
            return np.array([curve.cost.get(metric, math.nan)])
        return curve.series(metric)

    def scaled(self, seed: int, metric: str, values: np.ndarray) -> np.ndarray:
        """Return a metric's values on the scale of the seed's task."""
        scale = self._scales[seed // TASK].get(metric) if self._scales else None
        return values if scale is None else normalised(values, scale)

    def _scaled(self, curve: Curve, metric: str) -> np.ndarray:
        return self.scaled(curve.seed, metric, self._curve_of(curve, metric))

    def _scores(self, curve: Curve) -> list[np.ndarray]:
        """Return the curve of each objective, on which larger is better."""
        return [
            objective.of_metric * self._scaled(curve, objective.metric)
            for objective in self.objectives
        ]

    def _last(self, curve: Curve, metric: str) -> float:
        if metric in COST_METRICS:
            return curve.cost.get(metric, math.nan)
        # A metric of training is lacking before the first update.
        values = [measured[metric] for measured in curve.metrics if metric in measured]
        if not values:
            raise KeyError(metric)
        return float(values[-1])

    def penalty(self, reached: int, good: Sequence[SeedValue], worst: Worst) -> tuple[float, ...]:
        """Return the score of a failed seed, one number per objective.

        It is the number in the study file, else the worst score so far at that fidelity. Before the
        first score it is the worst of the proposal's own good seeds; it is empty if there is none
        either. A score that is a time is that of a run which never reaches its goal.
        """
        if self._penalty is not None:
            return tuple(objective.sign * self._penalty for objective in self.objectives)
        scores = worst.at(reached)
        if not scores and good:
            scores = tuple(map(min, zip(*(seed.values for seed in good), strict=True)))
        return tuple(
            value if reduce.goal is None else -never_reached(self._horizon)
            for value, reduce in zip(scores, self._reduce, strict=False)
        )


class Worst:
    """The worst values told so far, by fidelity: a fold over `Scored`."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[float, ...]] = {}

    def observe(self, event: Scored) -> None:
        before = self._values.get(event.reached, event.values)
        self._values[event.reached] = tuple(map(min, before, event.values))

    def at(self, reached: int) -> tuple[float, ...]:
        """Return the worst values at a fidelity, or at the nearest one.

        Empty before anything was scored.
        """
        if not self._values:
            return ()
        # The shorter of two that are equally near.
        return self._values[min(self._values, key=lambda step: (abs(step - reached), step))]


class Ranking:
    """Order of all scored proposals, the incumbent first: a fold over events.

    The highest fidelity comes first, then most seeds, then score; ties go by mean, spread,
    earliest. Feasible proposals come before infeasible ones, the least infeasible first; at equal
    fidelity provisional ones come last. With several objectives the first decides here; `front`
    gives the Pareto set.
    """

    def __init__(self) -> None:
        self._scored: dict[ProposalId, Scored] = {}
        self._provisional: set[ProposalId] = set()
        # Keys of all that were scored, best first; each ends in its proposal's id.
        self._ascending: list[tuple[float, ...]] = []

    def observe(self, event: Event) -> None:
        """Take on an event.

        A `Scored` replaces an earlier one of its proposal; a `Failed` leaves the ranking as it is.
        """
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
        """Return the incumbent's proposal, None before anything was scored."""
        return int(self._ascending[0][-1]) if self._ascending else None

    def ordered(self, count: int | None = None) -> list[ProposalId]:
        """Return the best `count` scored proposals, best first.

        All of them where `count` is None.
        """
        return [int(key[-1]) for key in self._ascending[:count]]

    def front(self) -> list[ProposalId]:
        """Return the feasible proposals that no other dominates.

        Proposals of the highest fidelity compete; they come in the order they were proposed.
        """
        feasible = [scored for scored in self._scored.values() if _infeasibility(scored) == 0]
        top = max((scored.reached for scored in feasible), default=0)
        points = [scored for scored in feasible if scored.reached == top]
        return undominated({scored.proposal: scored.values for scored in points})

    def _key(self, proposal: ProposalId) -> tuple[float, ...]:
        scored = self._scored[proposal]
        spread = scored.spread[0] if scored.spread else 0.0
        # The mean breaks ties first: an interquartile mean saturates at the cap of a task.
        mean = scored.mean[0] if scored.mean else scored.values[0]
        # A provisional score is of an agent that was selected for its luck (`docs/decisions.md`).
        fidelity = (-scored.reached, proposal in self._provisional, -scored.n_seeds)
        return (_infeasibility(scored), *fidelity, -scored.values[0], -mean, spread, proposal)


def _infeasibility(scored: Scored) -> float:
    return sum(max(0.0, violation) for violation in scored.constraints)


@dataclass(frozen=True)
class _Seeds:
    """Trains proposals with the first seeds, and gives no more."""

    seeds: tuple[int, ...]
    minimum: int = 1
    maximum: int | None = None

    @property
    def first(self) -> tuple[int, ...]:
        return self.seeds[: self.minimum]

    @property
    def full(self) -> tuple[int, ...]:
        return self.seeds[: self.maximum]

    def more(self, mine: Sequence[SeedValue], reference: Sequence[SeedValue]) -> tuple[int, ...]:
        """Return the next seeds of a proposal: by this rule none."""
        return ()


class Fixed(_Seeds):
    """Trains every proposal with every tuning seed."""

    @property
    def first(self) -> tuple[int, ...]:
        return self.seeds


@dataclass(frozen=True)
class Racing(_Seeds):
    """Doubles the seeds of a proposal while it holds against the incumbent.

    Seeds come in fixed order, and those both have are compared. The incumbent always has the most
    seeds. SMAC's intensification (Hutter, Hoos and Leyton-Brown 2011) with paired seeds; `rule: t`
    keeps a proposal until a one-sided paired t-test at 0.1 rejects it.
    """

    rule: str = "mean"

    def more(self, mine: Sequence[SeedValue], reference: Sequence[SeedValue]) -> tuple[int, ...]:
        """Return the next seeds of a proposal.

        Empty when it is settled: it lost, a seed of it failed, or it has as many seeds as the
        incumbent. As long as there is no reference (nothing was scored yet) a proposal stays at the
        first seeds; once incumbent it is brought to the most.

        Args:
            mine: the proposal's seeds so far, all of them in.
            reference: the incumbent's seeds, which it is raced against.
        """
        reference_of = {seed.seed: seed for seed in reference}
        shared = [(seed, reference_of[seed.seed]) for seed in mine if seed.seed in reference_of]
        # Paired: only seeds that the incumbent has can tell anything.
        target = [seed for seed in self.full if seed in reference_of]
        if not shared or len(mine) >= len(target) or any(seed.status.failed for seed in mine):
            return ()
        differences = [
            value.values[0] - incumbent.values[0] for value, incumbent in shared if incumbent.values
        ]
        if differences and self._clearly_worse(np.array(differences)):
            return ()
        trained = {seed.seed for seed in mine}
        count = min(2 * len(mine), len(target))
        return tuple(seed for seed in target[:count] if seed not in trained)

    def _clearly_worse(self, differences: np.ndarray) -> bool:
        """Tell whether paired differences to the incumbent drop a proposal.

        `differences` has the shape (seeds,). The metric's unit does not matter.
        """
        if self.rule == "mean":
            return bool(differences.mean() < 0)
        largest = np.abs(differences).max()
        if len(differences) < 2 or largest == 0:
            return False
        relative = differences / largest
        if np.ptp(relative) <= _ROUNDING:
            # Constant: the test statistic is 0 / 0 or made of rounding errors.
            return bool(relative[0] < 0)
        from scipy.stats import ttest_1samp  # slow to import, and no other rule needs it

        return bool(ttest_1samp(relative, 0.0, alternative="less").pvalue < 0.1)


@dataclass(frozen=True)
class Adaptive(_Seeds):
    """Trains proposals with few tuning seeds, then the best with more.

    `autorl.study.more_seeds` spends a share of the budget on the best when the rest is used up.
    The incumbent then has the most seeds.

    Attributes:
        share: of the budget that confirms.
        block: tasks that one more seed is trained on.
    """

    share: float = SHARE
    block: int = 1

    def runs_to_confirm(self, runs: float, confirmed: int = 0) -> int:
        """Return how many full runs of a budget confirm.

        `confirmed` counts seeds, on every task, as in `confirmation.runs_to_confirm`.
        """
        return self.block * runs_to_confirm(runs / self.block, self.share, confirmed=confirmed)

    def runs_to_explore(self, runs: float, confirmed: int = 0) -> float:
        """Return how many full runs of a budget explore.

        They pay for one proposal at least, if the budget does. `confirmed` is that of
        `runs_to_confirm`.
        """
        explore = runs - self.runs_to_confirm(runs, confirmed)
        return max(explore, min(runs, float(self.minimum)))


SeedPolicy: TypeAlias = Fixed | Racing | Adaptive
"""The rules by which proposals get tuning seeds."""
