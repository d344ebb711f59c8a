"""Scores of proposals on test seeds, and their intervals.

Also the difference of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted
from autorl.core.seeds import TASK
from autorl.core.types import Config, ProposalId, StudyError
from autorl.statistics.aggregates import iqm, parse_aggregate
from autorl.statistics.bootstrap import Interval, bootstrap_interval, difference_interval
from autorl.statistics.coverage import FEW_RUNS
from autorl.statistics.sequential import SequentialResult, sequential_test
from autorl.study.spec import Spec


@dataclass(frozen=True)
class Estimate:
    """The score of one proposal on one role of seeds.

    It is in the metric's own direction.

    Attributes:
        iqm, iqm_interval: interquartile mean and its 95 % percentile bootstrap interval (Agarwal et
            al. 2021), the number to report whatever the study aggregates by: on recorded seed noise
            no interval of a mean covers as well. None with fewer than two seeds.
        value: the study's aggregate over seeds, the statistic of the tuning score and of the gap.
        interval: its percentile bootstrap interval, which lies within the scores.
        seeds: the value of each seed all of these are of: those whose run succeeded, and those that
            failed where `failures.penalty` states a number. A penalty that tuning scores gave is no
            test score.
        failed: how many test runs failed.
        failed_value: what each of them counts as; None: they are in no number, and the headline
            counts them.
        tasks: names of the tasks the seeds are crossed with, by number; empty without tasks.
    """

    value: float
    interval: Interval | None
    iqm: float
    iqm_interval: Interval | None
    seeds: Mapping[int, float]
    failed: int = 0
    failed_value: float | None = None
    tasks: Mapping[int, str] = field(default_factory=dict)

    @property
    def runs_of_a_task(self) -> int:
        """Number of runs on one task, from which intervals are resampled."""
        return len(self.seeds) // max(1, len(self.tasks))

    @property
    def seeds_text(self) -> str:
        """The seeds in words."""
        seeds = counted(self.runs_of_a_task, "held-out seed")
        return f"{seeds} x {counted(len(self.tasks), 'task')}" if self.tasks else seeds

    def run_text(self, seed: int) -> str:
        """Name the seed of a run, and its task."""
        return f"seed {seed % TASK} of {self.tasks[seed // TASK]}" if self.tasks else f"seed {seed}"

    @property
    def runs(self) -> int:
        """Number of test runs, those that failed included."""
        return len(self.seeds) + (self.failed if self.failed_value is None else 0)

    @property
    def few(self) -> bool:
        """Say whether the interquartile mean is of too few seeds.

        Its interval then covers less than it says.
        """
        return self.runs_of_a_task < FEW_RUNS


@dataclass(frozen=True)
class Entry:
    """A proposal that was trained on test seeds.

    It says why it was chosen, and its tuning and test scores.

    Attributes:
        test: None if every test run failed.
        until: the step both scores are of.
        failures: how the test runs that failed did, by seed.
        difference: of a named baseline, the incumbent's interquartile mean minus its own.
    """

    label: str
    proposal: ProposalId
    schedule: tuple[tuple[int, Config], ...]
    tuning: float
    test: Estimate | None
    until: int
    failures: Mapping[int, str] = field(default_factory=dict)
    difference: Interval | None = None

    @property
    def config(self) -> Config:
        """The configuration it ended with."""
        return self.schedule[-1][1]


def estimate(
    spec: Spec, proposal: ProposalId, succeeded: Mapping[int, float], failed: Sequence[int]
) -> Estimate | None:
    """Score a proposal by its test runs.

    The result is None if no test run succeeded. Failed runs count where the study file says their
    value.

    Args:
        spec: the study file.
        proposal: whose random stream the bootstrap draws from.
        succeeded: value by seed of the runs that succeeded.
        failed: seeds of the others.
    """
    if not succeeded:
        return None
    stated = spec.stated_penalty
    penalties = {} if stated is None else dict.fromkeys(failed, stated)
    # In one order, because the bootstrap resamples places of this list.
    seeds = dict(sorted({**succeeded, **penalties}.items()))
    scores = by_task(spec, seeds)
    numbers = {spec.plan.parts(seed)[0] for seed in seeds}
    tasks = {number: spec.plan.tasks[number] for number in sorted(numbers) if spec.tasks}
    value, interval = _aggregated(spec, proposal, spec.evaluation.aggregate, scores)
    iqm, iqm_interval = _aggregated(spec, proposal, "iqm", scores)
    failed_value = stated if failed else None
    return Estimate(value, interval, iqm, iqm_interval, seeds, len(failed), failed_value, tasks)


def by_task(spec: Spec | None, seeds: Mapping[int, float]) -> np.ndarray:
    """Arrange values as (seeds, tasks), so that intervals resample within each task.

    In one column where tasks have different numbers of values, and without a study file.
    """
    columns: dict[int, list[float]] = {}
    for seed, value in seeds.items():
        columns.setdefault(0 if spec is None else spec.plan.parts(seed)[0], []).append(value)
    even = len({len(column) for column in columns.values()}) == 1
    return np.array([*columns.values()] if even else [[*seeds.values()]]).T


def difference(spec: Spec, first: Estimate, second: Estimate) -> Interval | None:
    """Bound the difference of two interquartile means by a 95 % interval.

    It is resampled in pairs of seeds. None with fewer than two seeds that both have.
    """
    sign = spec.objectives()[0].sign
    shared = sorted(set(first.seeds) & set(second.seeds))
    first_scores, second_scores = (
        sign * by_task(spec, {seed: estimate.seeds[seed] for seed in shared})
        for estimate in (first, second)
    )
    if len(first_scores) < 2:
        return None
    # A stream of the study's seed: the same table has the same interval whenever it is read.
    rng = streams.generator(spec.seed, "test", "difference")
    interval = difference_interval(first_scores, second_scores, "iqm", rng=rng, paired=True)
    return _signed(interval, sign)


BLOCK = 5
"""Test seeds between two looks of `told_apart`."""


def told_apart(spec: Spec, first: Entry, second: Entry, most: int) -> SequentialResult:
    """Test in sequence whether two proposals differ.

    There is a look after each `BLOCK` of test seeds. All looks together call equal agents different
    with probability 0.05 (`autorl.statistics.sequential`).

    Args:
        spec: the study file, with all test seeds so far.
        first: what was tested; it is called larger or smaller.
        second: what it is compared with.
        most: test seeds at the last look; later ones are not looked at.

    Raises:
        StudyError: a run of them failed, so a block has no mean.
    """
    sign = spec.objectives()[0].sign
    seeds = spec.plan.seeds("test")[:most]
    judged = [pair for pair in spec.plan.test if spec.plan.judges(pair)]
    # With tasks a seed is the mean over them.
    pairs = {seed: [pair for pair in judged if spec.plan.parts(pair)[1] == seed] for seed in seeds}
    runs = {}
    for name, entry in (("first", first), ("second", second)):
        values = {} if entry.test is None else entry.test.seeds
        failed = [pair for seed in seeds for pair in pairs[seed] if pair not in values]
        if failed:
            raise StudyError(
                f"the {entry.label}'s run on test {spec.plan.pair_text(failed[0])} failed: "
                "no decision"
            )
        runs[name] = [sign * float(np.mean([values[p] for p in pairs[seed]])) for seed in seeds]
    rng = streams.generator(spec.seed, "test", "told apart")
    return sequential_test(runs, rng=rng, block=BLOCK, interims=most // BLOCK)


def improvement(first: Estimate, second: Estimate) -> float:
    """Subtract the second's interquartile mean from the first's.

    It is of the seeds that both have: a seed on which one failed is in neither mean.
    """
    shared = first.seeds.keys() & second.seeds.keys()
    of_first, of_second = (iqm([it.seeds[seed] for seed in shared]) for it in (first, second))
    return of_first - of_second


def _aggregated(
    spec: Spec, proposal: ProposalId, aggregate: str, values: np.ndarray
) -> tuple[float, Interval | None]:
    """Aggregate test scores in the metric's own direction.

    There is an interval of two and more.
    """
    sign = spec.objectives()[0].sign  # aggregates such as cvar look at the worse end
    scores = sign * values
    interval = None
    if len(scores) > 1:
        # Student's t covers more of a mean, but reaches beyond what a return can be
        # (`benchmarks/results/error_rates.md`).
        rng = streams.generator(spec.seed, "test", proposal)
        interval = _signed(bootstrap_interval(scores, aggregate, rng=rng), sign)
    return sign * parse_aggregate(aggregate)(scores), interval


def _signed(interval: Interval, sign: float) -> Interval:
    low, high = sorted((sign * interval.low, sign * interval.high))
    return Interval(low, high, interval.level, interval.method)
