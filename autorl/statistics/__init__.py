"""Statistics of scores and learning curves, as pure functions of arrays.

Scores have the shape (n runs, m tasks) and larger is better. Every function checks its input:
empty, NaN, infinite or of wrong rank is a ValueError that states the rule. A crashed run must be
given its penalty before it is aggregated, never dropped. Randomness is a Generator argument.
"""

from autorl.statistics.aggregates import (
    Aggregate,
    aggregate_names,
    cvar,
    iqm,
    mean,
    median,
    median_of_task_means,
    optimality_gap,
    parse_aggregate,
    quantile,
    ranking,
    select,
)
from autorl.statistics.bootstrap import (
    Interval,
    bootstrap_distribution,
    bootstrap_interval,
    difference_interval,
    student_interval,
    two_sample_interval,
)
from autorl.statistics.comparison import (
    TestResult,
    average_ranks,
    critical_difference,
    ecdf,
    friedman,
    holm,
    improvement_interval,
    paired_differences,
    pairwise_wilcoxon,
    performance_profile,
    probability_of_improvement,
    profile_band,
    ranks,
    wilcoxon,
)
from autorl.statistics.coverage import FEW_RUNS, FEW_RUNS_OF_MEAN, measured_coverage
from autorl.statistics.normalise import min_max, rank_normalise, reference_score
from autorl.statistics.overtuning import Overtuning, overtuning_trace, regret
from autorl.statistics.reductions import (
    Reduction,
    auc,
    best,
    last,
    mean_last,
    parse_reduction,
    reduction_names,
)
from autorl.statistics.sequential import SequentialResult, sequential_test

__all__ = [
    "FEW_RUNS",
    "FEW_RUNS_OF_MEAN",
    "Aggregate",
    "Interval",
    "Overtuning",
    "Reduction",
    "SequentialResult",
    "TestResult",
    "aggregate_names",
    "auc",
    "average_ranks",
    "best",
    "bootstrap_distribution",
    "bootstrap_interval",
    "critical_difference",
    "cvar",
    "difference_interval",
    "ecdf",
    "friedman",
    "holm",
    "improvement_interval",
    "iqm",
    "last",
    "mean",
    "mean_last",
    "measured_coverage",
    "median",
    "median_of_task_means",
    "min_max",
    "optimality_gap",
    "overtuning_trace",
    "paired_differences",
    "pairwise_wilcoxon",
    "parse_aggregate",
    "parse_reduction",
    "performance_profile",
    "probability_of_improvement",
    "profile_band",
    "quantile",
    "rank_normalise",
    "ranking",
    "ranks",
    "reduction_names",
    "reference_score",
    "regret",
    "select",
    "sequential_test",
    "student_interval",
    "two_sample_interval",
    "wilcoxon",
]
