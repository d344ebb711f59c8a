"""Runs cut into segments, some of which a stopping rule ends.

It stands around an optimizer of full-length runs. Each run is cut at `rungs` equally spaced steps.
When a segment is scored, the rule says whether the run is stopped; otherwise it is continued before
anything new is started. The optimizer inside sees one proposal per run, and one outcome when the
run has ended: the score at the highest rung reached.

    run 3:  Proposed(3, until=20, meta {rung: 0})  Scored(3, 0.7)  -> the rule: continue
            Proposed(9, until=40, resume_from=3, meta {root: 3, rung: 1})  Scored(9, 0.6)
                -> the rule: stop
            inside:  Proposed(3, until=100) ..... Scored(3, 0.6)
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autorl.core.types import (
    Continue,
    Done,
    Event,
    Failed,
    FrozenMap,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    Wait,
)
from autorl.optimizers.base import BaseOptimizer, Problem, equal_parts, option

if TYPE_CHECKING:
    import numpy as np


@dataclass
class CutRun:
    """A chain of segments.

    Attributes:
        root: its first segment.
        last: its newest segment.
        rung: of the newest segment.
        scores: the latest by rung.
        watched: `Scored.watched` beside them.
        compared: with others, at its latest rung.
        ended: nothing continues it.
        complete: ended by itself: at the last rung, or where its trainer stopped it.
    """

    root: ProposalId
    last: ProposalId
    rung: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    watched: dict[int, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    compared: bool = False
    ended: bool = False
    complete: bool = False


@dataclass(frozen=True)
class StopOptions:
    rungs: int = option(5, "segments a run is cut into", minimum=2)
    grace: int = option(1, "rungs at which nothing is stopped", minimum=0)


S = TypeVar("S", bound=StopOptions)


class StoppingRule(BaseOptimizer[S]):
    """Cuts runs at rungs, and continues each run unless it stops it."""

    partial = True

    @classmethod
    def cuts(cls, horizon: int, options: S) -> tuple[int, ...]:
        return equal_parts(horizon, options.rungs)

    def __init__(self, problem: Problem, options: S, inner: BaseOptimizer[Any]) -> None:
        super().__init__(problem, options)
        self.inner = inner
        self.takes_enqueued = inner.takes_enqueued
        self.steps = self.cuts(problem.horizon, options)
        self._runs: dict[ProposalId, CutRun] = {}  # by root
        self._going: dict[ProposalId, CutRun] = {}  # of these, those that have not ended
        self._ready: list[ProposalId] = []  # roots of runs to be continued, ascending

    @abstractmethod
    def _stops(self, run: CutRun, scored: Scored) -> bool:
        """Tell whether a run just scored, which could go on, is stopped."""

    def _take(self, run: CutRun, from_rung: int) -> None:
        """Take note of an ended run, or of a new score."""

    def _reason(self, run: CutRun) -> str:
        """Say why a run is continued, or nothing."""
        return ""

    def outline(self) -> tuple[str, ...]:
        """Describe what the optimizer inside describes."""
        return self.inner.outline()

    def cautions(self) -> tuple[str, ...]:
        """Say what the optimizer inside says."""
        return self.inner.cautions()

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        if self._ready:
            run = self._runs[self._ready[0]]
            rung = run.rung + 1
            config = self.history[run.root].proposal.config
            meta = FrozenMap(root=run.root, rung=rung)
            return Proposal(
                config,
                self.steps[rung],
                parent=Continue(run.last),
                origin=f"continue to rung {rung}{self._reason(run)}",
                meta=meta,
                informed=run.compared or self.history[run.last].proposal.informed,
            )
        answer = self.inner.ask(rng)
        if isinstance(answer, Proposal):
            # Its own meta goes along, wrapped: it is handed back when this is observed.
            meta = FrozenMap(rung=0, inner=answer.meta)
            return replace(answer, until=self.steps[0], meta=meta)
        # Done inside is not done here: a run in training may have to be continued.
        return Wait() if self.history.pending else answer

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._start_or_continue(event)
            return
        meta = self.history[event.proposal].proposal.meta
        run = self._runs[meta.get("root", event.proposal)]
        if isinstance(event, Scored):
            run.scores[meta["rung"]] = event.values[0]
            run.watched[meta["rung"]] = event.watched
            self._take(run, from_rung=meta["rung"])
        if event.proposal != run.last:
            return  # more seeds at a lower rung: news for the other runs only
        # Decided once: a later score of a run that waits to go on changes what others compare with.
        if not run.ended and run.root not in self._ready:
            run.ended = isinstance(event, Failed) or self._ends(run, event)
            if run.ended:
                del self._going[run.root]
                self._take(run, from_rung=0)
            else:
                insort(self._ready, run.root)
        if run.ended:  # also when a later score supersedes the one it ended with
            self.inner.observe(replace(event, proposal=run.root))

    def _start_or_continue(self, event: Proposed) -> None:
        meta = event.proposal.meta
        if "root" in meta:
            run = self._runs[meta["root"]]
            run.last = event.id
            run.rung = meta["rung"]
            self._ready.remove(run.root)
            return
        self._runs[event.id] = self._going[event.id] = CutRun(event.id, event.id)
        # The optimizer inside knows full-length runs only.
        uncut = replace(event.proposal, until=self.problem.horizon, meta=meta["inner"])
        self.inner.observe(Proposed(event.id, uncut))

    def _ends(self, run: CutRun, scored: Scored) -> bool:
        """Tell whether a run just scored at its rung goes no further."""
        last = run.rung == len(self.steps) - 1
        run.complete = last or scored.reached < self.steps[run.rung]
        return run.complete or not scored.resumable or self._stops(run, scored)

    def keeps(self) -> Collection[ProposalId]:
        """Return the newest segments of runs that are pending or go on.

        Segments at the last rung are left out.
        """
        return [run.last for run in self._going.values() if run.rung < len(self.steps) - 1]
