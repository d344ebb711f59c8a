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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.masking import masked
from autorl.plain_text import did_you_mean, shown
from autorl.plain_values import plain
from autorl.plugins import Plugins
from autorl.spec import Spec
from autorl.store.events import ProposalMade, SegmentEnded, StudyEvent
from autorl.types import (
    Config,
    FrozenMap,
    InputError,
    Outcome,
    ProposalId,
    Report,
    SeedRole,
    Segment,
)

if TYPE_CHECKING:
    from autorl.study.lineage import Lineage
    from autorl.study.result import Result


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
    id: str


@dataclass(frozen=True)
class ProposalInfo:
    """A configuration that is to be trained to a step.

    Attributes:
        number: of the proposal.
        until: the step.
        parent: the proposal whose agent is trained on; None: from scratch.
        origin: why, for people.
    """

    number: ProposalId
    config: Config
    until: int
    parent: ProposalId | None
    origin: str


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
    """

    run: int
    proposal: ProposalId
    config: Config
    seed: int
    role: SeedRole
    start: int
    until: int
    parent_run: int | None


class Callback:
    """Is told what happens in a study: override what you need.

    Everything is told once it is recorded, and only of this session: a study that is taken up again
    does not repeat what it told before. Arguments cannot be changed. Methods are called one at a
    time in the thread that drives the study, which waits for them: be quick, and call nothing of
    the study. An exception is printed with its traceback, the callback is told nothing more in this
    session, and the study goes on; the table is the same with any callbacks or none.
    """

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
        """Take note of an evaluation of a run that is being trained.

        A step may come again where a worker was lost and the segment is trained once more.
        """

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Take note of how a segment ended.

        `outcome.status`, `reached`, `cost`, `message`, and `reports`, every evaluation of it.
        """

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Take note of the result, at the end of a session."""


_TRACKERS = "autorl.integrations.trackers"
SHORT_NAMES = {
    "tensorboard": f"{_TRACKERS}.tensorboard:TensorBoardTracker",
    "mlflow": f"{_TRACKERS}.mlflow:MLflowTracker",
    "wandb": f"{_TRACKERS}.wandb:WandbTracker",
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


def check_callbacks(spec: Spec) -> None:
    """Check the classes that a study file names, without making any.

    Raises:
        InputError: one cannot be imported, is no `Callback`, does not take its arguments, or cannot
            work with them.
    """
    for kind, arguments in _named(spec):
        signature = inspect.signature(kind)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            allowed = ", ".join(signature.parameters) or "none"
            message = f"{kind.__name__}: {error}; arguments: {allowed}"
            raise InputError(message, key="callbacks") from None
        kind.check(**arguments)


def make_callbacks(spec: Spec) -> list[Callback]:
    """Make the callbacks that a study file names."""
    return [kind(**arguments) for kind, arguments in _named(spec)]


def _named(spec: Spec) -> list[tuple[type[Callback], dict[str, Any]]]:
    named: list[tuple[type[Callback], dict[str, Any]]] = []
    for number, entry in enumerate(spec.callbacks or ()):
        pairs = entry.items() if isinstance(entry, Mapping) else [(entry, {})]
        for name, arguments in pairs:
            full_name = SHORT_NAMES.get(name, name) if isinstance(name, str) else ""
            kind = _PLUGINS.find(full_name, spec.path)
            if kind is None or not isinstance(arguments, Mapping):
                hint = did_you_mean(name, SHORT_NAMES)
                raise InputError(
                    'expected "module:Class" or {"module:Class": {arguments}}, or in place of '
                    f"module:Class a name among {', '.join(SHORT_NAMES)}; got {shown(entry)}{hint}",
                    key=f"callbacks[{number}]",
                )
            named.append((kind, plain(dict(arguments))))
    return named


class Listeners:
    """The callbacks of one study.

    Args:
        callbacks: are told in this order.
        spec: the study file.
        folder: of the study; None in memory.
        lineage: returns that of the study as it is now.
        identity: of the study; drawn where it is None.

    Raises:
        InputError: one of them is no `Callback`, or cannot be told of this study.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        spec: Spec,
        folder: Path | None,
        lineage: Callable[[], Lineage],
        identity: str | None = None,
    ) -> None:
        _check(callbacks)
        self._callbacks = list(callbacks)
        self._lineage = lineage
        self._segments: dict[str, Segment] = {}
        self._study = StudyInfo(
            name=spec.name,
            folder=folder,
            trainers=tuple(trainer.name for trainer in spec.trainers.values()),
            environment=spec.environment.id,
            optimizer=spec.optimizer.name,
            objectives=tuple(
                FrozenMap(
                    metric=objective.metric,
                    reduce=objective.reduce,
                    direction=objective.direction,
                )
                for objective in spec.objectives()
            ),
            steps=spec.fidelity.steps,
            seed=spec.seed,
            id=identity or uuid.uuid4().hex,
        )
        self._tell(lambda callback: callback.on_study(self._study), refusing=True)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def begun(self, segment: Segment) -> None:
        """Take note of a segment that is handed out."""
        if self._callbacks:
            self._segments[segment.id] = segment

    def recorded(self, event: StudyEvent) -> None:
        """Tell of an event that is in the log."""
        if isinstance(event, ProposalMade):
            made = event.proposed.proposal
            proposal = ProposalInfo(
                event.proposed.id, made.config, made.until, made.resume_from, made.origin
            )
            self._tell(lambda callback: callback.on_proposal(self._study, proposal))
        elif isinstance(event, SegmentEnded) and event.segment in self._segments:
            run = self._run(self._segments.pop(event.segment))
            outcome = _unchangeable(event.outcome)
            self._tell(lambda callback: callback.on_outcome(self._study, run, outcome))

    def reported(self, report: Report) -> None:
        """Tell of an evaluation."""
        segment = self._segments.get(report.segment)
        if segment is None:
            return
        run = self._run(segment)
        metrics = FrozenMap(report.metrics)
        self._tell(lambda callback: callback.on_report(self._study, run, report.step, metrics))

    def finished(self, result: Result) -> None:
        """Tell of the result."""
        self._tell(lambda callback: callback.on_result(self._study, result))

    def _run(self, segment: Segment) -> RunInfo:
        lineage = self._lineage()
        run = lineage.run(segment.id.proposal)
        parent = None
        if run.parent_root is not None:
            parent = lineage.run_id(run.parent_root, segment.role, segment.seed)
        return RunInfo(
            run=lineage.run_id(run.root, segment.role, segment.seed),
            proposal=segment.id.proposal,
            config=segment.config,
            seed=segment.seed,
            role=segment.role,
            start=segment.start,
            until=segment.until,
            parent_run=parent,
        )

    def _tell(self, call: Callable[[Callback], None], *, refusing: bool = False) -> None:
        for callback in list(self._callbacks):
            try:
                call(callback)
            except Exception as error:  # user code: no reason to end the study
                if refusing and isinstance(error, InputError):
                    raise
                self._callbacks.remove(callback)
                name = type(callback).__name__
                # MLflow's errors quote the address of its server, password and all.
                sys.stderr.write(masked(traceback.format_exc()))
                sys.stderr.write(
                    f"autorl: callback {name} raised and is told nothing more; the study goes on\n"
                )


def _check(callbacks: Sequence[object]) -> None:
    """Raise `InputError` for an object that is no callback."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            kind = type(callback).__name__
            hint = ": give an instance" if isinstance(callback, type) else ""
            message = f"expected objects of subclasses of autorl.Callback, got {kind}{hint}"
            raise InputError(message, key="callbacks")


def _unchangeable(outcome: Outcome) -> Outcome:
    """Return an outcome that shares nothing changeable with the study."""
    reports = tuple(
        dataclasses.replace(report, metrics=FrozenMap(report.metrics)) for report in outcome.reports
    )
    return dataclasses.replace(
        outcome,
        reports=reports,
        cost=FrozenMap(outcome.cost),
        applied=FrozenMap(outcome.applied),
    )
