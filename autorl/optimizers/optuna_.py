"""Search by any sampler of Optuna or OptunaHub, named as `module:Class`: `optuna`.

optimizer:
  name: optuna
  sampler: optuna.samplers:NSGAIIISampler
  kwargs: {population_size: 20}

Each ask makes an Optuna study of the history, in memory, and a sampler, seeded by the proposal's
random stream. It has one trial per proposal: complete with what was really proposed, failed, or
running. The sampler fills in one more trial along the conditions of the space, and all is thrown
away, so `ask` leaves no trace. A sampler therefore knows what it reads from trials, and nothing
that it keeps in itself. Numbers that it attaches to the trial or the study (the generations of
NSGA-II and NSGA-III, the parents of each) travel in `Proposal.meta` and come back. Texts do not:
CMA-ES of Optuna attaches its state as a pickle, which a study never opens (docs/security.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import printable, shortened
from autorl.core.plain_values import plain
from autorl.core.plugins import named_class
from autorl.core.quiet import quieted
from autorl.core.types import Config, Failed, InputError, Proposal, ProposalId
from autorl.landscapes.export import optuna_distribution
from autorl.optimizers.base import BaseOptimizer, Problem, Record, option
from autorl.space import Hyperparameter

if TYPE_CHECKING:
    import numpy as np
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

DRAFTS = 6  # to get one that is valid and was not proposed before
_STARTUPS = ("n_startup_trials", "population_size")
"""Arguments by which samplers are told how many trials are drawn at random first."""


@dataclass(frozen=True)
class OptunaOptions:
    sampler: str = option("optuna.samplers:TPESampler", "of Optuna or OptunaHub, as module:Class")
    kwargs: Mapping[str, Any] | None = option(None, "arguments of the sampler, without its seed")
    path: str | None = option(None, "folder of the sampler's module; a study gives its own")


class Optuna(BaseOptimizer[OptunaOptions]):
    """A sampler of Optuna or OptunaHub."""

    Options = OptunaOptions
    search_kind = "search"
    multi_objective = True
    learns = True
    reads_priors = False

    def __init__(self, problem: Problem, options: OptunaOptions) -> None:
        super().__init__(problem, options)
        key = "optimizer.sampler"
        of = {"base": "optuna.samplers:BaseSampler", "example": "optuna.samplers:TPESampler"}
        folders = [] if options.path is None else [options.path]
        self._class = named_class(options.sampler, key, **of, folders=folders)
        self._parameters = inspect.signature(self._class.__init__).parameters
        if not any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in self._parameters.values()):
            message = f"{options.sampler} takes no `seed`, so nothing could be drawn again"
            raise InputError(message, key=key)
        self._arguments: dict[str, Any] = plain(options.kwargs or {})
        self._trials: dict[ProposalId, tuple[Record, FrozenTrial]] = {}  # a cache
        self._distributions = {
            name: optuna_distribution(item, by_place=True)
            for name, item in problem.space.hyperparameters.items()
            if item.type != "constant"
        }
        try:
            self._draft(0)
        except Exception as error:
            text = shortened(printable(str(error), keep_lines=False), 300)
            message = f"{options.sampler} cannot search this: {type(error).__name__}: {text}"
            raise InputError(message, key=key) from error

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the sampler's own start-up is over."""
        defaults = {name: item.default for name, item in self._parameters.items()}
        arguments = {**defaults, **self._arguments}
        asked = [arguments[name] for name in _STARTUPS if isinstance(arguments.get(name), int)]
        return scored >= max(asked, default=1)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        scored = sum(bool(record.values) for record in self.history)
        informed = self.modelled(len(self.history), scored)
        name = self._class.__name__ if informed else f"{self._class.__name__}, start-up"
        for _ in range(DRAFTS):
            config, meta = self._draft(int(rng.integers(2**31)))
            if space.is_valid(config) and config not in self.history.configs:
                return self._propose(config, name, meta, informed=informed)
        config, how = self._repaired(config, rng)
        return self._propose(config, f"{name}, {how}", meta, informed=informed)

    def _draft(self, seed: int) -> tuple[Config, dict[str, Any]]:
        """Let a new sampler fill in a trial, perhaps an invalid one.

        Beside it stand the numbers that the sampler attached.
        """
        import optuna

        space = self.problem.space
        config: dict[str, Any] = {}
        with quieted("optuna"):
            sampler = self._sampler(seed)
            directions = [optuna.study.StudyDirection.MAXIMIZE] * self.problem.n_objectives
            study = optuna.create_study(sampler=sampler, directions=directions)
            for record in self.history:
                study.add_trial(self._trial(record, sampler))
                for key, value in plain(record.proposal.meta.get("study", {})).items():
                    study._storage.set_study_system_attr(study._study_id, key, value)
            before = study._storage.get_study_system_attrs(study._study_id)
            trial = study.ask()
            for name in space.names:
                item = space.hyperparameters[name]
                if name in space.active(config):
                    config[name] = item.default
                    if item.type != "constant":
                        config[name] = decode(item, trial._suggest(name, self._distributions[name]))
            after = study._storage.get_study_system_attrs(study._study_id)
            attached = study._storage.get_trial(trial._trial_id).system_attrs
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        meta = {"trial": _numbers(attached), "study": _numbers(changed)}
        return Config(config), {key: value for key, value in meta.items() if value}

    def _sampler(self, seed: int) -> BaseSampler:
        arguments: dict[str, Any] = {"seed": seed}
        if "constraints_func" in self._parameters and any(
            record.constraints for record in self.history
        ):
            arguments["constraints_func"] = lambda trial: [*trial.constraints.values()]
        sampler: BaseSampler = self._class(**arguments, **self._arguments)
        return sampler

    def _trial(self, record: Record, sampler: BaseSampler) -> FrozenTrial:
        """Return the trial of a proposal."""
        from optuna.samplers import BaseGASampler
        from optuna.trial import TrialState, create_trial

        made_of, trial = self._trials.get(record.id, (None, None))
        if trial is not None and made_of is record:
            return trial
        attributes = plain(record.proposal.meta.get("trial", {}))
        if not attributes and isinstance(sampler, BaseGASampler):
            # What no sampler drafted, such as the default, is of the first generation.
            attributes = {sampler._get_generation_key(): 0}
        if record.constraints:
            attributes["constraints"] = list(record.constraints)
        items = self.problem.space.hyperparameters
        config = record.proposal.config
        # In the order of drafts, whichever that of a stored configuration: samplers look at it.
        parameters = {
            name: encode(items[name], config[name])
            for name in self._distributions
            if name in config
        }
        state = TrialState.RUNNING
        if record.result is not None:
            scored = record.values and not isinstance(record.result, Failed)
            state = TrialState.COMPLETE if scored else TrialState.FAIL
        trial = create_trial(
            state=state,
            values=record.values if state is TrialState.COMPLETE else None,
            params=parameters,
            distributions={name: self._distributions[name] for name in parameters},
            system_attrs=attributes,
        )
        self._trials[record.id] = (record, trial)
        return trial


def _numbers(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is neither a number nor a list of numbers."""

    def is_plain(value: object) -> bool:
        parts = value if isinstance(value, list | tuple) else [value]
        return all(isinstance(part, int | float) for part in parts)

    return {key: value for key, value in attributes.items() if is_plain(value)}


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
    return hyperparameter.from_unit(hyperparameter.to_unit(value))
