"""A study mirrored into a storage of Optuna while it runs.

Whatever reads Optuna's storages shows it then, `optuna-dashboard` for one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from autorl.core.masking import masked
from autorl.core.plain_text import shown
from autorl.core.plain_values import json_value
from autorl.core.quiet import quieted
from autorl.core.types import InputError, Outcome, ProposalId
from autorl.integrations.trackers.contract import Tracker, check_text, summarise
from autorl.landscapes.export import optuna_distribution, optuna_value
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.evaluation import Objective
from autorl.study.callbacks import ProposalInfo, RunInfo, ScoreInfo, StudyInfo

if TYPE_CHECKING:
    import optuna

    from autorl.study.results.result import Result

_WRITE_SECONDS = 1.0
"""Between writes of learning curves: a value takes a transaction of some milliseconds."""

_IDENTITY = "autorl_study"
_PROPOSAL = "proposal"
_PROPOSALS = "proposals"
_DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")


class OptunaStorage(Tracker):
    """Mirrors a study into an Optuna study.

    A configuration that is proposed is a trial, with all proposals that train it on. Its value is
    the score of the last of them over its seeds, its intermediate values are the first objective
    over the seeds that have reported. `COMPLETE` is a trial of full length, `PRUNED` one that ended
    before or whose score is provisional, `FAIL` one whose seeds all failed. A trial that may go on
    runs until that is decided: by a stopping rule at once, without one when the search is over.
    A trial that may be given more seeds and another score (`racing`, `adaptive`) runs as long.

    User attributes of a trial: `proposal` (that introduced the configuration), `proposals`,
    `origin`, `steps`, `continues`, `seeds`, `failure`; of the study: the incumbent with its scores
    on tuning and test seeds. A study that is taken up again goes on in the same Optuna study.

    Args:
        storage: URL of a database (`sqlite:///x.db`), of a Redis server, or the path of a journal
            file; or a storage of Optuna.
        study: name of the Optuna study; by default the study's own.

    Raises:
        InputError: no storage can be opened there.
    """

    from_the_start: ClassVar[bool] = True

    def __init__(
        self, storage: str | optuna.storages.BaseStorage, study: str | None = None
    ) -> None:
        check_text(study, "study")
        self._storage = _open_storage(storage)
        self._name = study

    # Every method brings trials to where the study says they are, and may be called again: after a
    # kill it is not known what was written.

    def on_study(self, study: StudyInfo) -> None:
        """Open the Optuna study, and read the trials of earlier sessions.

        Raises:
            InputError: the storage has another study of this name.
        """
        self._info = study
        self._objectives = [Objective(**item) for item in study.objectives]
        items = study.space.hyperparameters
        self._distributions = {key: optuna_distribution(item) for key, item in items.items()}
        self._aggregate = parse_aggregate(study.aggregate)
        name = self._name or study.name
        self._study = self._opened(name)
        self._id = self._storage.get_study_id_from_name(name)
        # By proposal: its trial's number and values, and the first proposal of its trial.
        self._trials: dict[ProposalId, int] = {}
        self._ended: dict[ProposalId, list[float] | None] = {}
        self._trial_of: dict[ProposalId, ProposalId] = {}
        self._open: dict[ProposalId, ProposalId] = {}
        self._proposals: dict[ProposalId, ProposalInfo] = {}
        self._chains: dict[ProposalId, list[ProposalId]] = {}
        self._curves: dict[ProposalId, dict[int, dict[int, float]]] = {}
        self._unwritten: dict[ProposalId, set[int]] = {}
        self._held: dict[ProposalId, ScoreInfo] = {}
        self._later: dict[ProposalId, ScoreInfo] = {}
        self._written = time.monotonic()
        for trial in self._storage.get_all_trials(self._id, deepcopy=False):
            first = trial.user_attrs.get(_PROPOSAL)
            if first is None:  # somebody else's: a dashboard can add trials
                continue
            self._trials[first] = trial._trial_id
            for number in (first, *trial.user_attrs.get(_PROPOSALS, ())):
                self._trial_of[number] = first
            if trial.state.is_finished():
                self._ended[first] = trial.values

    def _opened(self, name: str) -> optuna.Study:
        import optuna

        named = optuna.study.StudyDirection
        directions = [named[objective.of_score.upper()] for objective in self._objectives]
        with quieted("optuna"):
            study = optuna.create_study(
                storage=self._storage, study_name=name, directions=directions, load_if_exists=True
            )
            identity = study.user_attrs.get(_IDENTITY)
            # A study without trials: the process was killed before it had named the study.
            if identity is None and not study.get_trials(deepcopy=False):
                study.set_user_attr(_IDENTITY, self._info.id)
                names = [objective.metric for objective in self._objectives]
                if len(set(names)) < len(names):
                    names = [objective.label for objective in self._objectives]
                study.set_metric_names(names)
            elif identity != self._info.id:
                raise InputError(
                    f"the Optuna study {name!r} is of something else: name another one "
                    "(`study: NAME` beside `storage`), or delete it",
                    key="callbacks.study",
                )
        return study

    def on_proposal(self, study: StudyInfo, proposal: ProposalInfo) -> None:
        """Begin a proposal's trial, or go on with that of its run."""
        number = proposal.number
        self._proposals[number] = proposal
        before = {} if proposal.parent is None else self._curves.get(proposal.parent, {})
        # A run that goes on has one curve from its first step.
        self._curves[number] = {seed: dict(points) for seed, points in before.items()}
        if proposal.parent is None and self._info.stop is not None:
            # The stopping rule has continued none of these.
            for held in [held for held, score in self._held.items() if score.final]:
                self._end(held)
        first = self._trial_of.get(number)
        if first is None:
            opened = self._open.get(proposal.run)
            # One that has ended after all goes on as another: Optuna opens none again.
            first = number if opened is None or opened in self._ended else opened
            self._trial_of[number] = first
        self._open[proposal.run] = first
        self._chains.setdefault(first, []).append(number)
        self._held.pop(first, None)
        if first not in self._trials:
            self._trials[first] = self._created(proposal)

    def _created(self, proposal: ProposalInfo) -> int:
        from optuna.trial import TrialState, create_trial

        items = self._info.space.hyperparameters
        names = [name for name in proposal.config if name in items]
        steps = {step for points in self._curves[proposal.number].values() for step in points}
        attributes = {
            _PROPOSAL: proposal.number,
            "origin": proposal.origin,
            "steps": proposal.until,
            "continues": proposal.parent,
            "provisional": proposal.provisional or None,
        }
        template = create_trial(
            state=TrialState.RUNNING,
            params={name: optuna_value(items[name], proposal.config) for name in names},
            distributions={name: self._distributions[name] for name in names},
            user_attrs={key: value for key, value in attributes.items() if value is not None},
            intermediate_values={
                step: self._combined(proposal.number, step) for step in sorted(steps)
            },
        )
        return self._storage.create_new_trial(self._id, template)

    def on_report(
        self, study: StudyInfo, run: RunInfo, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Take a point of a learning curve."""
        self._measured(run, {step: metrics})

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Take the learning curve of a segment."""
        self._measured(run, {report.step: report.metrics for report in outcome.reports})

    def _measured(self, run: RunInfo, curve: Mapping[int, Mapping[str, float]]) -> None:
        """Take points of one seed, and write some now and then."""
        if run.role != "tuning":
            return
        points = self._curves[run.proposal].setdefault(run.seed, {})
        for step, metrics in curve.items():
            value = metrics.get(self._objectives[0].metric)  # none of what a run costs
            if value is not None and points.get(step) != value:
                points[step] = value
                self._unwritten.setdefault(run.proposal, set()).add(step)
        if time.monotonic() - self._written >= _WRITE_SECONDS:
            self._write(run.proposal)
            self._written = time.monotonic()

    def _write(self, number: ProposalId) -> None:
        steps = self._unwritten.pop(number, set())
        first = self._trial_of[number]
        if first in self._ended:
            return
        for step in sorted(steps):
            value = self._combined(number, step)
            self._storage.set_trial_intermediate_value(self._trials[first], step, value)

    def _combined(self, number: ProposalId, step: int) -> float:
        """Aggregate over the seeds that have reported a step, as scores are."""
        sign = self._objectives[0].of_metric
        curves = self._curves[number]
        values = [points[step] for points in curves.values() if step in points]
        if not np.isfinite(values).all():
            return float("nan")
        return sign * float(self._aggregate(sign * np.array(values, dtype=float)))

    def on_score(self, study: StudyInfo, score: ScoreInfo) -> None:
        """Take a proposal's score, and end its trial if it is final."""
        number = score.proposal
        first = self._trial_of[number]
        if number != self._chains[first][-1]:
            return  # it has gone on: what counts is the score of where it is now
        if first in self._ended:
            self._later[first] = score
            return
        self._write(number)
        self._held[first] = score
        at_end = self._proposals[number].until >= self._info.steps
        if score.final and (at_end or score.failure is not None):
            self._end(first)

    def on_search_end(self, study: StudyInfo) -> None:
        """End every trial that has a score.

        A search that was over may be given more budget and more seeds: scores that trials were
        given after they had ended are noted.
        """
        for first in list(self._held):
            self._end(first)
        again = dict(self._study.user_attrs.get("scored_again", {}))
        for first, score in self._later.items():
            values = None if score.failure is not None else list(score.values)
            if values != self._ended[first]:
                again[str(first)] = values
        if again:
            self._set("scored_again", again)

    def _end(self, first: ProposalId) -> None:
        from optuna.trial import TrialState

        score = self._held.pop(first)
        trial = self._trials[first]
        proposal = self._proposals[score.proposal]
        attributes = {
            _PROPOSALS: self._chains[first],
            "steps": proposal.until,
            "seeds": list(score.seeds),
        }
        if score.failure is not None:
            said = f"{score.failure}: {score.message}" if score.message else str(score.failure)
            attributes["failure"] = said
        for name, value in attributes.items():
            self._storage.set_trial_user_attr(trial, name, value)
        for place, violation in enumerate(score.constraints):
            # As `Trial.set_constraint` of Optuna names it.
            self._storage.set_trial_system_attr(trial, f"constraints:{place}", violation)
        values = None if score.failure is not None else list(score.values)
        if values is None:
            state = TrialState.FAIL
        elif proposal.until >= self._info.steps and not proposal.provisional:
            state = TrialState.COMPLETE
        else:
            state = TrialState.PRUNED
        # Last: Optuna changes no trial that has ended.
        self._storage.set_trial_state_values(trial, state, values)
        self._ended[first] = values

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Write the summary as attributes of the Optuna study."""
        summary = summarise(result)
        attributes = {**summary.numbers, **summary.facts, "caveats": list(result.caveats)}
        for name, value in attributes.items():
            self._set(name, json_value(value))

    def _set(self, name: str, value: object) -> None:
        if self._study.user_attrs.get(name) != value:
            self._study.set_user_attr(name, value)


def _open_storage(storage: str | optuna.storages.BaseStorage) -> optuna.storages.BaseStorage:
    """Open a storage of Optuna.

    Args:
        storage: a URL, the path of a journal file, or an open one.

    Raises:
        InputError: it is none of these, or cannot be opened.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalRedisBackend
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(storage, optuna.storages.BaseStorage):
        return storage
    if not isinstance(storage, str) or not storage:
        raise InputError(
            f"expected a URL such as sqlite:///x.db, or the path of a journal file, got "
            f"{shown(storage)}",
            key="callbacks.storage",
        )
    if storage.endswith(_DATABASE_ENDINGS) and "://" not in storage:
        raise InputError(
            f"expected a URL: write sqlite:///{storage}, or a path that ends in .journal for a "
            "journal file",
            key="callbacks.storage",
        )
    try:
        with quieted("optuna"):  # what it remarks is not ours to print
            if storage.startswith("redis"):
                return JournalStorage(JournalRedisBackend(storage))
            if "://" not in storage:
                parent = Path(storage).parent
                if not parent.is_dir():
                    raise InputError(f"there is no folder {parent}", key="callbacks.storage")
                return JournalStorage(JournalFileBackend(storage))
            # A dashboard reads meanwhile: SQLite's own limit of 5 s is short on a busy machine.
            sqlite = storage.startswith("sqlite")
            options = {"connect_args": {"timeout": 60}} if sqlite else None
            return RDBStorage(storage, engine_kwargs=options)
    except (SQLAlchemyError, ImportError, OSError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0]
        # An address may hold a password.
        message = masked(f"Optuna cannot open {storage}: {said}")
        raise InputError(message, key="callbacks.storage") from None
