"""Callbacks: what others are told of a study while it runs.

Trackers (TensorBoard, MLflow, W&B) and programs of a user's own subclass `Callback`. They are told
what is in the log already, in the thread that drives the study, and can change nothing of it.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from autorl.core.masking import masked
from autorl.core.plain_text import did_you_mean, printable, shown
from autorl.core.plain_values import plain
from autorl.core.plugins import Plugins
from autorl.core.types import (
    AutorlError,
    Config,
    Failed,
    FrozenMap,
    InputError,
    Outcome,
    ProposalId,
    Report,
    Scored,
    SeedRole,
    Segment,
    SegmentId,
    Status,
)
from autorl.space import Space
from autorl.store.events import (
    CandidatesFrozen,
    ModelsNamed,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SegmentEnded,
    StudyEvent,
    StudyFinished,
)
from autorl.study.spec import Spec

if TYPE_CHECKING:
    from autorl.study.lineage import Lineage
    from autorl.study.results.result import Result


@dataclass(frozen=True)
class StudyInfo:
    """Which study a callback is told of.

    Attributes:
        name: of the study file; `study` where it has none.
        folder: that keeps it; None in memory.
        trainers: their names, one unless `algorithms` are searched.
        environment: its id; None where the trainer brings it.
        optimizer: its name.
        objectives: what is optimized, each with `metric`, `reduce` and `direction`.
        steps: of a full run.
        seed: of the study.
        space: its search space.
        aggregate: of a proposal's seeds, e.g. "mean".
        stop: name of its stopping rule, which has a run continued before it begins another; None
            without.
        id: what no other study has, the same whenever this one is taken up again; in memory it is
            drawn anew.
    """

    name: str
    folder: Path | None
    trainers: tuple[str, ...]
    environment: str | None
    optimizer: str
    objectives: tuple[Mapping[str, str], ...]
    steps: int
    seed: int
    space: Space
    aggregate: str
    stop: str | None
    id: str


@dataclass(frozen=True)
class ProposalInfo:
    """A configuration that is to be trained to a step.

    Attributes:
        number: of the proposal.
        until: the step.
        parent: the proposal whose agent is trained on; None: from scratch.
        run: the first proposal of the run: of the chain that trains on with one configuration.
        origin: why, for people.
        provisional: its score is no ground to choose it by.
    """

    number: ProposalId
    config: Config
    until: int
    parent: ProposalId | None
    run: ProposalId
    origin: str
    provisional: bool


@dataclass(frozen=True)
class ScoreInfo:
    """A proposal's score over its tuning seeds.

    Attributes:
        proposal: its number.
        values: one for each objective, in its own direction: what the study ranks by. If every
            seed failed, the penalty, or nothing.
        seeds: the tuning seeds they are of.
        constraints: by how much each is broken; one of 0 or less holds.
        failure: how it failed, if every seed did, or None.
        message: of the failure.
        final: False where more seeds may bring another score before the search is over.
    """

    proposal: ProposalId
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    constraints: tuple[float, ...]
    failure: Status | None
    message: str
    final: bool


@dataclass(frozen=True)
class RunInfo:
    """A run, and the segment of it that is told of.

    Attributes:
        run: its number, that of `runs.run_id` in the tables: a tracker's run of this number is one
            learning curve, whatever segments it was trained in.
        proposal: whose segment it is.
        config: as the trainer is given it.
        seed, role: of the run.
        start, until: steps the segment is trained from and to.
        parent_run: the run whose agent it began with; None from scratch.
        environment: its name, or that of the task.
    """

    run: int
    proposal: ProposalId
    config: Config
    seed: int
    role: SeedRole
    start: int
    until: int
    parent_run: int | None
    environment: str | None = None


class Callback:
    """Is told what happens in a study: override what you need.

    Everything is told once it is recorded, and only of this session: a study that is taken up again
    does not repeat what it told before. Arguments cannot be changed. Methods are called one at a
    time in the thread that drives the study, which waits for them: be quick, and call nothing of
    the study. An exception is printed, the callback is told nothing more in this
    session, and the study goes on; the table is the same with any callbacks or none.

    Attributes:
        from_the_start: a callback that mirrors a whole study is told again, as a session begins,
            what earlier ones have recorded: proposals, outcomes and scores.
    """

    from_the_start: ClassVar[bool] = False

    @classmethod
    def check(cls, **arguments: Any) -> None:
        """Check the arguments of a study file, before the study begins.

        Raises:
            InputError: this class cannot work with them.
        """

    def on_study(self, study: StudyInfo) -> None:
        """Take note of the study, before anything is told of it.

        Raises:
            InputError: this callback cannot be told of such a study. It ends the call that has
                given the callback; nothing was trained by it.
        """

    def on_proposal(self, study: StudyInfo, proposal: ProposalInfo) -> None:
        """Take note of a proposal, before it is trained."""

    def on_report(
        self, study: StudyInfo, run: RunInfo, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Take note of an evaluation or update of a run.

        A step may come again where a worker was lost and the segment is trained once more.
        """

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Take note of how a segment ended.

        `outcome.status`, `reached`, `cost`, `message`, and `reports`, every evaluation of it.
        """

    def on_score(self, study: StudyInfo, score: ScoreInfo) -> None:
        """Take note of a proposal's score, once its seeds are in.

        It comes again where `score.final` is False and the proposal was given more seeds.
        """

    def on_search_end(self, study: StudyInfo) -> None:
        """Take note that the search is over: every score is final.

        Test runs follow. A study that is given more budget searches again.
        """

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Take note of the result, at the end of a session."""


