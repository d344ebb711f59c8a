"""An Optuna study that is a view of our history.

Imports optuna: import it lazily.

Optuna's in-memory storage can neither update a finished trial (a later `Scored` supersedes an
earlier one) nor forget a trial that was asked for but never proposed. `TrialTable`, a storage of
Optuna's own interface handed to `create_study`, can: it is a list of finished trial objects that we
write, plus at most one draft that a sampler is filling in.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autorl.space import Hyperparameter

if TYPE_CHECKING:
    from optuna._typing import JSONSerializable

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

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        return STUDY

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
    delete_study = set_study_user_attr = get_study_user_attrs = get_all_studies = _unused
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


def suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> Any:
    """Call `trial.suggest_*` for any distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    assert isinstance(distribution, FloatDistribution)
    return trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)


def study_on(table: TrialTable) -> optuna.Study:
    return optuna.create_study(
        storage=table, study_name="autorl", directions=["maximize"] * len(table._directions)
    )


def told_trial(
    params: Mapping[str, object],
    distributions: Mapping[str, BaseDistribution],
    values: Sequence[float] | None,
    state: TrialState,
    attributes: Mapping[str, object],
    constraints: Sequence[float],
) -> FrozenTrial:
    """Make a trial as a sampler shall see it.

    Pending (RUNNING) and unscored (FAIL) ones have no values.

    Its attribute `internal` holds the parameters as TPE computes with them.
    """
    trial = create_trial(
        state=state,
        values=values,
        params=dict(params),
        distributions={name: distributions[name] for name in params},
        system_attrs=dict(attributes),
        constraints={str(index): value for index, value in enumerate(constraints)},
    )
    # No attribute that a trial declares: `FastTPE` reads it, where Optuna converts all again.
    trial.__dict__["internal"] = {
        name: distributions[name].to_internal_repr(value) for name, value in params.items()
    }
    return trial
