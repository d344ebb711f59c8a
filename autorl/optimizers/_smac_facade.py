"""A SMAC facade built from a list of results.

Imports smac, which takes seconds: import it lazily.

SMAC is asked for configurations only: no target function, no intensification, nothing kept on disk.
One of its parts depends on the hash seed of the process, the start points of its local search,
which are a `set`: they are ordered here.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from ConfigSpace import Configuration, ConfigurationSpace
from smac import BlackBoxFacade, HyperparameterOptimizationFacade, Scenario
from smac.acquisition.function import EI
from smac.acquisition.maximizer import LocalSearch
from smac.facade.abstract_facade import AbstractFacade
from smac.main.exceptions import ConfigurationSpaceExhaustedException
from smac.model.random_forest.random_forest import RandomForest

from autorl.core.quiet import quieted

UNLIMITED = 10**9  # trials: the budget is the study's
# SMAC's own, which users cannot act upon: on retries and empty neighbourhoods.
REMARKS = ("smac", logging.CRITICAL)


def challengers(
    space: ConfigurationSpace,
    told: Sequence[tuple[Configuration, float]],
    seed: int,
    model: str,
    most: int,
    weigh: Callable[[np.ndarray], np.ndarray],
    counts: Sequence[int] | None = None,
) -> Iterator[Configuration]:
    """Yield what SMAC would run next, best first.

    It is a function of the arguments: the cost of each configuration told is one of them. `weigh`
    gives the logarithms of what expected improvements at vectors are multiplied by. `counts`
    says how often each of them counts in the forest, None: once. SMAC's Gaussian process cannot
    weigh them.

    The first `most` come from one search for challengers, filled up at random where it finds fewer.
    Ends when SMAC finds no configuration that it has not seen. The facade keeps its bookkeeping in
    a temporary folder, which is gone before the first configuration comes.
    """
    with quieted(*REMARKS), tempfile.TemporaryDirectory(prefix="autorl-smac-") as folder:
        scenario = Scenario(
            space,
            name="study",
            output_directory=Path(folder),
            deterministic=True,  # SMAC is to ask for no seeds: those are the study's
            n_trials=UNLIMITED,
            seed=seed,
        )
        weights = None
        if counts is not None:
            rows = (_row(configuration.get_array()) for configuration, _ in told)
            weights = dict(zip(rows, counts, strict=True))
        forest = _forest(scenario, len(told), weights) if model == "forest" else None
        facade = _facade(scenario, most, weigh, forest)
        # One cost for each, that of all its seeds together.
        for configuration, cost in told:
            facade.runhistory.add(configuration, cost=cost, seed=0)
        configurations = iter(facade.intensifier.config_selector)
    while True:
        try:
            with quieted(*REMARKS):
                configuration = next(configurations)
        except (StopIteration, ConfigurationSpaceExhaustedException):
            return
        yield configuration  # outside of `quieted`, which would silence the caller too


class _WeightedForest(RandomForest):
    """SMAC's random forest, of rows that count more than once.

    Attributes:
        weights: how often each row counts, by its key.
    """

    weights: Mapping[bytes, int]

    def _train(self, X: np.ndarray, y: np.ndarray) -> Self:  # noqa: N803 - SMAC's name
        repeats = [self.weights[_row(row)] for row in X]
        super()._train(np.repeat(X, repeats, axis=0), np.repeat(y, repeats, axis=0))
        return self


def _row(vector: np.ndarray) -> bytes:
    """Return a configuration's vector as a key.

    Inactive hyperparameters are NaN, which differs from itself.
    """
    return bytes(np.nan_to_num(np.asarray(vector, dtype=float), nan=-1.0).tobytes())


def _forest(scenario: Scenario, n: int, weights: Mapping[bytes, int] | None = None) -> RandomForest:
    """Make SMAC's random forest of `n` configurations, on one core."""
    forest = RandomForest if weights is None else _WeightedForest
    model = forest(  # as `get_model` makes it, but for leaves and cores
        scenario.configspace,
        log_y=True,
        n_trees=10,
        ratio_features=1.0,
        min_samples_split=2,
        min_samples_leaf=1,
        # scikit-learn allocates as many leaves as a tree may have, with SMAC's default 130 MB for
        # each tree. More leaves than configurations there cannot be.
        max_leaf_nodes=max(2, n),
        seed=scenario.seed,
        n_jobs=1,
    )
    if isinstance(model, _WeightedForest) and weights is not None:
        model.weights = weights
    return model


def _facade(
    scenario: Scenario,
    most: int,
    weigh: Callable[[np.ndarray], np.ndarray],
    forest: RandomForest | None,
) -> AbstractFacade:
    """Make SMAC's facade of a model, without design and seeds."""
    kind = BlackBoxFacade if forest is None else HyperparameterOptimizationFacade
    maximizer = kind.get_acquisition_maximizer(scenario)
    maximizer._local_search = _OrderedLocalSearch(
        scenario.configspace,
        acquisition_function=maximizer.acquisition_function,
        seed=scenario.seed,
    )
    return kind(
        scenario,
        acquisition_function=_Weighed(weigh, log=forest is not None),
        acquisition_maximizer=maximizer,
        initial_design=kind.get_initial_design(scenario, n_configs=0),  # ours was run before
        intensifier=kind.get_intensifier(scenario, max_config_calls=1),
        config_selector=kind.get_config_selector(scenario, retrain_after=most),
        overwrite=True,
        logging_level=False,  # otherwise SMAC configures the logging of the whole process
        model=forest,
    )


class _Weighed(EI):
    """Expected improvement times a weight."""

    def __init__(self, weigh: Callable[[np.ndarray], np.ndarray], log: bool) -> None:
        super().__init__(log=log)
        self._weigh = weigh

    def _compute(self, X: np.ndarray) -> np.ndarray:  # noqa: N803 - SMAC's name
        return np.asarray(super()._compute(X) * np.exp(self._weigh(X))[:, None])


class _OrderedLocalSearch(LocalSearch):
    """Local search with start points in the order of their vectors.

    SMAC has them in the order of their hashes.
    """

    def _get_initial_points(
        self,
        previous_configs: list[Configuration],
        n_points: int,
        additional_start_points: list[tuple[float, Configuration]] | None,
    ) -> list[Configuration]:
        points = super()._get_initial_points(previous_configs, n_points, additional_start_points)
        # Inactive hyperparameters are NaN, and an order with NaN in it is none.
        return sorted(points, key=lambda point: tuple(np.nan_to_num(point.get_array(), nan=-1.0)))
