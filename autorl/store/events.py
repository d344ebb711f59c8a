"""The history of a study: one event for each thing that happens.

They are listed in the order of a study's life.

A study is nothing but these events. The driver appends each to the log before anything depends on
it (`Store.append`); the tables of the database and the state of a running study are folds over
them. `autorl.store.codec` writes them as JSON and reads them back.

A study begins, a session works on it, and a proposal is made. The segments of the proposal are
trained: a worker may be lost, and may report late, a segment ends. With all its seeds in, the
proposal is scored or has failed, and the best may get more seeds. Checkpoints nobody needs are
collected; one that is damaged is regained. When the search is over, the candidates are frozen and
tested, or models are named and trained to their step. A study may be given more runs or more test
seeds, and then it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from autorl.core.types import (
    Checkpoint,
    Config,
    Failed,
    FrozenMap,
    Outcome,
    ProposalId,
    Proposed,
    Scored,
    SearchEnd,
    SeedRole,
    SegmentId,
    Status,
)

Body: TypeAlias = Mapping[str, Any]
"""What the log holds of an event beside its kind: JSON, by name."""

Reduction: TypeAlias = tuple[str, int, float, float, int, float, float]
"""One row of `Judge.reductions`: the metric, the last step, and every reduction of its curve."""


# The texts of `kind` are stored: they are never changed, whatever the classes are called.


@dataclass(frozen=True)
class StudyBegun:
    """The study file the study began with: the first event.

    Attributes:
        text: of the study file, `***` for its secrets.
        sha256: of that text.
        space: hash of the search space.
    """

    kind: ClassVar[str] = "study_file"
    text: str
    sha256: str
    space: str


@dataclass(frozen=True)
class SessionBegun:
    """A process begins to work on the study.

    Attributes:
        facts: versions, hashes of the code that trains, the machine (`autorl.study.session`).
    """

    kind: ClassVar[str] = "session"
    facts: FrozenMap


@dataclass(frozen=True)
class ProposalMade:
    """The optimizer has proposed what to train next.

    For the baseline it is the driver that has.

    Attributes:
        proposed: what the optimizer observes.
        config_hash: of the configuration, under the search space.
        anew: the run it continues left no checkpoint: it is trained and charged from step 0.
        cost: predicted of one seed, by which outcomes are ordered (`autorl.study.open_proposals`).
    """

    kind: ClassVar[str] = "proposed"
    proposed: Proposed
    config_hash: str
    anew: bool = False
    cost: float = 0.0


@dataclass(frozen=True)
class ConfigEnqueued:
    """The caller of a `Tuner` wants a configuration to be tried.

    The next proposal that starts from scratch has it, and the origin `ENQUEUED`.
    """

    kind: ClassVar[str] = "enqueued"
    config: Config


ENQUEUED = "enqueued"
"""The origin of a proposal whose configuration was enqueued."""


@dataclass(frozen=True)
class SegmentLost:
    """A worker was ended by something outside the training.

    The segment is handed out again.

    Attributes:
        host: machine the worker was on; "" = the driver's own.
        preempted: the host is gone or was told to go: no sign against the segment.
    """

    kind: ClassVar[str] = "attempt"
    segment: SegmentId
    message: str
    host: str = ""
    preempted: bool = False


@dataclass(frozen=True)
class OutcomeIgnored:
    """An attempt at a segment reported that did not live.

    It did not any more, or never did. Nothing follows from it: it is a note for people. One attempt
    is noted once for each status.

    Attributes:
        segment: as the worker named it, any text.
        epoch, attempt: of its fence.
        status: of the outcome; `running` of a report.
    """

    kind: ClassVar[str] = "ignored"
    segment: str
    epoch: int
    attempt: int
    status: str


@dataclass(frozen=True)
class SegmentPlace:
    """The place of a segment among the runs of a study.

    Attributes:
        segment: the segment itself.
        run_id: number of the run, a function of its first proposal, role and seed.
        parent_run: number of the run it goes on from; None from scratch.
        start_step: nominal step the run starts at.
        parent: the segment whose checkpoint it continued; None from scratch.
        from_step: step that checkpoint had really reached.
    """

    segment: SegmentId
    run_id: int
    role: SeedRole
    algorithm: str
    environment: str | None
    parent_run: int | None
    start_step: int
    member: str | None
    parent: SegmentId | None
    from_step: int


@dataclass(frozen=True)
class SegmentEnded:
    """A segment was trained, or failed.

    Attributes:
        reductions: of the curve up to its end, for tables; None of a segment that failed.
    """

    kind: ClassVar[str] = "outcome"
    outcome: Outcome
    place: SegmentPlace
    reductions: tuple[Reduction, ...] | None = None

    @property
    def segment(self) -> SegmentId:
        """The segment that ended."""
        return self.place.segment


def without_checkpoint(event: SegmentEnded) -> SegmentEnded:
    """Return the event without its checkpoint, which may vanish meanwhile.

    A reader takes it like this, who never looks at checkpoints.
    """
    return replace(event, outcome=replace(event.outcome, checkpoint=None))


@dataclass(frozen=True)
class ProposalScored:
    """Every seed of a proposal is in.

    More seeds may bring another score, which supersedes it.

    Attributes:
        scored: what the optimizer observes: larger is better.
        seeds: the tuning seeds it was scored with.
        score: the values in each metric's own direction.
        beyond: steps trained beyond the budget for the driver's baseline; None of any other
            proposal.
    """

    kind: ClassVar[str] = "scored"
    scored: Scored
    seeds: tuple[int, ...]
    score: tuple[float, ...]
    beyond: int | None = None


@dataclass(frozen=True)
class ProposalFailed:
    """Every seed of a proposal failed.

    The attributes are those of `ProposalScored`.
    """

    kind: ClassVar[str] = "failed"
    failed: Failed
    seeds: tuple[int, ...]
    score: tuple[float, ...]
    beyond: int | None = None


@dataclass(frozen=True)
class SeedsGranted:
    """The best proposals of an adaptive study get more tuning seeds.

    Every proposal before it has its outcome. An empty list means that nothing is left to confirm:
    the search explores with the rest of the budget.

    Attributes:
        proposals: those that are left, each of which is brought to the seeds.
        seeds: the tuning seeds they have then.
        levels: how many of them get one more seed at each later level.
    """

    kind: ClassVar[str] = "confirm"
    proposals: tuple[ProposalId, ...] = ()
    seeds: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class SearchGivenUp:
    """The first proposals failed, or a run logged nothing to score.

    Nothing had succeeded, and the session ends with an error.

    Attributes:
        message: why, as a clause.
    """

    kind: ClassVar[str] = "gave_up"
    message: str


@dataclass(frozen=True)
class CheckpointsCollected:
    """Checkpoints that nobody can need any more are deleted, after this event."""

    kind: ClassVar[str] = "collected"
    segments: tuple[SegmentId, ...]


@dataclass(frozen=True)
class CheckpointRegained:
    """A segment was trained once more: its checkpoint was gone or damaged.

    Its outcome stays the first one.
    """

    kind: ClassVar[str] = "regained"
    segment: SegmentId
    checkpoint: Checkpoint
    cost: Mapping[str, float] = field(default_factory=FrozenMap)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BudgetExtended:
    """The budget has more to spend: the search opens again.

    Attributes:
        runs: full-length runs, or configurations, that were added.
        refunded: proposals that are not charged any more: they failed with other code.
    """

    kind: ClassVar[str] = "budget"
    runs: float
    refunded: tuple[ProposalId, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A proposal to be tested or whose model is kept, and why.

    Attributes:
        step: its score is read at; None: by the study's reduction.
        end: its runs are trained to; None: as far as the proposal.
    """

    label: str
    proposal: ProposalId
    step: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class CandidatesFrozen:
    """The search is over, and what is tested is decided.

    No test score is known yet.

    Attributes:
        search_end: why the search is over.
    """

    kind: ClassVar[str] = "frozen"
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    search_end: SearchEnd