_TRACKERS = "autorl.integrations.trackers"
SHORT_NAMES = {
    "tensorboard": f"{_TRACKERS}.tensorboard:TensorBoardTracker",
    "mlflow": f"{_TRACKERS}.mlflow:MLflowTracker",
    "wandb": f"{_TRACKERS}.wandb:WandbTracker",
    "optuna": "autorl.integrations.optuna_storage:OptunaStorage",
}
"""Callbacks of this package by their names in study files.

They are texts, for the classes lie on a higher floor.
"""

_PLUGINS = Plugins(
    "autorl.callbacks",
    Callback,
    ("callback", "autorl.Callback"),
    key="callbacks",
    reserved=lambda name: name in SHORT_NAMES,
    flaw=lambda found: "",
)


CallbackEntry: TypeAlias = Callback | str | Mapping[str, Any]
"""An object, or what a study file says: `module:Class`, or that with its arguments."""


def check_callbacks(spec: Spec) -> None:
    """Check the classes that a study file names, without making any.

    Raises:
        InputError: one cannot be imported, is no `Callback`, does not take its arguments, or cannot
            work with them.
    """
    for number, entry in enumerate(spec.callbacks or ()):
        _named(entry, number, spec)


def make_callbacks(spec: Spec, given: Sequence[CallbackEntry] = ()) -> list[Callback]:
    """Make the callbacks of a study file, and those given."""
    made: list[Callback] = []
    for number, entry in enumerate([*(spec.callbacks or ()), *given]):
        if isinstance(entry, Callback):
            made.append(entry)
        else:
            made += [kind(**arguments) for kind, arguments in _named(entry, number, spec)]
    return made


def _named(entry: object, number: int, spec: Spec) -> list[tuple[type[Callback], dict[str, Any]]]:
    if isinstance(entry, type) and issubclass(entry, Callback):
        raise InputError(f"expected an object, got the class {entry.__name__}", key="callbacks")
    named: list[tuple[type[Callback], dict[str, Any]]] = []
    for name, arguments in entry.items() if isinstance(entry, Mapping) else [(entry, {})]:
        full_name = SHORT_NAMES.get(name, name) if isinstance(name, str) else ""
        kind = _PLUGINS.find(full_name, spec.path)
        if kind is None or not isinstance(arguments, Mapping):
            hint = did_you_mean(name, SHORT_NAMES)
            raise InputError(
                'expected "module:Class" or {"module:Class": {arguments}} (from Python also an '
                "object of a subclass of autorl.Callback), or in place of module:Class a name "
                f"among {', '.join(SHORT_NAMES)}; got {shown(entry)}{hint}",
                key=f"callbacks[{number}]",
            )
        signature = inspect.signature(kind)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            allowed = ", ".join(signature.parameters) or "none"
            message = f"{kind.__name__}: {error}; arguments: {allowed}"
            raise InputError(message, key="callbacks") from None
        kind.check(**arguments)
        named.append((kind, plain(dict(arguments))))
    return named


