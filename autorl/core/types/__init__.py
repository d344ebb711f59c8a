"""The frozen value types that every room speaks in.

Imports no other room, and every room may import it. Words are those of `docs/design.md`. One
unit of work is the *segment*: train one configuration with one seed from step `start` to step
`until`. Everything a study does is a sequence of segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

# "as": they are names of this room for type checkers too.
from autorl.core.types.contracts import Executor as Executor
from autorl.core.types.contracts import Optimizer as Optimizer
from autorl.core.types.errors import AutorlError as AutorlError
from autorl.core.types.errors import CheckpointError as CheckpointError
from autorl.core.types.errors import InputError as InputError
from autorl.core.types.errors import NotLoggedError as NotLoggedError
from autorl.core.types.errors import StorageError as StorageError
from autorl.core.types.errors import StudyError as StudyError

ProposalId: TypeAlias = int
SeedRole: TypeAlias = Literal["tuning", "test"]
StepUnit: TypeAlias = Literal["environment_steps", "optimizer_steps"]


class FrozenMap(Mapping[str, Any]):
    """An immutable, hashable, picklable mapping from names to JSON values.

    Nested lists and mappings are frozen too. A configuration shared by reference cannot be changed
    under its owner: the cause of every lost PBT lineage in published tools.
    """

    __slots__ = ("_hash", "_values")
    _values: dict[str, Any]
    _hash: int | None

    def __init__(
        self, values: Mapping[str, object] | Iterable[tuple[str, object]] = (), /, **more: object
    ) -> None:
        # A dict first: `isinstance` of an abstract class like this one is slow.
        if type(values) is dict and not more:
            frozen = {
                str(name): value if type(value) in _SCALARS else freeze(value)
                for name, value in values.items()
            }
        elif isinstance(values, FrozenMap) and not more:
            frozen = values._values  # nobody can change them: they are shared
        else:
            frozen = {str(name): freeze(value) for name, value in dict(values, **more).items()}
        # Past `__setattr__`, which refuses whoever comes later.
        object.__setattr__(self, "_values", frozen)
        object.__setattr__(self, "_hash", None)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values  # the abstract class would raise and catch an error

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._values == other._values
        return super().__eq__(other)

    def __hash__(self) -> int:
        if self._hash is None:
            # The hash of a set: mappings are equal in any order of their names.
            object.__setattr__(self, "_hash", hash(frozenset(self._values.items())))
        assert self._hash is not None
        return self._hash

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[str, Any]]]:
        return type(self), (self._values,)  # pickle's own way sets attributes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"


class Config(FrozenMap):
    """A configuration: the active hyperparameters by name. Inactive ones are absent."""

    __slots__ = ()


_SCALARS = frozenset({str, int, float, bool, type(None)})
_SEQUENCES = (list, tuple)  # made once: `list | tuple` would be built at every call


def freeze(value: object) -> Any:
    """Turn every list into a tuple and every mapping into a `FrozenMap`."""
    # Most of a log, and asked first: the abstract `Mapping` costs ten times as much to ask.
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return FrozenMap(value)  # type: ignore[arg-type]
    if isinstance(value, _SEQUENCES):
        return tuple([item if type(item) in _SCALARS else freeze(item) for item in value])
    if isinstance(value, FrozenMap):
        return value
    if isinstance(value, Mapping):
        return FrozenMap(value)
    return value


class SegmentId(str):
    """Which segment: of which proposal, with which seed, and where it ends.

    It is its text as well, `12.3` or `12.3@500`, which names folders, logs and rows of tables, and
    is all that trainers and executors see of it. Code that has only the text reads it with `parse`.

    Attributes:
        proposal: whose configuration is trained, from where the proposal starts.
        seed: it is trained with; seeds of roles differ.
        end: step it ends at; None: where the proposal does.
    """

    __slots__ = ("end", "proposal", "seed")
    proposal: ProposalId
    seed: int
    end: int | None

    def __new__(cls, proposal: ProposalId, seed: int, end: int | None = None) -> SegmentId:
        text = f"{proposal}.{seed}" if end is None else f"{proposal}.{seed}@{end}"
        segment = super().__new__(cls, text)
        segment.proposal = proposal
        segment.seed = seed
        segment.end = end
        return segment

    def __getnewargs__(self) -> tuple[ProposalId, int, int | None]:  # type: ignore[override]
        """Say what `pickle` builds it from, since `__new__` takes no text."""
        return self.proposal, self.seed, self.end

    @classmethod
    def parse(cls, text: str) -> SegmentId:
        """Read the segment of a stored text.

        Raises:
            ValueError: the text names no segment.
        """
        place, _, end = text.partition("@")
        proposal, _, seed = place.partition(".")
        return cls(int(proposal), int(seed), int(end) if end else None)


@dataclass(frozen=True)
class TrainerSpec:
    """A trainer by name, with its own options.

    Names are `sb3/ppo`, `command`, `python:module:function`, and so on. Every run begins from the
    policy `start`, if there is one.
    """

    name: str
    kwargs: FrozenMap = field(default_factory=FrozenMap)
    start: Start | None = None


@dataclass(frozen=True)
class Start:
    """The policy that every run begins from, a checkpoint of step 0.

    Attributes:
        model: a zip of Stable-Baselines3, or the folder of a checkpoint.
        trainer: that wrote the checkpoint; None of a zip.
        memory: steps that a replay memory begins with: a file of `save_replay_buffer`, which ends
            in `.pkl`, or a data set of Minari.
        files: SHA-256 of every file by its path, as it was when the study began.
    """

    model: str
    trainer: TrainerSpec | None = None
    memory: str | None = None
    files: FrozenMap = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class EnvironmentSpec:
    """The environment, and how it is built.

    Attributes:
        id: of Gymnasium, `"module:Env-v0"`, or an RLHF task. None: the trainer brings it.
        wrappers: `"module:Class"` or `{"module:Class": {kwargs}}`, applied in order to each
            environment.
        normalize: False, True, or the keyword arguments of SB3's `VecNormalize`.
        vec_env: `dummy` (all environments in the training process), `subproc` (`sb3/*`), `envpool`
            or `gymnasium` (`population/*`: EnvPool's, or the vectorised one that the id registers).
        info: names in the `info` of steps that evaluations read, and how: `sum` or `last`.
        metrics: further metrics of an evaluation (`autorl.statistics.episodes`).
    """

    id: str | None = None
    kwargs: FrozenMap = field(default_factory=FrozenMap)
    wrappers: tuple[Any, ...] = ()
    n_envs: int = 1
    normalize: bool | FrozenMap = False
    vec_env: Literal["dummy", "subproc", "envpool", "gymnasium"] = "dummy"
    info: FrozenMap = field(default_factory=FrozenMap)
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fence:
    """Which attempt at a segment somebody speaks of (a fencing token).

    A worker that was given up for lost may still report: what carries another fence than those of
    the attempts that live counts for nothing.

    Attributes:
        epoch: number of the driver's session on the study, from 1; 0 = no session (`Tuner`, tests).
        attempt: number of the attempt at the segment within the epoch, from 0.
        study: which study, where an executor serves several.
    """

    epoch: int = 0
    attempt: int = 0
    study: str = ""


AttemptKey: TypeAlias = tuple[SegmentId, Fence]
"""One attempt at one segment: what an executor knows its running work by."""


@dataclass(frozen=True)
class Resources:
    """Resources that one segment needs of the machines it is trained on.

    Attributes:
        cpu: cores.
        gpu: fractions below 1, whole numbers above.
        memory_gb: None = not said.
        nodes: hosts of a gang.
        custom: amounts by name.
    """

    cpu: float = 1.0
    gpu: float = 0.0
    memory_gb: float | None = None
    nodes: int = 1
    custom: FrozenMap = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class Checkpoint:
    """Saved training state of a segment.

    Attributes:
        segment: that wrote it.
        path: the folder it lies in, its URL in the study's storage, or a caller's own reference.
        files: SHA-256 of every file by its relative path, as it was saved. Empty: not known, and
            not checked (a caller's own reference).
        size: bytes of one in a storage; 0: not known.
    """

    segment: SegmentId
    path: str
    files: FrozenMap = field(default_factory=FrozenMap)
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The unit of work: train one configuration with one seed.

    From step `start` to step `until` of a run meant to have `horizon` steps.

    Attributes:
        seed, role: every random stream is a function of them (`autorl.core.seeds`), never of the
            configuration.
        parent: the checkpoint to continue from; None = from scratch, and then `start` is 0.
        second: another checkpoint, whose weights are averaged with the parent's before training.
        mean: of the weights, `average` or `slerp`; "" without `second`.
        start: the step the parent really reached; a rollout may end before the nominal cut.
        until: the nominal last step; the trainer goes to `align(config, until)` and says so in
            `Outcome.reached`.
        evaluate_at: nominal steps up to until, ascending; each evaluates the weights of its last
            cut.
        episodes: evaluation episodes at each of them.
        fork: set when the parent belongs to another run (exploit): the random streams are
            re-derived from it.
        save: whether a checkpoint is wanted at the end, in `folder`.
        model_only: whether nothing will be trained from it. A trainer that keeps the model alone
            then puts a file `store.checkpoints.MODEL_ONLY` beside it.
        folder: where the checkpoint goes. It does not exist yet; see
            `autorl.store.checkpoints.writing`.
        log: file that receives what the training prints; None = leave standard output alone.
        scratch: folder for what is needed until the segment ends; "" = the system's temporary
            folder. See `autorl.store.checkpoints.scratch`.
        trust: whether pickles in the parent may be opened that this installation did not write:
            they run anything.
        fence: which attempt this is; trainers know nothing of it.
        resources: what it needs of the machines it is trained on.
        storage: URL of the folder the checkpoint goes to in the end, if the study has a storage.
            Trainers know nothing of it: `executors.worker` gives them a `folder` of the machine.
    """

    id: SegmentId
    trainer: TrainerSpec
    environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    config: Config
    seed: int
    role: SeedRole
    parent: Checkpoint | None = None
    second: Checkpoint | None = None
    mean: str = ""
    start: int = 0
    until: int
    horizon: int
    evaluate_at: tuple[int, ...] = ()
    episodes: int = 1
    fork: int | None = None
    save: bool = False
    model_only: bool = False
    folder: str = ""
    log: str | None = None
    scratch: str = ""
    trust: bool = False
    fence: Fence = Fence()
    resources: Resources = Resources()
    storage: str = ""

    @property
    def key(self) -> AttemptKey:
        """The attempt, among all that run."""
        return self.id, self.fence

    @property
    def sources(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that it begins with."""
        return tuple(source for source in (self.parent, self.second) if source is not None)


@dataclass(frozen=True)
class Report:
    """An evaluation of a running segment: metrics at a nominal step.

    The fence is stamped on what leaves a worker (`executors.worker`), not on the reports that an
    outcome holds, which has its own.
    """

    segment: SegmentId
    step: int
    metrics: Mapping[str, float]
    fence: Fence = Fence()

    @property
    def key(self) -> AttemptKey:
        """The attempt that reports."""
        return self.segment, self.fence


def step_problem(start: int, until: int, reports: Iterable[Report]) -> str:
    """Say what is wrong with the steps of reports.

    Each is after `start` and the one before, none after `until`.
    """
    before = None
    for report in reports:
        if not start < report.step <= until:
            return f"report at step {report.step}: expected a step after {start}, at most {until}"
        if before is not None and report.step <= before:
            return f"report at step {report.step} after one at step {before}: expected a later step"
        before = report.step
    return ""


class Status(StrEnum):
    """The ways a segment ends.

    `DONE` and `STOPPED` are scored, the rest are failures.
    """

    DONE = "done"
    STOPPED = "stopped"  # by a rule on the run's own reports, before `until`; scored normally
    CRASH = "crash"  # the trainer raised
    TIMEOUT = "timeout"  # over limits.segment_seconds
    OUT_OF_MEMORY = "out_of_memory"  # over limits.memory_gb, or a library had none, of a GPU too
    DIVERGED = "diverged"  # NaN or infinite weights, loss or score
    LOST = "lost"  # the worker vanished; retried below the optimizer

    @property
    def failed(self) -> bool:
        return self not in (Status.DONE, Status.STOPPED)


class SearchEnd(StrEnum):
    """The reasons why a search is over."""

    BUDGET = "budget"  # used up, or what is left of it pays for no further proposal
    HOURS = "hours"  # the time of `budget.hours` is up
    TARGET = "target"  # the incumbent is as good as `budget.target`
    CONVERGED = "converged"  # `budget.converged` configurations improved no more than noise does
    OPTIMIZER = "optimizer"  # it has nothing more to propose: a grid is through, say
    TEST = "test"  # somebody asked for the test before


@dataclass(frozen=True)
class Outcome:
    """Result of one segment.

    Attributes:
        reached: the counted environment (or optimizer) step training stopped at; see
            `Trainer.align`.
        reports: the evaluations of this segment, in step order.
        cost: `environment_steps` and `wall_seconds` at least; the worker adds `peak_memory_mb`.
        applied: the value each hyperparameter really had in the trainer after restore, read back.
        notes: what a reader of the record must know, e.g. "environment state not restorable: new
            episodes".
        message: for failures, the last line of the error; the whole traceback is in the segment's
            log.
        unlogged: the run failed because it never logged a metric the study needs.
        damage: what of a checkpoint it begins with differs from what was saved. Nothing was trained
            then, the status is `LOST`, and the driver goes on as if the checkpoint were gone.
            Empty: nothing does.
        damaged: the segment that wrote that checkpoint; None: the parent.
        fence: of the attempt that brought it, stamped by the worker.
        host: machine the worker was on; "" = the driver's own.
        preempted: of `LOST` alone: the host is gone or was told to go, or its disk fails, which
            says nothing against the segment.
        updates: metrics of training at the steps between evaluations, which no score reads.
    """

    segment: SegmentId
    status: Status
    reached: int
    reports: tuple[Report, ...] = ()
    cost: Mapping[str, float] = field(default_factory=FrozenMap)
    checkpoint: Checkpoint | None = None
    applied: Mapping[str, Any] = field(default_factory=FrozenMap)
    notes: tuple[str, ...] = ()
    message: str = ""
    unlogged: bool = False
    damage: str = ""
    damaged: SegmentId | None = None
    fence: Fence = Fence()
    host: str = ""
    preempted: bool = False
    updates: tuple[Report, ...] = ()

    @property
    def key(self) -> AttemptKey:
        """The attempt that ended."""
        return self.segment, self.fence


@dataclass(frozen=True)
class Continue:
    """Go on with an earlier proposal's agent, on its own streams.

    With the same configuration that is the same run; another configuration begins a new one.
    """

    proposal: ProposalId


@dataclass(frozen=True)
class Exploit:
    """Take over a copy of another proposal's agent, or average with it.

    The run goes on with other random streams.

    Attributes:
        stream: what the streams are derived from, beside the seed and the step. Proposals with one
            stream that start at one step have the same streams: they stay paired.
        second: the proposal whose weights are averaged with the copy's: the member's former one.
            All else is the copy's. None: nothing is averaged.
        mean: of the weights, `average` or `slerp`; "" without `second`.
    """

    proposal: ProposalId
    stream: str
    second: ProposalId | None = None
    mean: str = ""


@dataclass(frozen=True)
class Change:
    """A hyperparameter that explore has changed.

    `old` is None where it was not active before.
    """

    name: str
    old: Any
    new: Any


NAMED = "baseline "
"""Begins the origin and the label of a baseline that the study file names."""


@dataclass(frozen=True)
class Proposal:
    """Request of an optimizer: bring `config` to step `until`.

    Attributes:
        parent: whose agent is trained on; None: from scratch.
        member: slot of a population, bracket or arm, for people and tables; opaque to the driver.
        origin: why, for people ("default", "exploit member 3").
        meta: JSON: everything a later `observe(Proposed)` needs to rebuild the optimizer's state.
        provisional: its score is no ground to choose it by, because its agent was picked among
            several on the way; it ranks after every other proposal of its length.
        informed: scores observed before had a part in it (a model, a parent, a promotion); False
            for the default, a warm start, a design and a random draw.
        baseline: made by the driver to compare with, beyond the budget; the optimizer is not told
            of it.
        retain: its agent is saved at the horizon too: a test run trains the schedule from step 0
            without the copies on the way, so this agent is nowhere else.
        changes: what explore changed in the configuration that was copied; None of a proposal
            that does not explore.
    """

    config: Config
    until: int
    parent: Continue | Exploit | None = None
    member: str | None = None
    origin: str = ""
    meta: FrozenMap = field(default_factory=FrozenMap)
    provisional: bool = False
    informed: bool = False
    baseline: bool = False
    retain: bool = False
    changes: tuple[Change, ...] | None = None

    @property
    def named(self) -> bool:
        """Whether it is a baseline that the study file names."""
        return self.baseline and self.origin.startswith(NAMED)

    @property
    def resume_from(self) -> ProposalId | None:
        """The proposal whose checkpoint is resumed, None from scratch."""
        return None if self.parent is None else self.parent.proposal

    @property
    def sources(self) -> tuple[ProposalId, ...]:
        """The proposals whose agents it begins with."""
        second = self.parent.second if isinstance(self.parent, Exploit) else None
        return tuple(number for number in (self.resume_from, second) if number is not None)


@dataclass(frozen=True)
class Wait:
    """Nothing can be proposed before another outcome is observed.

    A rung or a generation waits for all of its members.
    """


@dataclass(frozen=True)
class Done:
    """The optimizer has nothing left to propose."""


@dataclass(frozen=True)
class Proposed:
    """A proposal was durably recorded.

    Its work starts after this event.
    """

    id: ProposalId
    proposal: Proposal


@dataclass(frozen=True)
class Scored:
    """A proposal was evaluated.

    A later `Scored` of the same proposal (more seeds) supersedes an earlier one.

    Attributes:
        values: one per objective, aggregated over seeds; larger is better whatever the study's
            direction.
        spread: standard deviation over seeds (ddof=1), one per objective; 0 with one seed.
        reached: the nominal step, `proposal.until`; a seed that stopped itself is scored as if it
            had gone on.
        constraints: infeasible where > 0.
        resumable: False when a seed failed: never a donor, never continued.
        mean: plain mean over seeds, the first tie-breaker between equal values (an IQM saturates).
        watched: metrics that the optimizer asked for, at each evaluation, means over seeds.
    """

    proposal: ProposalId
    values: tuple[float, ...]
    spread: tuple[float, ...] = ()
    n_seeds: int = 1
    reached: int = 0
    constraints: tuple[float, ...] = ()
    resumable: bool = True
    mean: tuple[float, ...] = ()
    watched: Mapping[str, tuple[float, ...]] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class Failed:
    """Every seed of a proposal failed.

    `values` is the penalty, empty while no score at all is known to derive one.
    """

    proposal: ProposalId
    kind: Status
    values: tuple[float, ...]
    message: str = ""


Event: TypeAlias = Proposed | Scored | Failed


@dataclass(frozen=True)
class Incumbent:
    """The best known way to train.

    Configurations by the step they start at: one entry, unless PBT changed them.
    """

    schedule: tuple[tuple[int, Config], ...]
    until: int
    proposal: ProposalId

    @property
    def config(self) -> Config:
        """The configuration at the end of the schedule."""
        return self.schedule[-1][1]


def schedule_of(chain: Iterable[tuple[Config, int]]) -> tuple[tuple[int, Config], ...]:
    """Give configurations by the step they start at, equal neighbours merged.

    The links are (configuration, last step), from scratch.
    """
    steps: list[tuple[int, Config]] = []
    start = 0
    for config, until in chain:
        if not steps or steps[-1][1] != config:
            steps.append((start, config))
        start = until
    return tuple(steps)