@dataclass(frozen=True)
class TestScore:
    """The score of one objective on one test seed.

    It is in the objective's own direction, and None of a failed run.
    """

    __test__: ClassVar[bool] = False  # for pytest: not a test class

    objective: int
    seed: int
    value: float | None
    status: Status


@dataclass(frozen=True)
class CandidateTested:
    """A candidate is trained on test seeds that were missing."""

    kind: ClassVar[str] = "tested"
    proposal: ProposalId
    label: str
    scores: tuple[TestScore, ...]


@dataclass(frozen=True)
class TestSeedsAdded:
    """The candidates are to be tested on more seeds."""

    __test__: ClassVar[bool] = False  # for pytest: not a test class

    kind: ClassVar[str] = "test_seeds"
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class ModelsNamed:
    """The search of a study without test seeds is over.

    These are trained once more, to their step.

    Attributes:
        search_end: why the search is over.
    """

    kind: ClassVar[str] = "models"
    candidates: tuple[Candidate, ...]
    search_end: SearchEnd


@dataclass(frozen=True)
class StudyFinished:
    """Nothing is left to train.

    Attributes:
        search_end: why the search was over. If there are no test seeds, it may stand only here.
    """

    kind: ClassVar[str] = "finished"
    search_end: SearchEnd


StudyEvent: TypeAlias = (
    StudyBegun
    | SessionBegun
    | ProposalMade
    | ConfigEnqueued
    | SegmentLost
    | OutcomeIgnored
    | SegmentEnded
    | ProposalScored
    | ProposalFailed
    | SeedsGranted
    | SearchGivenUp
    | CheckpointsCollected
    | CheckpointRegained
    | BudgetExtended
    | CandidatesFrozen
    | CandidateTested
    | TestSeedsAdded
    | ModelsNamed
    | StudyFinished
)