class Listeners:
    """The callbacks of one study.

    Args:
        callbacks: are told in this order.
        spec: the study file.
        folder: of the study; None in memory.
        lineage: returns that of the study as it is now: seeds that are added make another.
        identity: of the study; drawn where it is None.

    Raises:
        InputError: one of them cannot be told of this study.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        spec: Spec,
        folder: Path | None,
        lineage: Callable[[], Lineage],
        identity: str | None = None,
    ) -> None:
        self._callbacks = list(callbacks)
        self._lineage = lineage
        self._segments: dict[str, Segment] = {}
        self._spec = spec
        self._search_over = False
        self._study = StudyInfo(
            name=spec.name,
            folder=folder,
            trainers=tuple(trainer.name for trainer in spec.trainers.values()),
            environment=spec.task_names,
            optimizer=spec.optimizer.name,
            objectives=tuple(
                FrozenMap(dataclasses.asdict(objective)) for objective in spec.objectives()
            ),
            steps=spec.fidelity.steps,
            seed=spec.seed,
            space=spec.search_space,
            aggregate=spec.evaluation.aggregate,
            stop=spec.optimizer.stop,
            id=identity or uuid.uuid4().hex,
        )
        self._tell(lambda callback: callback.on_study(self._study), refusing=True)

    def begun(self, segment: Segment) -> None:
        """Take note of a segment that is handed out."""
        if self._callbacks:
            self._segments[segment.id] = segment

    def repeat(self, events: Iterable[StudyEvent]) -> None:
        """Tell those that mirror a study what was recorded before."""
        mirrors = [callback for callback in self._callbacks if callback.from_the_start]
        if not mirrors:
            return
        everyone = self._callbacks
        self._callbacks = list(mirrors)
        for event in events:
            self.recorded(event)
        remaining = self._callbacks  # without the mirrors that have raised
        self._callbacks = [it for it in everyone if it not in mirrors or it in remaining]

    def recorded(self, event: StudyEvent) -> None:
        """Tell of an event that is in the log."""
        if not self._callbacks:
            return
        match event:
            case ProposalMade():
                self._search_over = False
                number = event.proposed.id
                made = event.proposed.proposal
                proposal = ProposalInfo(
                    number=number,
                    config=made.config,
                    until=made.until,
                    parent=made.resume_from,
                    run=self._lineage().root(number),
                    origin=made.origin,
                    provisional=made.provisional,
                )
                self._tell(lambda callback: callback.on_proposal(self._study, proposal))
            case SegmentEnded(place=place):
                self._segments.pop(event.segment, None)
                run = self._run(place.segment, place.role, place.from_step)
                outcome = _unchangeable(event.outcome)
                self._tell(lambda callback: callback.on_outcome(self._study, run, outcome))
            case ProposalScored(scored=result) | ProposalFailed(failed=result):
                failed = result if isinstance(result, Failed) else None
                score = ScoreInfo(
                    proposal=result.proposal,
                    values=event.score,
                    seeds=event.seeds,
                    constraints=result.constraints if isinstance(result, Scored) else (),
                    failure=failed.kind if failed else None,
                    message=failed.message if failed else "",
                    final=self._spec.evaluation.seeds == "fixed",
                )
                self._tell(lambda callback: callback.on_score(self._study, score))
            case CandidatesFrozen() | ModelsNamed() | StudyFinished() if not self._search_over:
                self._search_over = True
                self._tell(lambda callback: callback.on_search_end(self._study))

    def reported(self, report: Report) -> None:
        """Tell of an evaluation."""
        segment = self._segments.get(report.segment)
        if segment is None:
            return
        run = self._run(segment.id, segment.role, segment.start)
        metrics = FrozenMap(report.metrics)
        self._tell(lambda callback: callback.on_report(self._study, run, report.step, metrics))

    def finished(self, result: Result) -> None:
        """Tell of the result."""
        self._tell(lambda callback: callback.on_result(self._study, result))

    def _run(self, segment: SegmentId, role: SeedRole, start: int) -> RunInfo:
        lineage = self._lineage()
        proposal = lineage[segment.proposal]
        run, parent = lineage.run_ids(segment.proposal, role, segment.seed)
        _, training_seed = self._spec.plan.parts(segment.seed)
        return RunInfo(
            run=run,
            proposal=segment.proposal,
            config=self._spec.trainer_for(proposal.config)[1],
            seed=training_seed,
            role=role,
            start=start,
            until=proposal.until if segment.end is None else segment.end,
            parent_run=parent,
            environment=self._spec.task_name(segment.seed),
        )

    def _tell(self, call: Callable[[Callback], None], *, refusing: bool = False) -> None:
        for callback in list(self._callbacks):
            try:
                call(callback)
            except Exception as error:  # user code: no reason to end the study
                if refusing and isinstance(error, InputError):
                    raise
                self._callbacks.remove(callback)
                kind = type(callback)
                # MLflow's errors quote the address of its server, password and all.
                said = masked(f"{type(error).__name__}: {error}").strip().partition("\n")[0]
                # Only for a fault in the user's own code, not of a server or of a call here.
                if not (isinstance(error, AutorlError) or kind.__module__.startswith("autorl.")):
                    sys.stderr.write(masked(traceback.format_exc()))
                sys.stderr.write(
                    f"autorl: callback {kind.__name__} raised {printable(said, keep_lines=False)}; "
                    "it is told nothing more; the study goes on\n"
                )


def _unchangeable(outcome: Outcome) -> Outcome:
    """Return an outcome that shares nothing changeable with the study."""
    reports = tuple(
        dataclasses.replace(report, metrics=FrozenMap(report.metrics)) for report in outcome.reports
    )
    return dataclasses.replace(
        outcome, reports=reports, cost=FrozenMap(outcome.cost), applied=FrozenMap(outcome.applied)
    )
