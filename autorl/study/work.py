"""The work of one study: segments, their outcomes, checkpoints on disk.

Segments are handed out, and outcomes come back. It knows nothing of budgets or optimizers: it turns
(proposal, seed) into the segments of its chain, one after another, and outcomes back into the
values of a seed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autorl.core.plain_text import LONGEST_MESSAGE, one_line, shortened
from autorl.core.types import (
    AttemptKey,
    Checkpoint,
    Exploit,
    Outcome,
    ProposalId,
    Report,
    SeedRole,
    Segment,
    SegmentId,
    Status,
    StudyError,
)
from autorl.statistics.evaluation import Curve, Judge, SeedValue, join
from autorl.store.checkpoints import MODEL_ONLY
from autorl.store.events import (
    CheckpointRegained,
    CheckpointsCollected,
    OutcomeIgnored,
    SegmentEnded,
    SegmentLost,
    SessionBegun,
    StudyEvent,
)
from autorl.store.log import EPOCH
from autorl.store.remote import is_url
from autorl.study.attempts import AttemptFiles, Attempts
from autorl.study.checkpoints import CheckpointSizes, DamagedCheckpoints, remove_own, sweep_storage
from autorl.study.journal import Journal, say
from autorl.study.lineage import Lineage
from autorl.study.outcome_events import agree, ended, judged
from autorl.study.spec import Spec

TRAINED_AGAIN = "segment {segment} is trained again for its checkpoint, beyond the budget"


class Work:
    """Segments by (proposal, seed), and what became of them.

    Args:
        journal: records every outcome before anything depends on it.

    Attributes:
        attempts: which attempts at segments live.
        in_flight: segments handed out that have no outcome yet.
        saved: checkpoints on disk, by the segment that wrote them.
        fresh: outcomes since it was last looked which checkpoints can go.
        files: what attempts have written.
        damaged: checkpoints that were seen to be damaged in this session.
    """

    def __init__(self, spec: Spec, journal: Journal, lineage: Lineage, judge: Judge) -> None:
        self.attempts = Attempts(spec.failures.retries)
        self.in_flight = self.attempts.in_flight
        self.saved: dict[SegmentId, Checkpoint] = {}
        self.fresh = 0
        self._sizes = CheckpointSizes()
        self._spec = spec
        self._journal = journal
        self._store = journal.store
        self.files = AttemptFiles(self._store, counts_logs=spec.limits.disk_gb is not None)
        self._lineage = lineage
        self._judge = judge
        self._outcomes: dict[SegmentId, Outcome] = {}
        self._ready: list[Segment] = []
        self._superseded: list[Segment] = []
        self._told_of: set[str] = set()
        self.damaged = DamagedCheckpoints(self._store)
        self._aside_bytes = 0
        # Checkpoints that the next link of a chain, which is trained again, will continue.
        self._regained: set[SegmentId] = set()
        journal.subscribe(self.apply)

    # -- in: outcomes ------------------------------------------------------------------------------

    def record(self, outcome: Outcome) -> bool:
        """Record how an attempt at a segment ended.

        The first attempt that succeeds wins, and those beside it are superseded. If no attempt
        succeeds, the last living attempt decides.

        Raises:
            StudyError: a metric was never logged, and no segment has succeeded.

        Returns:
            False where the outcome counts for nothing: its attempt does not live, its worker was
            lost, its parent's checkpoint is damaged, or another attempt goes on. A segment that no
            attempt is left of is trained again.
        """
        segment = self.attempts.find(outcome.key)
        if segment is None:
            self._ignore(outcome.key, outcome.status)
            return False
        self.attempts.end(segment)
        outcome = dataclasses.replace(outcome, message=shortened(outcome.message, LONGEST_MESSAGE))
        self.files.end(segment)
        if outcome.damage and segment.parent is not None:
            self.damaged.add(outcome.damaged or segment.parent.segment, outcome.damage)
        self._set_aside_damaged()
        if outcome.status.failed and not self._fails(segment, outcome):
            return False
        for superseded in self.attempts.end_all(segment.id):
            self.files.end(superseded)
            self._superseded.append(superseded)
        self._regained.difference_update(source.segment for source in segment.sources)
        if segment.id in self._outcomes:
            self._regain(segment, outcome)
            self.files.remove_unnamed(segment.id)
            return True
        start = self._lineage.start(segment.id.proposal)
        if segment.parent is None and start:
            link = self._lineage[segment.id.proposal].resume_from
            parent = None if link is None else SegmentId(link, segment.id.seed)
            notes = (*outcome.notes, self.damaged.why_from_start(parent))
            outcome = dataclasses.replace(outcome, notes=notes)
        join_chain = functools.partial(self._curve_to, segment)
        nominal = 0 if segment.parent is None else start
        needed = self._spec.budget.counted or ""
        outcome = judged(segment, outcome, nominal, self._judge, join_chain, needed)
        # Not recorded: once the script is mended the same segment is trained, and nothing was lost.
        if outcome.unlogged and all(past.status.failed for past in self._outcomes.values()):
            raise self._journal.give_up(f"run {segment.id} failed: {outcome.message}")
        task = self._spec.task_name(segment.id.seed)
        self._journal.record(ended(segment, outcome, self._lineage, self._judge, join_chain, task))
        self.files.remove_unnamed(segment.id)
        return True

    def _fails(self, segment: Segment, outcome: Outcome) -> bool:
        """Say whether a segment fails because an attempt at it failed.

        It does not while another attempt lives, and where it is tried again.
        """
        another_lives = segment.id in self.in_flight
        if outcome.damage:
            # Its chain is requested again, as where the checkpoint is gone: this is no loss.
            self.files.discard(segment)
            return False
        if outcome.status is Status.LOST:
            self._journal.record(
                SegmentLost(segment.id, outcome.message, outcome.host, outcome.preempted)
            )
            self.files.discard(segment, late=True)
            if another_lives:
                return False
            if outcome.preempted or not self.attempts.at_fault(segment.id):
                self._hand_out(segment)
                return False
        elif another_lives:
            self._ignore(outcome.key, outcome.status)
            self.files.discard(segment)
            return False
        return True

    def take_report(self, report: Report) -> bool:
        """Say whether a report is of an attempt that lives.

        A report of any other attempt is noted.
        """
        lives = self.attempts.find(report.key) is not None
        if not lives:
            self._ignore(report.key, "running")
        return lives

    def _ignore(self, key: AttemptKey, status: str) -> None:
        """Note that an attempt reported which does not count (any more)."""
        if not self.attempts.is_news(key, status):
            return
        name, fence = key
        text = one_line(name)
        self._journal.record(OutcomeIgnored(text, fence.epoch, fence.attempt, str(status)))
        if text not in self._told_of:
            self._told_of.add(text)
            say(
                f"segment {text}: {status} from attempt {fence.attempt} of session {fence.epoch}, "
                "which does not count (any more): ignored"
            )

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log.

        Events of other kinds tell of no segment.
        """
        match event:
            case SegmentEnded(outcome=outcome, segment=segment):
                self._outcomes[segment] = outcome
                self.fresh += 1
                if outcome.checkpoint is not None:
                    self._take_checkpoint(segment, outcome.checkpoint)
            case CheckpointRegained(segment=segment, checkpoint=checkpoint):
                self._take_checkpoint(segment, checkpoint)
            case SegmentLost(segment=segment, host=host, preempted=preempted):
                self.attempts.count_loss(segment, host, preempted=preempted)
            case SessionBegun(facts=facts):
                self.attempts.begin_session(facts.get(EPOCH))
            case CheckpointsCollected(segments=segments):
                for segment in segments:
                    self._sizes.remove(segment)
                    del self.saved[segment]

    def _take_checkpoint(self, segment: SegmentId, checkpoint: Checkpoint) -> None:
        self.saved[segment] = checkpoint
        self._sizes.add(segment, checkpoint)

    def _regain(self, segment: Segment, again: Outcome) -> None:
        """Record the checkpoint of a segment that was trained again.

        Its outcome stays the first.

        Raises:
            StudyError: it failed, or has other values than the first time, so that its checkpoint
                is of another run.
        """
        first = self._outcomes[segment.id]
        why = "" if agree(first, again) else "has other values than those recorded"
        if again.status is not Status.DONE or again.checkpoint is None:
            why = f"ended as {again.status}: {again.message}"
        if why or again.checkpoint is None:
            raise StudyError(
                f"segment {segment.id}, trained again for its checkpoint, {why}; what was recorded "
                "is kept"
            )
        note = TRAINED_AGAIN.format(segment=segment.id)
        self._journal.record(CheckpointRegained(segment.id, again.checkpoint, again.cost, (note,)))
        self.damaged.remove(segment.id)
        self._regained.add(segment.id)

    # -- out: segments -----------------------------------------------------------------------------

    def request(
        self,
        proposal: ProposalId,
        seed: int,
        end: int | None,
        role: SeedRole,
        *,
        whole: bool = True,
    ) -> None:
        """Hand out the next segment of the chain to (proposal, seed).

        Nothing happens where it is out or nothing is left. The chain is trained to step `end`, its
        horizon unchanged; None: where the proposal ends. A segment whose parent saved nothing (its
        trainer cannot) is trained from step 0, and the record says so. `whole` is False of an agent
        that a segment goes on from, which is saved for it.

        Raises:
            StudyError: the checkpoint of another run, to go on from, is not there.
        """
        path = self._lineage.path(proposal, end)
        for place, (link, cut) in enumerate(path):
            outcome = self._outcomes.get(SegmentId(link, seed, cut))
            if outcome is None:
                last = whole and link == path[-1][0]
                self._request_link(path[: place + 1], seed, role, last=last)
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

        If a configuration changed on the way and the parent's checkpoint is gone from the disk, the
        parent is trained again, for its checkpoint alone. `last` says that the path is a whole
        chain, `again` that the outcome of the segment is known already.
        """
        link, cut = path[-1]
        name = SegmentId(link, seed, cut)
        if name in self.in_flight:
            return
        before = [SegmentId(earlier, seed, end) for earlier, end in path[-2:-1]]
        parent = self._outcomes[before[0]] if before else None
        sources = [path[:-1]] if before and not self._lineage.unchanged(link) else []
        if second := self._second(link, seed):
            sources.append(self._lineage.path(second.proposal))
        # All are asked for, not the first alone: they are trained beside each other.
        if not all([self._readable(source, seed, role, again=again) for source in sources]):
            return
        if again:
            say(TRAINED_AGAIN.format(segment=name))
        self._hand_out(self._segment(link, seed, role, parent, cut, last=last))

    def _second(self, proposal: ProposalId, seed: int) -> SegmentId | None:
        """Return the second segment whose agent (proposal, seed) begins with.

        None: it begins with one, or the second failed, as it may on a test seed.
        """
        for second in self._lineage[proposal].sources[1:]:
            *_, end = self._walk(second, seed, None)
            if end is None or end.status is Status.DONE:
                return SegmentId(second, seed)
        return None

    def _readable(
        self,
        path: Sequence[tuple[ProposalId, int | None]],
        seed: int,
        role: SeedRole,
        *,
        again: bool,
    ) -> bool:
        """Say whether the checkpoint at the end of a path is there.

        It is trained again if it is gone, and counts as there if it was never saved.
        """
        link, cut = path[-1]
        source = SegmentId(link, seed, cut)
        if self._available(source):
            return True
        if source not in self._outcomes:
            self.request(link, seed, cut, role, whole=False)
        elif source in self.damaged.unmoved:
            pass  # a running segment reads what lies there
        elif again or source in self.saved:
            self._request_link(path, seed, role, last=False, again=True)
        else:
            return True  # it was never saved: `_segment` says so
        return False

    def drain(self) -> list[Segment]:
        """Return the segments handed out since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def copy(self, segment: SegmentId) -> Segment:
        """Hand out a backup copy of a running segment.

        The copy is one more live attempt. A segment is repeatable to the bit: any attempt may
        win. The copy has another fence and another folder.

        Raises:
            KeyError: the segment is not in flight.
        """
        return self._attempt(self.in_flight[segment], copy=True)

    def drain_superseded(self) -> list[Segment]:
        """Return the attempts beside which another one won since the last call.

        They are to be cancelled, and then what they wrote to be removed (`files.discard`).
        """
        superseded, self._superseded = self._superseded, []
        return superseded

    def _hand_out(self, segment: Segment) -> None:
        self._ready.append(self._attempt(segment, copy=False))

    def _attempt(self, segment: Segment, *, copy: bool) -> Segment:
        fence = self.attempts.next_fence(segment.id)
        while self.files.is_taken(segment.id, fence):
            fence = self.attempts.next_fence(segment.id)
        attempt = self.files.placed(segment, fence, copy=copy)
        self.attempts.begin(attempt)
        self.files.begin(attempt)
        return attempt

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
        task, training_seed = self._spec.plan.parts(seed)
        trainer, config = self._spec.trainer_for(self._lineage[proposal].config, task)
        begin = self._lineage.start(proposal)
        until = self._lineage[proposal].until if cut is None else cut
        name = SegmentId(proposal, seed, cut)
        second = self._second(proposal, seed)
        sources = (parent.segment if parent else None, second)
        gone = [source for source in sources if source and not self._available(source)]
        if gone and not self._lineage.unchanged(proposal):
            raise StudyError(
                f"segment {name} continues {gone[0]}, which has no checkpoint (any more)"
            )
        if gone:
            # One configuration all along: training it again from the start gives the same.
            parent = None
            begin = 0
        exploit = self._lineage[proposal].parent
        save = self._wants_checkpoint(proposal, role) or not last
        checkpoint = None if parent is None else self.saved[parent.segment]
        start = 0 if parent is None else parent.reached
        return Segment(
            id=name,
            trainer=trainer,
            environment=self._spec.environments[task],
            config=config,
            seed=training_seed,
            role=role,
            parent=checkpoint,
            second=self.saved[second] if second else None,
            mean=exploit.mean if isinstance(exploit, Exploit) else "",
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
            model_only=role == "test" and last,
            resources=self._spec.resources_for(self._lineage[proposal].config),
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
        return None not in self._walk(proposal, seed, end)

    def _walk(self, proposal: ProposalId, seed: int, end: int | None) -> Iterator[Outcome | None]:
        """Yield the outcomes of a chain up to its first gap."""
        for link, cut in self._lineage.path(proposal, end):
            outcome = self._outcomes.get(SegmentId(link, seed, cut))
            yield outcome
            if outcome is None or outcome.status is not Status.DONE:
                return

    def curve(self, proposal: ProposalId, seed: int, end: int | None = None) -> Curve:
        """Return the learning curve of (proposal, seed) from step 0 to `end`.

        It goes over every run of its lineage.
        """
        outcomes = filter(None, self._walk(proposal, seed, end))
        return self._join(SegmentId(proposal, seed), list(outcomes))

    def value(self, proposal: ProposalId, seed: int, end: int | None = None) -> SeedValue:
        """Return the objective values of one seed of a proposal."""
        outcomes = list(filter(None, self._walk(proposal, seed, end)))
        curve = self._join(SegmentId(proposal, seed), outcomes)
        return self._judge.value(seed, curve, outcomes[-1].message)

    @property
    def outcomes(self) -> Mapping[SegmentId, Outcome]:
        """How each segment ended, of those that have."""
        return self._outcomes

    def outcome_of(self, segment: SegmentId) -> Outcome | None:
        """Return how a segment ended.

        None as long as it has not.
        """
        return self._outcomes.get(segment)

    def _join(self, segment: SegmentId, outcomes: Sequence[Outcome]) -> Curve:
        """Join the outcomes of a chain that ends with `segment`.

        Or of the first part of it.
        """
        links = self._lineage.chain(segment.proposal)[: len(outcomes) - 1]
        cuts = {self._lineage[link].until for link in links}
        return join(outcomes, cuts.difference(self._spec.evaluation_steps), segment.seed)

    def _curve_to(self, segment: Segment, outcome: Outcome) -> Curve:
        """Join the outcome of a segment to the chain before it."""
        chain = self._lineage.chain(segment.id.proposal)[:-1]
        before = [self._outcomes[SegmentId(link, segment.id.seed)] for link in chain]
        return self._join(segment.id, [*before, outcome])

    # -- checkpoints -------------------------------------------------------------------------------

    def bytes_saved(self, *, lately: bool = False) -> int:
        """Count the bytes of checkpoints and of what running segments wrote.

        Damaged checkpoints count too. `lately`: what segments had written a moment ago will do.
        """
        running = self.files.scratch_bytes(self.attempts.live(), lately=lately)
        return self._sizes.total() + self._aside_bytes + running

    def model(self, proposal: ProposalId, seed: int, end: int | None) -> SegmentId:
        """Return the segment whose checkpoint is the model of (proposal, seed).

        `end` is the step of the model; None: where the proposal ends.
        """
        link, cut = self._lineage.path(proposal, end)[-1]
        return SegmentId(link, seed, cut)

    def heads(self, proposal: ProposalId, seed: int) -> set[SegmentId]:
        """Return the segments that (proposal, seed) goes on from, or ends with."""
        head = self.head(proposal, seed)
        second = self._second(proposal, seed)
        trained = SegmentId(proposal, seed) in self._outcomes
        return {segment for segment in (head, None if trained else second) if segment}

    def head(self, proposal: ProposalId, seed: int) -> SegmentId | None:
        """Return the last trained segment of the chain to (proposal, seed).

        None: there is none.
        """
        segments = [SegmentId(link, seed) for link in reversed(self._lineage.chain(proposal))]
        return next((segment for segment in segments if segment in self._outcomes), None)

    def continued(self) -> set[SegmentId]:
        """Return the segments whose checkpoints training goes on from.

        It does now, or as soon as it can.
        """
        return self._regained | self._parents_in_flight()

    def collect(self, gone: Sequence[SegmentId]) -> None:
        """Delete checkpoints that nothing goes on from."""
        # Taken before the event is applied, which forgets them.
        paths = [self.saved[segment].path for segment in gone]
        # Before they are deleted: a kill in between leaves folders, which `sweep` removes, never a
        # log that names what is gone.
        self._journal.record(CheckpointsCollected(tuple(gone)))
        self._store.when_durable(lambda: remove_own(self._store, paths))

    def _parents_in_flight(self) -> set[SegmentId]:
        """Return the segments whose checkpoints running segments begin with."""
        running = self.in_flight.values()
        return {source.segment for segment in running for source in segment.sources}

    def sweep(self) -> None:
        """Remove what a kill left.

        See `AttemptFiles.sweep`.
        """
        self.files.sweep(self._outcomes.keys(), [saved.path for saved in self.saved.values()])
        self._aside_bytes = self.files.bytes_aside()

    def sweep_storage(self) -> None:
        """Remove from the study's storage what no event names.

        Nothing is in flight then.

        Raises:
            StudyError: another driver has taken the storage over: nothing is removed.
        """
        sweep_storage(self._store, self.saved.values())

    def clear(self) -> None:
        """Give up what is in flight, and remove what it has written.

        No worker is left then. A later session requests the segments again.
        """
        self.files.clear([*self.attempts.live(), *self._superseded])
        for segment in list(self.in_flight):
            self.attempts.end_all(segment)
        self._ready.clear()
        self._superseded.clear()

    def _available(self, segment: SegmentId) -> bool:
        """Say whether a checkpoint to go on from is still there."""
        saved = self.saved.get(segment)
        if saved is None or segment in self.damaged or MODEL_ONLY in saved.files:
            return False
        # The caller's own are not looked for. One in a storage is missed when it is fetched.
        path = saved.path
        return is_url(path) or Path(path).exists() or not self._store.owns(path)

    def _set_aside_damaged(self) -> None:
        """Move damaged checkpoints that no running segment reads out of the way."""
        if self.damaged.unmoved:
            self.damaged.set_aside(self.saved, self._parents_in_flight())
            self._aside_bytes = self.files.bytes_aside()
