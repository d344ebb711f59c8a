"""An Optuna study of our history, and Optuna's samplers made faster.

Imports optuna: import it lazily.

Optuna's in-memory storage can neither update a finished trial (a later `Scored` supersedes an
earlier one) nor forget a trial that was asked for but never proposed. `TrialTable`, a storage of
Optuna's own interface handed to a `Study`, can: it is a list of finished trial objects that we
write, plus at most one draft that a sampler is filling in.

Each ask has a fresh sampler, which knows nothing: it looks through all trials for the parameters
they share, converts all values again, and draws candidates that the rules of the space forbid. Here
it is given the shared parameters, the converted values (`told_trial` keeps them on the trial) and
the rules. Its computation from them is Optuna's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import GPSampler, TPESampler
from optuna.samplers._tpe import _truncnorm
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autorl.optimizers.base import Record
from autorl.space import Hyperparameter

if TYPE_CHECKING:
    from optuna._typing import JSONSerializable

Distributions = Mapping[str, BaseDistribution]
Valid = Callable[[Mapping[str, Any]], bool]
BATCHES = 8  # of candidates, until as many are valid as TPE compares
STUDY = 0  # the id of the one study in a table


class TrialTable(BaseStorage):
    """Trials by number, and the attributes samplers attach to the study.

    A trial's id is its number.

    Attributes:
        trials: the told part, written by us.
        shown: numbers of the told trials that samplers see, ascending; None: all of them.
        study_attributes: what samplers attach to the study (NSGA-II: the parents of each
            generation).
    """

    def __init__(self, n_objectives: int) -> None:
        self.trials: list[FrozenTrial] = []
        self.shown: Sequence[int] | None = None
        self._told: int | None = None  # trials when a draft began: those after them are seen
        self.study_attributes: dict[str, Any] = {}
        self._directions = [StudyDirection.MAXIMIZE] * n_objectives

    def put(self, number: int, trial: FrozenTrial) -> None:
        """Set trial `number`, an existing one or the next."""
        assert number <= len(self.trials)
        trial.number = trial._trial_id = number
        self.trials[number : number + 1] = [trial]

    @contextmanager
    def draft(self) -> Iterator[None]:
        """Allow one more trial to be created and filled in.

        At the end the table is as it was before.
        """
        length = len(self.trials)
        self._told = length
        attributes = dict(self.study_attributes)
        try:
            yield
        finally:
            self._told = None
            del self.trials[length:]
            self.study_attributes = attributes

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        assert template_trial is None
        self.put(len(self.trials), create_trial(state=TrialState.RUNNING))
        return len(self.trials) - 1

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self.trials[trial_id]
        trial.params = {
            **trial.params,
            param_name: distribution.to_external_repr(param_value_internal),
        }
        trial.distributions = {**trial.distributions, param_name: distribution}

    def set_trial_system_attr(self, trial_id: int, key: str, value: JSONSerializable) -> None:
        trial = self.trials[trial_id]
        trial.system_attrs = {**trial.system_attrs, key: value}

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self.trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        assert not deepcopy, "samplers read without copying"
        trials = self.trials
        if self.shown is not None:
            drafted = [] if self._told is None else trials[self._told :]
            trials = [*(trials[number] for number in self.shown), *drafted]
        return [trial for trial in trials if states is None or trial.state in states]

    def get_study_id_from_name(self, study_name: str) -> int:
        return STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        return "autorl"

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._directions

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self.study_attributes

    def set_study_system_attr(self, study_id: int, key: str, value: JSONSerializable) -> None:
        self.study_attributes = {**self.study_attributes, key: value}

    def _unused(self, *args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a part of Optuna's storage that samplers do not use")

    # Abstract in `BaseStorage`, which could not be subclassed without them.
    create_new_study = delete_study = get_all_studies = set_study_user_attr = _unused
    get_study_user_attrs = _unused
    set_trial_state_values = set_trial_intermediate_value = set_trial_user_attr = _unused


def distribution_of(hyperparameter: Hyperparameter, relax: float = math.inf) -> BaseDistribution:
    """Make Optuna's counterpart of a hyperparameter.

    Flipped-log values lie in the unit interval, choices go by index.

    Integers with more than `relax` values are floats, which `decode` rounds. This is a code for
    samplers, which keeps scales and order; a study exported for people (`landscapes.export`) has
    the values themselves.
    """
    # By index: choices may be lists, and to Optuna True and 1 are the same choice.
    if hyperparameter.type == "categorical":
        return CategoricalDistribution(tuple(range(len(hyperparameter.choices))))
    if hyperparameter.type == "ordinal":
        return IntDistribution(0, len(hyperparameter.choices) - 1)
    if hyperparameter.scale == "flipped_log":
        return FloatDistribution(0.0, 1.0)
    lower, upper = hyperparameter.bounds
    log = hyperparameter.scale == "log"
    if hyperparameter.type == "int" and upper - lower < relax:
        return IntDistribution(int(lower), int(upper), log=log)
    return FloatDistribution(lower, upper, log=log)


def encode(hyperparameter: Hyperparameter, value: object) -> Any:
    """Return a value as Optuna's distribution holds it."""
    if hyperparameter.choices:
        return hyperparameter.index(value)
    return hyperparameter.to_unit(value) if hyperparameter.scale == "flipped_log" else value


