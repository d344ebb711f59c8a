"""An Optuna study of our history, and Optuna's GP sampler made faster.

Imports optuna: import it lazily.

Optuna's in-memory storage can neither update a finished trial (a later `Scored` supersedes an
earlier one) nor forget a trial that was asked for but never proposed. `TrialTable`, a storage of
Optuna's own interface handed to a `Study`, can: it is a list of finished trial objects that we
write, plus at most one draft that a sampler is filling in.

Each ask has a fresh sampler, which knows nothing and looks through all trials for the parameters
they share. `FastGP` is given them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autorl.optimizers.base import Record
from autorl.space import Hyperparameter

if TYPE_CHECKING:
    from optuna._typing import JSONSerializable

Distributions = Mapping[str, BaseDistribution]
STUDY = 0  # the id of the one study in a table


class TrialTable(BaseStorage):
    """Trials by number, and the attributes samplers attach to the study.

    A trial's id is its number.

    Attributes:
        trials: the told part, written by us.
        study_attributes: what samplers attach to the study (NSGA-II: the parents of each
            generation).
    """

    def __init__(self, n_objectives: int) -> None:
        self.trials: list[FrozenTrial] = []
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
        attributes = dict(self.study_attributes)
        try:
            yield
        finally:
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
        return [trial for trial in self.trials if states is None or trial.state in states]

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


def distribution_of(hyperparameter: Hyperparameter) -> BaseDistribution:
    """Make Optuna's counterpart of a hyperparameter.

    Flipped-log values lie in the unit interval, choices go by index.

    This is a code for samplers, which keeps scales and order; a study exported for people
    (`landscapes.export`) has the values themselves.
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
    if hyperparameter.type == "int":
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
        return round(value)
    return hyperparameter.from_unit(hyperparameter.to_unit(value))


def told_trial(
    record: Record,
    distributions: Distributions,
    hyperparameters: Mapping[str, Hyperparameter],
    attributes: Mapping[str, object],
    constraints: Sequence[float],
) -> FrozenTrial:
    """Make a record's trial as a sampler shall see it.

    Pending (RUNNING) and unscored (FAIL) ones have no values.
    """
    state = TrialState.RUNNING
    if record.result is not None:
        state = TrialState.COMPLETE if record.values else TrialState.FAIL
    params = {
        name: encode(hyperparameters[name], value)
        for name, value in record.proposal.config.items()
        if name in distributions
    }
    return create_trial(
        state=state,
        values=record.values or None,
        params=params,
        distributions={name: distributions[name] for name in params},
        system_attrs=dict(attributes),
        constraints={str(index): value for index, value in enumerate(constraints)},
    )
