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
    critical_difference,
    friedman,
    holm,
    improvement_interval,
    min_max,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    profile_band,
    ranks,
    signed_rank,
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
    "critical_difference",
    "cvar",
    "difference_interval",
    "friedman",
    "holm",
    "improvement_interval",
    "iqm",
    "last",
    "level_text",
    "mean",
    "mean_last",
    "measured_coverage",
    "median",
    "min_max",
    "optimality_gap",
    "parse_aggregate",
    "parse_reduction",
    "performance_profile",
    "probability_of_improvement",
    "profile_band",
    "quantile",
    "ranking",
    "ranks",
    "select",
    "sequential_test",
    "signed_rank",
    "student_interval",
]
