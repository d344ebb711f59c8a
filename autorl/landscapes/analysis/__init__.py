"""Analyses of landscapes.

They say what matters, what transfers, what is noise, and which environments represent the others.
"""

from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis._chart import Axis, Bars, Chart, HeatMap, Line, axis_of, positions
from autorl.landscapes.analysis.answers import METHODS, analyse, importance, subset
from autorl.landscapes.analysis.dependence import (
    dependence_surface,
    dependence_table,
    interaction_strength,
    interaction_table,
    partial_dependence,
)
from autorl.landscapes.analysis.fidelity import (
    budget_correlation,
    budget_table,
    correlation_intervals,
    early_choice_regret,
)
from autorl.landscapes.analysis.forest import Forest, fit_forest, landscape_forest
from autorl.landscapes.analysis.kinds import CHARTS, KINDS, chart_of
from autorl.landscapes.analysis.noise import SeedNoise, icc_interval, landscape_noise, seed_noise
from autorl.landscapes.analysis.phases import PhaseComparison, Phases, compare_phases, phase_scores
from autorl.landscapes.analysis.plots import figure_of, interactive, save
from autorl.landscapes.analysis.progress import best_curves, importance_by_step
from autorl.landscapes.analysis.redundancy import Redundancy, detectable_difference, redundancy_of
from autorl.landscapes.analysis.subsets import (
    Subset,
    SubsetSelection,
    select_environments,
    select_subset,
    size_table,
)
from autorl.landscapes.analysis.tables import (
    Curves,
    TaskTable,
    final_scores,
    learning_curves,
    task_table,
)
from autorl.landscapes.analysis.transfer import BestSingle, Transfer, best_single, transfer_regret
from autorl.landscapes.analysis.tunability import Tunability, tunability_of, tuning_gains
from autorl.landscapes.analysis.values import performance_by_value, values_table
from autorl.landscapes.analysis.variance import fanova, local_importance
from autorl.landscapes.regression import configurations

__all__ = [
    "CHARTS",
    "KINDS",
    "METHODS",
    "Answer",
    "Axis",
    "Bars",
    "BestSingle",
    "Chart",
    "Curves",
    "Forest",
    "HeatMap",
    "Line",
    "PhaseComparison",
    "Phases",
    "Redundancy",
    "SeedNoise",
    "Subset",
    "SubsetSelection",
    "TaskTable",
    "Transfer",
    "Tunability",
    "analyse",
    "axis_of",
    "best_curves",
    "best_single",
    "budget_correlation",
    "budget_table",
    "chart_of",
    "compare_phases",
    "configurations",
    "correlation_intervals",
    "dependence_surface",
    "dependence_table",
    "detectable_difference",
    "early_choice_regret",
    "fanova",
    "figure_of",
    "final_scores",
    "fit_forest",
    "icc_interval",
    "importance",
    "importance_by_step",
    "interaction_strength",
    "interaction_table",
    "interactive",
    "landscape_forest",
    "landscape_noise",
    "learning_curves",
    "local_importance",
    "partial_dependence",
    "performance_by_value",
    "phase_scores",
    "positions",
    "redundancy_of",
    "save",
    "seed_noise",
    "select_environments",
    "select_subset",
    "size_table",
    "subset",
    "task_table",
    "transfer_regret",
    "tunability_of",
    "tuning_gains",
    "values_table",
]
