"""Statistics of scores and learning curves, as pure functions of arrays.

Scores have the shape (n runs, m tasks) and larger is better. Every function checks its input:
empty, NaN, infinite or of wrong rank is a ValueError that states the rule. A crashed run must be
given its penalty before it is aggregated, never dropped. Randomness is a Generator argument.
"""

from autorl.statistics.aggregates import (
    Aggregate,
    cvar,
    iqm,
    mean,
    median,
    parse_aggregate,
    quantile,
    ranking,
    select,
)
from autorl.statistics.bootstrap import (
    Interval,
    bootstrap_interval,
    difference_interval,
    student_interval,
)
from autorl.statistics.comparison import (
    average_ranks,
    improvement_interval,
    min_max,
    probability_of_improvement,
    ranks,
)
from autorl.statistics.coverage import FEW_RUNS, level_text, measured_coverage
from autorl.statistics.reductions import Reduction, auc, best, last, mean_last, parse_reduction
from autorl.statistics.sequential import SequentialResult, sequential_test

__all__ = [
    "FEW_RUNS",
    "Aggregate",
    "Interval",
    "Reduction",
    "SequentialResult",
    "auc",
    "average_ranks",
    "best",
    "bootstrap_interval",
    "cvar",
    "difference_interval",
    "improvement_interval",
    "iqm",
    "last",
    "level_text",
    "mean",
    "mean_last",
    "measured_coverage",
    "median",
    "min_max",
    "parse_aggregate",
    "parse_reduction",
    "probability_of_improvement",
    "quantile",
    "ranking",
    "ranks",
    "select",
    "sequential_test",
    "student_interval",
]
