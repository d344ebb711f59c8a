"""The ranking of a data set's configurations, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from autorl.core.types import Config
from autorl.statistics import Aggregate
from autorl.statistics.reductions import Reduction

SeedSet: TypeAlias = Literal["tuning", "test", "all"]


class TaskValue(NamedTuple):
    """The aggregates of a chosen configuration on one task of several."""

    task: str
    tuning: float | None
    test: float | None


@dataclass(frozen=True)
class Choice:
    """A chosen configuration.

    Attributes:
        value: the aggregate it was chosen by, in the metric's own direction.
        reduce: what became of each run's curve up to `step`: its last value, its mean (`auc`), ...
        origin: where aggregate and reduction come from, in words.
        tuning, test: the same aggregate over the seeds of each role; None where there are none. A
            value over the seeds that chose it is optimistic; the other one is not.
        failed_tests: how many test runs failed; `test` is of the others unless the landscape states
            a penalty.
        tasks: values by task, where runs are of several: `test` is then of the tasks without tuning
            seeds, if there are any.
        gap_of_seeds, gap_of_tasks: how much worse it is on test seeds of the tasks it was chosen
            on, and how much worse again on the others.
    """

    config_id: int
    config: Config
    value: float
    tuning: float | None
    test: float | None
    by: str
    seeds: SeedSet
    step: int
    reduce: str = "last"
    origin: str = ""
    failed_tests: int = 0
    tasks: tuple[TaskValue, ...] = ()
    gap_of_seeds: float | None = None
    gap_of_tasks: float | None = None


@dataclass(frozen=True)
class Rule:
    """A way to rank configurations.

    `origin` says in words where aggregate and reduction come from.
    """

    aggregate: Aggregate
    reduction: Reduction
    origin: str

    def text(self, metric: str, seeds: str) -> str:
        """Describe the rule: `mean over tuning seeds of auc eval_return (default)`."""
        aggregate = f"{self.aggregate.name} over {seeds} seeds"
        return f"{aggregate} of {self.reduction.name} {metric} ({self.origin})"
