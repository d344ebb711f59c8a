"""Optuna's TPE and GP samplers, faster. Imports optuna.

They are told what they would otherwise work out anew at every ask.

Each ask has a fresh sampler, which knows nothing: it looks through all trials for the parameters
they share, converts all values again, and draws candidates that the rules of the space forbid. Here
it is given the shared parameters, the converted values (`told_trial` keeps them on the trial) and
the rules. Its computation from them is Optuna's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import GPSampler, TPESampler
from optuna.samplers._tpe import _truncnorm
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.study import Study
from optuna.trial import FrozenTrial

Distributions = Mapping[str, BaseDistribution]
Valid = Callable[[Mapping[str, Any]], bool]
BATCHES = 8  # of candidates, until as many are valid as TPE compares


def shared(distributions: Distributions) -> dict[str, BaseDistribution]:
    """Return the parameters that are sampled together, in Optuna's order.

    Parameters are sampled together when every trial has all of them.
    """
    # Sorted as Optuna's intersection of the trials' parameters is: draws are made in this order.
    return {
        name: distributions[name]
        for name in sorted(distributions)
        if not distributions[name].single()
    }


class FastTPE(TPESampler):
    """Optuna's TPE sampler, told which parameters exist and are valid.

    Candidates are drawn from the density of good configurations until enough of them are valid, so
    that the best valid one is chosen at the price of one fit.

    Args:
        known: the parameters all trials share; None = look.
        valid: tells whether parameters, by name, are allowed; None = anything is.
        counts: how often each trial counts in a density, by its number; None = once.
    """

    def __init__(
        self,
        *,
        known: dict[str, BaseDistribution] | None,
        valid: Valid | None,
        counts: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._known = known
        self._counts = counts
        # With conditions the groups of a candidate are drawn apart, and rules are about the whole.
        if valid is not None and known is not None:
            estimator = partial(_ValidParzenEstimator, valid=valid)
            self._parzen_estimator_cls = estimator  # type: ignore[assignment]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self._known is None:
            return super().infer_relative_search_space(study, trial)
        return dict(self._known)

    def _build_parzen_estimator(
        self,
        study: Study,
        search_space: dict[str, BaseDistribution],
        trials: list[FrozenTrial],
        handle_below: bool,
    ) -> _ParzenEstimator:
        names = search_space.keys()
        shown = [trial for trial in trials if names <= trial.__dict__["internal"].keys()]
        if self._counts is None or not shown:
            return super()._build_parzen_estimator(study, search_space, trials, handle_below)
        parameters = self._parzen_estimator_parameters
        # As Optuna weighs them: all good ones the same where there are several objectives.
        if handle_below and study._is_multi_objective():
            weights = np.ones(len(shown))
        else:
            weights = _ParzenEstimator._call_weights_func(parameters.weights, len(shown))
        weights = weights * [self._counts[trial.number] for trial in shown]
        observations = self._get_internal_repr(trials, search_space, study)
        return self._parzen_estimator_cls(observations, search_space, parameters, weights)

    def _get_internal_repr(
        self, trials: list[FrozenTrial], search_space: dict[str, BaseDistribution], study: Study
    ) -> dict[str, NDArray[Any]]:
        names = search_space.keys()
        # The trials have all the names; Optuna's own sampler reads them so.
        internal = [trial.__dict__["internal"] for trial in trials]
        columns = [
            [values[name] for values in internal if names <= values.keys()] for name in names
        ]
        return {
            name: np.asarray(column, dtype=float)
            for name, column in zip(names, columns, strict=True)
        }


class _ValidParzenEstimator(_ParzenEstimator):
    """A density restricted to the valid region, by rejection."""

    def __init__(self, *args: Any, valid: Valid) -> None:
        super().__init__(*args)
        self._valid = valid

    def sample(self, rng: np.random.RandomState, size: int) -> dict[str, NDArray[Any]]:
        drawn = super().sample(rng, size)
        allowed = self._allowed(drawn)
        valid = {name: values[allowed] for name, values in drawn.items()}
        for _ in range(BATCHES - 1):
            if len(next(iter(valid.values()))) >= size:
                break
            more = super().sample(rng, size)
            allowed = self._allowed(more)
            valid = {
                name: np.concatenate([values, more[name][allowed]])[:size]
                for name, values in valid.items()
            }
        # Nothing valid in all batches: who asks repairs what TPE would have chosen.
        return valid if len(next(iter(valid.values()))) else drawn

    def _allowed(self, drawn: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        space = self._search_space
        rows = zip(*(drawn[name].tolist() for name in space), strict=True)
        external = (
            {n: space[n].to_external_repr(value) for n, value in zip(space, row, strict=True)}
            for row in rows
        )
        return np.fromiter((self._valid(parameters) for parameters in external), dtype=bool)


class FastGP(GPSampler):
    """Optuna's GP sampler, told which parameters exist.

    Args:
        known: the parameters all trials share; None = look.
        counts: seeds behind the score of each trial, by its number; None = one.
    """

    def __init__(
        self,
        *,
        known: dict[str, BaseDistribution] | None,
        counts: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._known = known
        self._counts = counts

    def _sample_relative_impl(
        self,
        study: Study,
        completed_trials: list[FrozenTrial],
        running_trials: list[FrozenTrial],
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        observed = completed_trials
        if self._counts is not None:
            # Optuna's model has one noise for all. Observed n times, a score has noise / n.
            observed = [
                trial for trial in completed_trials for _ in range(self._counts[trial.number])
            ]
        return super()._sample_relative_impl(study, observed, running_trials, search_space)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self._known is None:
            return super().infer_relative_search_space(study, trial)
        return dict(self._known)


@contextmanager
def compiled_normal() -> Iterator[None]:
    """Let SciPy compute the logarithm of TPE's normal distribution.

    Optuna, which does without SciPy, computes it in Python, number by number: three quarters of an
    ask at 500 trials. The two agree to the last digits.
    """
    from scipy.special import log_ndtr

    name = "_log_ndtr"
    original = getattr(_truncnorm, name, None)
    if original is None:  # an Optuna that has moved the function is merely slower
        yield
        return
    setattr(_truncnorm, name, log_ndtr)
    try:
        yield
    finally:
        setattr(_truncnorm, name, original)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Sum in an order that does not depend on the machine's cores.

    And without threads that wait for each other.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
