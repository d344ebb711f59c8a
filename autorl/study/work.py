"""The work of one study: segments, their outcomes, checkpoints on disk.

Segments are handed out, and outcomes come back. It knows nothing of budgets or optimizers: it turns
(proposal, seed) into the segments of its chain, one after another, and outcomes back into the
values of a seed.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from autorl.evaluation import Curve, Judge, SeedValue, join
from autorl.plain_text import LONGEST_MESSAGE, listed, shortened
from autorl.spec import Spec
from autorl.store.checkpoints import DAMAGED, folder_size, remove_unfinished, set_aside, unfinished
from autorl.store.events import (
    CheckpointRegained,
    CheckpointsCollected,
    SegmentEnded,
    SegmentLost,
    SegmentPlace,
    StudyEvent,
)
from autorl.store.log_files import log_bytes
from autorl.study.journal import Journal
from autorl.study.lineage import Lineage
from autorl.types import (
    Checkpoint,
    Outcome,
    ProposalId,
    SeedRole,
    Segment,
    SegmentId,
    Status,
    StudyError,
    step_problem,
)

FROM_START = "no checkpoint to continue: trained from step 0"  # a note of outcomes
TRAINED_AGAIN = "segment {segment} is trained again for its checkpoint, beyond the budget"


class Work:
    """Segments by (proposal, seed), and what became of them.

    Args:
        journal: records every outcome before anything depends on it.

    Attributes:
        in_flight: handed out, no outcome yet.
        saved: checkpoints on disk, by the segment that wrote them.
        fresh: outcomes since it was last looked which checkpoints can go.
        bytes_logged: size of the logs of segments that ended; counted, as that of checkpoints is,
            only where the study limits the disk.
    """

    def __init__(self, spec: Spec, journal: Journal, lineage: Lineage, judge: Judge) -> None:
        self.in_flight: dict[SegmentId, Segment] = {}
        self.saved: dict[SegmentId, Checkpoint] = {}
        self.fresh = 0
        self._recorded_bytes = 0
        self.bytes_logged = 0
        self._log_sizes: dict[SegmentId, int] = {}
        self._sizes: dict[SegmentId, int] = {}
        self._spec = spec
        self._journal = journal
        self._store = journal.store
        self._lineage = lineage
        self._judge = judge
        self._environment = spec.environment.resolve()
        self._outcomes: dict[SegmentId, Outcome] = {}
        self._attempts: dict[SegmentId, int] = {}
        self._ready: list[Segment] = []
        # What is wrong with checkpoints, as the workers saw it. Of this session: nothing is
        # recorded.
        self._damaged: dict[SegmentId, str] = {}
        self._unmoved: set[SegmentId] = set()
        self._aside_bytes = 0
        # Checkpoints that the next link of a chain, which is trained again, will continue.
        self._regained: set[SegmentId] = set()
        journal.subscribe(self.apply)

    # -- in: outcomes ------------------------------------------------------------------------------

    def record(self, outcome: Outcome) -> bool:
        """Record how a segment ended.

        Returns:
            False where the outcome counts for nothing and the segment is trained again: its worker
            was lost, or its parent's checkpoint is damaged.
        """
        segment = self.in_flight.pop(outcome.segment)
        outcome = dataclasses.replace(outcome, message=shortened(outcome.message, LONGEST_MESSAGE))
        self._note_log(segment)
        remove_unfinished(segment)  # a worker that was ended could not do it
        if outcome.damage and segment.parent is not None:
            self._note_damage(segment.parent.segment, outcome.damage)
        self._set_aside_damaged()
        if outcome.damage:
            # Its chain is requested again, as where the checkpoint is gone: this is no attempt.
            return False
        if outcome.status is Status.LOST:
            self._journal.record(SegmentLost(segment.id, outcome.message))
            if self._attempts[segment.id] <= self._spec.failures.retries:
                self._hand_out(segment)
                return False
        if segment.parent is not None:
            self._regained.discard(segment.parent.segment)
        if segment.id in self._outcomes:
            self._regain(segment, outcome)
            return True
        if segment.parent is None and self._lineage.start(segment.id.proposal):
            notes = (*outcome.notes, self._why_from_start(segment))
            outcome = dataclasses.replace(outcome, notes=notes)
        outcome = self._judged(segment, outcome)
        self._journal.record(self._ended(segment, outcome))
        return True

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log.

        Those of other kinds tell of no segment.
        """
        match event:
            case SegmentEnded(outcome=outcome, segment=segment):
                self._outcomes[segment] = outcome
                self.fresh += 1
                if outcome.checkpoint is not None:
                    self._take_checkpoint(segment, outcome.checkpoint)
            case CheckpointRegained(segment=segment, checkpoint=checkpoint):
                self._take_checkpoint(segment, checkpoint)
            case SegmentLost(segment=segment):
                self._attempts[segment] = self._attempts.get(segment, 0) + 1
            case CheckpointsCollected(segments=segments):
                for segment in segments:
                    self._recorded_bytes -= self._sizes.pop(segment, 0)
                    del self.saved[segment]

    def _take_checkpoint(self, segment: SegmentId, checkpoint: Checkpoint) -> None:
        self.saved[segment] = checkpoint
        # Where nothing limits the disk nobody asks: a long log names thousands that are gone.
        if self._spec.limits.disk_gb is not None:
            self._recorded_bytes -= self._sizes.get(segment, 0)
            self._sizes[segment] = folder_size(Path(checkpoint.path))
            self._recorded_bytes += self._sizes[segment]

    def _regain(self, segment: Segment, again: Outcome) -> None:
        """Record the checkpoint of a segment that was trained again.

        Its outcome stays the first.

        Raises:
            StudyError: it failed, or has other values than the first time, so that its checkpoint
                is of another run.
        """
        first = self._outcomes[segment.id]
        if again.status is not Status.DONE or again.checkpoint is None:
            why = f"ended as {again.status}: {again.message}"
        elif not _agree(first, again):
            why = "has other values than those recorded"
        else:
            note = TRAINED_AGAIN.format(segment=segment.id)
            self._journal.record(
                CheckpointRegained(segment.id, again.checkpoint, again.cost, (note,))
            )
            self._damaged.pop(segment.id, None)
            self._regained.add(segment.id)
            return
        raise StudyError(
            f"segment {segment.id}, trained again for its checkpoint, {why}; what was recorded is "
            "kept"
        )

    def _judged(self, segment: Segment, outcome: Outcome) -> Outcome:
        """Return an outcome as it is recorded.

        That is a failure where its metrics cannot be scored.
        """
        nominal = 0 if segment.parent is None else self._lineage.start(segment.id.proposal)
        latest = max(segment.until, outcome.reached)  # it may end before or after its nominal step
        problem = step_problem(min(segment.start, nominal), latest, outcome.reports)
        if problem:
            outcome = dataclasses.replace(outcome, reports=())
        if outcome.status.failed:
            return outcome
        if problem:
            return dataclasses.replace(outcome, status=Status.CRASH, message=problem)
        curve = self._join(segment.id, [*self._before(segment), outcome])
        try:
            value = self._judge.value(segment.seed, curve)
        except (KeyError, ValueError) as error:
            reported = sorted({name for report in outcome.reports for name in report.metrics})
            message = (
                f"the study needs metric {error}; the trainer reported {listed(reported) or 'none'}"
            )
            return dataclasses.replace(outcome, status=Status.CRASH, message=message)
        if value.status.failed:
            return dataclasses.replace(outcome, status=value.status, message=value.message)
        return outcome

    # -- out: segments -----------------------------------------------------------------------------

    def request(
        self, proposal: ProposalId, seed: int, role: SeedRole, end: int | None = None
    ) -> None:
        """Hand out the next segment of the chain to (proposal, seed).

        Nothing happens where it is out or nothing is left. The chain is trained to step `end`, its
        horizon unchanged; None: where the proposal ends. A segment whose parent saved nothing (its
        trainer cannot) is trained from step 0, and the record says so.

        Raises:
            StudyError: the checkpoint of another run, to go on from, is not there.
        """
        path = self._lineage.path(proposal, end)
        for place, (link, cut) in enumerate(path):
            outcome = self._outcomes.get(SegmentId(link, seed, cut))
            if outcome is None:
                self._request_link(path[: place + 1], seed, role, last=link == path[-1][0])
            if outcome is None or outcome.status is not Status.DONE:
                return

    def _request_link(
        self,
        path: Sequence[tuple[ProposalId, int | None]],
        seed: int,
        role: SeedRole,
        *,
        last: bool,
        again: bool = False,
    ) -> None:
        """Hand out the last segment of a path, unless it is out.

        Where a configuration changed on the way and the parent's checkpoint is gone from the disk,
        the parent is trained again, for its checkpoint alone. `last` says that the path is a whole
        chain, `again` that the outcome of the segment is known already.
        """
        link, cut = path[-1]
        name = SegmentId(link, seed, cut)
        if name in self.in_flight:
            return
        before = [SegmentId(earlier, seed, end) for earlier, end in path[-2:-1]]
        parent = self._outcomes[before[0]] if before else None
        if parent is not None and not self._available(parent.segment) and self._changed(link, seed):
            if parent.segment in self._unmoved:
                return  # a running segment reads what lies there
            if again or parent.segment in self.saved:
                self._request_link(path[:-1], seed, role, last=False, again=True)
                return
        if again:
            say(TRAINED_AGAIN.format(segment=name))
        self._hand_out(self._segment(link, seed, role, parent, cut, last=last))

    def _changed(self, proposal: ProposalId, seed: int) -> bool:
        """Say whether a chain cannot be trained in one piece.

        It is the chain that leads to (proposal, seed).
        """
        if len(self._lineage.schedule(proposal)) > 1:
            return True
        return self._lineage.fork(proposal, seed) is not None

    def drain(self) -> list[Segment]:
        """Return the segments handed out since the last call."""
        ready = self._ready
        self._ready = []
        return ready

    def _hand_out(self, segment: Segment) -> None:
        self.in_flight[segment.id] = segment
        self._log_sizes[segment.id] = self._log_size(segment)
        self._ready.append(segment)

    def _segment(
        self,
        proposal: ProposalId,
        seed: int,
        role: SeedRole,
        parent: Outcome | None,
        cut: int | None,
        *,
        last: bool,
    ) -> Segment:
        trainer, config = self._spec.trainer_for(self._lineage[proposal].config)
        begin = self._lineage.start(proposal)
        until = self._lineage[proposal].until if cut is None else cut
        name = SegmentId(proposal, seed, cut)
        if parent is not None and not self._available(parent.segment):
            if self._changed(proposal, seed):
                raise StudyError(
                    f"segment {name} continues {parent.segment}, which has no checkpoint (any more)"
                )
            # One configuration all along: training it again from the start gives the same.
            parent = None
            begin = 0
        folder = self._store.folder
        save = self._wants_checkpoint(proposal, role) or not last
        checkpoint = None if parent is None else self.saved[parent.segment]
        start = 0 if parent is None else parent.reached
        saved_in = str(self._store.checkpoints / name) if save else ""
        log = str(folder / "logs" / f"{name}.log") if folder else None
        scratch = str(unfinished(self._store.checkpoints, name)) if folder else ""
        return Segment(
            id=name,
            trainer=trainer,
            environment=self._environment,
            config=config,
            seed=seed,
            role=role,
            parent=checkpoint,
            start=start,
            until=until,
            horizon=self._spec.fidelity.steps,
            evaluate_at=(
                *(step for step in self._spec.evaluation_steps if begin < step < until),
                until,
            ),
            episodes=self._spec.fidelity.episodes,
            fork=self._lineage.fork(proposal, seed),
            save=save,
            folder=saved_in,
            log=log,
            scratch=scratch,
        )

    def _wants_checkpoint(self, proposal: ProposalId, role: SeedRole) -> bool:
        """Say whether the optimizer or the user may need an agent later."""
        keep = self._spec.keep.checkpoints
        if role == "test":
            return keep != "none"
        trained = self._lineage[proposal]
        # Whoever ends at the horizon has nothing left to train.
        resumable = trained.until < self._spec.fidelity.steps
        return (
            resumable
            or trained.retain
            or keep in ("top", "lineage")
            or (keep == "incumbent" and not self._spec.plan.test)
        )

    # -- what the outcomes say ---------------------------------------------------------------------

    def known(self, proposal: ProposalId, seed: int, end: int | None = None) -> bool:
        """Say whether (proposal, seed) is trained to its end.

        Or whether a failure or a stop ended it.
        """
        for link, cut in self._lineage.path(proposal, end):
            outcome = self._outcomes.get(SegmentId(link, seed, cut))
            if outcome is None:
                return False
            if outcome.status is not Status.DONE:
                return True
        return True

    def curve(self, proposal: ProposalId, seed: int, end: int | None = None) -> Curve:
        """Return the learning curve of (proposal, seed) from step 0 to `end`.

        It goes over every run of its lineage.
        """
        return self._join(SegmentId(proposal, seed), self._chain_outcomes(proposal, seed, end))

    def value(self, proposal: ProposalId, seed: int, end: int | None = None) -> SeedValue:
        """Return the objective values of one seed of a proposal."""
        outcomes = self._chain_outcomes(proposal, seed, end)
        curve = self._join(SegmentId(proposal, seed), outcomes)
        return self._judge.value(seed, curve, outcomes[-1].message)

    def outcome(self, proposal: ProposalId, seed: int) -> Outcome | None:
        """Return how the segment of (proposal, seed) ended.

        None as long as it has not.
        """
        return self._outcomes.get(SegmentId(proposal, seed))

    def outcome_of(self, segment: SegmentId) -> Outcome | None:
        """Return how a segment ended.

        None as long as it has not.
        """
        return self._outcomes.get(segment)

    def _chain_outcomes(
        self, proposal: ProposalId, seed: int, end: int | None = None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for link, cut in self._lineage.path(proposal, end):
            outcomes.append(self._outcomes[SegmentId(link, seed, cut)])
            if outcomes[-1].status is not Status.DONE:
                break
        return outcomes

    def _join(self, segment: SegmentId, outcomes: Sequence[Outcome]) -> Curve:
        """Join the outcomes of a chain that ends with `segment`.

        Or of the first part of it.
        """
        links = self._lineage.chain(segment.proposal)[: len(outcomes) - 1]
        cuts = {self._lineage[link].until for link in links}
        return join(outcomes, without=cuts.difference(self._spec.evaluation_steps))

    def _before(self, segment: Segment) -> list[Outcome]:
        """Return the outcomes of the chain before a segment."""
        chain = self._lineage.chain(segment.id.proposal)[:-1]
        return [self._outcomes[SegmentId(link, segment.seed)] for link in chain]

    # -- checkpoints -------------------------------------------------------------------------------

    @property
    def bytes_saved(self) -> int:
        """The bytes of the checkpoints and of what running segments have written.

        Damaged checkpoints count too.
        """
        scratch = [segment.scratch for segment in self.in_flight.values() if segment.scratch]
        running = sum(folder_size(Path(folder)) for folder in scratch)
        return self._recorded_bytes + self._aside_bytes + running

    def model(self, proposal: ProposalId, seed: int, end: int | None) -> SegmentId:
        """Return the segment whose checkpoint is the model of (proposal, seed).

        `end` is the step of the model; None: where the proposal ends.
        """
        link, cut = self._lineage.path(proposal, end)[-1]
        return SegmentId(link, seed, cut)

    def head(self, proposal: ProposalId, seed: int) -> SegmentId | None:
        """Return the last trained segment of the chain to (proposal, seed).

        None: there is none.
        """
        segments = [SegmentId(link, seed) for link in reversed(self._lineage.chain(proposal))]
        return next((segment for segment in segments if segment in self._outcomes), None)

    @property
    def damaged(self) -> bool:
        """Say whether a checkpoint was seen to be damaged in this session."""
        return bool(self._damaged)

    def continued(self) -> set[SegmentId]:
        """Return the segments whose checkpoints training goes on from now, or as soon as it can."""
        return self._regained | self._parents_in_flight()

    def collect(self, gone: Sequence[SegmentId]) -> None:
        """Delete checkpoints that nothing goes on from."""
        # Taken before the event is applied, which forgets them.
        paths = [Path(self.saved[segment].path) for segment in gone]
        # Before they are deleted: a kill in between leaves folders, which `sweep` removes, never a
        # log that names what is gone.
        self._journal.record(CheckpointsCollected(tuple(gone)))
        self._store.when_durable(lambda: self._remove_checkpoints(paths))

    def _remove_checkpoints(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if self._store.owns(path):
                _remove(path)

    def _parents_in_flight(self) -> set[SegmentId]:
        """Return the segments whose checkpoints running segments continue."""
        running = self.in_flight.values()
        return {segment.parent.segment for segment in running if segment.parent is not None}

    def sweep(self) -> None:
        """Remove what a kill left.

        These are checkpoints half written, and those the log has given up. A whole one that no
        event names stays: its segment is trained again and replaces it, or the log is too short.
        """
        folder = self._store.folder
        if folder is None:
            return
        if self._spec.limits.disk_gb is not None:
            self.bytes_logged = log_bytes(folder / "logs")
        if not (folder / "checkpoints").is_dir():
            return
        for entry in (folder / "checkpoints").iterdir():
            given_up = entry.name in self._outcomes and entry.name not in self.saved
            if given_up or entry.name.startswith((".tmp-", ".old-")):
                _remove(entry)
        self._aside_bytes = folder_size(folder / "checkpoints" / DAMAGED)

    def clear(self) -> None:
        """Remove what the segments in flight have written.

        No worker is left then.
        """
        for segment in self.in_flight.values():
            remove_unfinished(segment)

    def _note_log(self, segment: Segment) -> None:
        """Add what a segment has logged since it was handed out.

        It has ended.
        """
        self.bytes_logged += self._log_size(segment) - self._log_sizes.pop(segment.id, 0)

    def _log_size(self, segment: Segment) -> int:
        if (
            self._spec.limits.disk_gb is None
            or segment.log is None
            or not os.path.exists(segment.log)
        ):
            return 0
        return os.path.getsize(segment.log)

    def _available(self, segment: SegmentId) -> bool:
        """Say whether a segment left a checkpoint that is still there."""
        saved = self.saved.get(segment)
        if saved is None or segment in self._damaged:
            return False
        path = Path(saved.path)
        return path.exists() or not self._store.owns(path)  # the caller's own are not looked for

    def _note_damage(self, segment: SegmentId, damage: str) -> None:
        """Count the checkpoint of a segment as gone from now on.

        Nothing is recorded: the next session finds the folder gone, or back again if somebody has
        mended it.
        """
        if segment not in self._damaged:
            self._damaged[segment] = damage
            self._unmoved.add(segment)

    def _set_aside_damaged(self) -> None:
        """Move damaged checkpoints that no running segment reads out of the way.

        A segment that began before the damage may still be reading.
        """
        if not self._unmoved:
            return
        for segment in sorted(self._unmoved - self._parents_in_flight()):
            self._unmoved.discard(segment)
            path = Path(self.saved[segment].path)
            where = set_aside(path) if self._store.owns(path) else f"left in {path}"
            self._aside_bytes = folder_size(self._store.checkpoints / DAMAGED)
            damage = self._damaged[segment]
            say(f"checkpoint {segment} is damaged ({damage}): not continued from; {where}")

    def _why_from_start(self, segment: Segment) -> str:
        """Return the note of a segment that was trained from step 0.

        It was to continue a run.
        """
        link = self._lineage[segment.id.proposal].resume_from
        if link is None:
            return FROM_START
        parent = SegmentId(link, segment.seed)
        if parent not in self._damaged:
            return FROM_START
        return f"checkpoint {parent} is damaged ({self._damaged[parent]}): trained from step 0"

    # -- the durable form --------------------------------------------------------------------------

    def _ended(self, segment: Segment, outcome: Outcome) -> SegmentEnded:
        """Return the event of an outcome.

        It has what the tables need to know besides.
        """
        reductions = None
        if not outcome.status.failed:
            curve = self._join(segment.id, [*self._before(segment), outcome])
            reductions = tuple(self._judge.reductions(curve))
        return SegmentEnded(outcome, self._place(segment), reductions)

    def _place(self, segment: Segment) -> SegmentPlace:
        role = segment.role
        seed = segment.seed
        run = self._lineage.run(segment.id.proposal)
        parent_run = None
        if run.parent_root is not None:
            parent_run = self._lineage.run_id(run.parent_root, role, seed)
        parent = None if segment.parent is None else segment.parent.segment
        return SegmentPlace(
            segment=segment.id,
            run_id=self._lineage.run_id(run.root, role, seed),
            role=role,
            algorithm=segment.trainer.name,
            environment=segment.environment.id,
            parent_run=parent_run,
            start_step=run.start_step,
            member=self._lineage[segment.id.proposal].member,
            parent=parent,
            from_step=segment.start,
        )


def _agree(first: Outcome, again: Outcome) -> bool:
    """Say whether two trainings of a segment gave the same.

    They ended at one step with equal metrics. Metrics are compared at the steps that both
    evaluated.
    """
    recorded = {report.step: dict(report.metrics) for report in first.reports}
    equal = [
        recorded[report.step] == dict(report.metrics)
        for report in again.reports
        if report.step in recorded
    ]
    return first.reached == again.reached and all(equal)


def say(line: str) -> None:
    """Tell whoever runs the study at once.

    It is told even if no progress was asked for.
    """
    print(f"autorl: {line}", file=sys.stderr, flush=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
