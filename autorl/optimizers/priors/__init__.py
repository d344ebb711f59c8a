"""Priors: what landscapes of an algorithm say about its hyperparameters.

    landscapes, studies, prior files -> TaskTable -> MappedTask -> StudyPrior -> Ensemble
       (sources)                       (table)     (mapping)     (study_prior)  (ensemble)

A `TaskTable` holds configurations and scores of one task under the names they were recorded with. A
prior file is a set of them. A study maps the tables to its own space when it begins, and its frozen
study file holds the result: it needs neither landscape nor prior file afterwards.
"""

from autorl.optimizers.priors.build import build_prior
from autorl.optimizers.priors.table import Prior, TaskTable, load_prior, save_prior

__all__ = ["Prior", "TaskTable", "build_prior", "load_prior", "save_prior"]