def decode(hyperparameter: Hyperparameter, value: Any) -> Any:
    """Return the value that `encode` made a number of.

    Floats are rounded as the space rounds them, and stay in their bounds.
    """
    if hyperparameter.choices:
        return hyperparameter.choices[value]
    if hyperparameter.scale == "flipped_log":
        return hyperparameter.from_unit(value)
    if hyperparameter.type == "int":
        return round(value)  # a float, where it was relaxed
    return hyperparameter.from_unit(hyperparameter.to_unit(value))


def told_trial(
    record: Record,
    distributions: Distributions,
    hyperparameters: Mapping[str, Hyperparameter],
    attributes: Mapping[str, object],
    constraints: Sequence[float],
) -> FrozenTrial:
    """Make a record's trial as a sampler shall see it.

    Pending (RUNNING) and unscored (FAIL) ones have no values. Its attribute `internal` holds the
    parameters as TPE computes with them.
    """
    state = TrialState.RUNNING
    if record.result is not None:
        state = TrialState.COMPLETE if record.values else TrialState.FAIL
    params = {
        name: encode(hyperparameters[name], value)
        for name, value in record.proposal.config.items()
        if name in distributions
    }
    trial = create_trial(
        state=state,
        values=record.values or None,
        params=params,
        distributions={name: distributions[name] for name in params},
        system_attrs=dict(attributes),
        constraints={str(index): value for index, value in enumerate(constraints)},
    )
    # No attribute that a trial declares: `FastTPE` reads it, where Optuna converts all again.
    trial.__dict__["internal"] = {
        name: distributions[name].to_internal_repr(value) for name, value in params.items()
    }
    return trial


class _Told:
    """Part of a sampler that is told which parameters exist.

    Attributes:
        parameters: what all trials share, in the order they are drawn; None = look.
    """

    parameters: dict[str, BaseDistribution] | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self.parameters is not None:
            return dict(self.parameters)
        looked_up: dict[str, BaseDistribution]
        looked_up = super().infer_relative_search_space(study, trial)  # type: ignore[misc]
        return looked_up


class FastTPE(_Told, TPESampler):
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
        self.parameters = known
        self._counts = counts
        # With conditions the groups of a candidate are drawn apart, and rules are about the whole.
        if valid is not None and known is not None:
            estimator = partial(_ValidParzenEstimator, valid=valid)
            self._parzen_estimator_cls = estimator  # type: ignore[assignment]

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


class FastGP(_Told, GPSampler):
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
        self.parameters = known
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
