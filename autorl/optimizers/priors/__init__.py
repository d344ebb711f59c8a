"""Priors: what landscapes of an algorithm say about its hyperparameters.

    landscapes, studies, prior files -> TaskTable -> MappedTask -> StudyPrior -> Ensemble
       (sources)                       (table)     (mapping)     (study_prior)  (ensemble)

A `TaskTable` holds configurations and scores of one task under the names they were recorded with. A
prior file is a set of them. A study maps the tables to its own space when it begins, and its frozen
study file holds the result: it needs neither landscape nor prior file afterwards.
"""
