"""The median stopping rule (Golovin et al., Vizier, KDD 2017), around any optimizer of full-length runs.

Each run is cut into segments at `rungs` equally spaced steps. When a segment is scored, the run stops if its best score
so far is below the median of the running averages that ended runs had at the same rung, as in Vizier: the average of a
run's scores at this rung and all before. Otherwise it is continued before anything new is started. `against: scores`
compares the score at the rung with the median of the scores of all other runs there, ended or not, and
was the rule of earlier versions. The optimizer inside sees one proposal per run, and one outcome when the run has
ended: the score at the highest rung reached.

    run 3:  Proposed(3, until=20, meta {rung: 0})  Scored(3, 0.7)   median of averages at rung 0: 0.5 -> continue
            Proposed(9, until=40, resume_from=3, meta {root: 3, rung: 1})  Scored(9, 0.6)  best 0.7, median 0.8 -> stop
            inside:  Proposed(3, until=100) ............................................... Scored(3, 0.6)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from autorl.optimizers.base import BaseOptimizer, Problem, equal_parts, option
from autorl.types import Done, Event, Failed, FrozenMap, Proposal, ProposalId, Proposed, Scored, Wait

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class MedianStopOptions:
    rungs: int = option(5, "segments a run is cut into", minimum=2)
    grace: int = option(1, "rungs at which nothing is stopped", minimum=0)
    peers: int = option(4, "other runs to compare with at a rung before one is stopped there", minimum=1)
    against: str = option(
        "averages",
        "`averages`: the best score so far against the running averages of ended runs (Vizier); `scores`: the score at "
        "the rung against those of all others there",
        choices=("averages", "scores"),
    )


@dataclass
class _Run:
    """A chain of segments. `scores` by rung, the latest of each; `last` the newest segment."""

    root: ProposalId
    last: ProposalId
    rung: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    ready: bool = False  # scored and worth continuing
    compared: bool = False  # with others, at its latest rung

    def average(self, rung: int) -> float:
        """Mean of its scores at a rung and all before."""
        return mean(score for scored, score in self.scores.items() if scored <= rung)

    ended: bool = False


class MedianStop(BaseOptimizer[MedianStopOptions]):
    """Stops runs whose best score is below the median of the running averages of others."""

    Options = MedianStopOptions
    partial = True

    def __init__(self, problem: Problem, options: MedianStopOptions, inner: BaseOptimizer[Any]) -> None:
        super().__init__(problem, options)
        self.inner = inner
        self.steps = self.cuts(problem.horizon, options)
        self._runs: dict[ProposalId, _Run] = {}  # by root

    @classmethod
    def cuts(cls, horizon: int, options: MedianStopOptions) -> tuple[int, ...]:
        return equal_parts(horizon, options.rungs)

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        for run in self._runs.values():
            if run.ready:
                rung = run.rung + 1
                config = self.history[run.root].proposal.config
                meta = FrozenMap(root=run.root, rung=rung)
                origin, informed = f"continue to rung {rung}", run.compared or self.history[run.last].proposal.informed
                return Proposal(config, self.steps[rung], run.last, origin=origin, meta=meta, informed=informed)
        answer = self.inner.ask(rng)
        if isinstance(answer, Proposal):
            meta = FrozenMap(rung=0, inner=answer.meta)
            return replace(answer, until=self.steps[0], meta=meta)
        return Wait() if self.history.pending else answer

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            self._start_or_continue(event)
            return
        meta = self.history[event.proposal].proposal.meta
        run = self._runs[meta.get("root", event.proposal)]
        if isinstance(event, Scored):
            run.scores[meta["rung"]] = event.values[0]
        if event.proposal != run.last:
            return  # more seeds at a lower rung: news for the other runs only
        if not run.ended and not run.ready:
            run.ended = isinstance(event, Failed) or self._ends(run, event)
            run.ready = not run.ended
        if run.ended:
            self.inner.observe(replace(event, proposal=run.root))

    def _start_or_continue(self, event: Proposed) -> None:
        meta = event.proposal.meta
        if "root" in meta:
            run = self._runs[meta["root"]]
            run.last, run.rung, run.ready = event.id, meta["rung"], False
            return
        self._runs[event.id] = _Run(event.id, event.id)
        whole = replace(event.proposal, until=self.problem.horizon, meta=meta["inner"])
        self.inner.observe(Proposed(event.id, whole))

    def _ends(self, run: _Run, scored: Scored) -> bool:
        """Whether a run that was just scored at its rung goes no further."""
        if run.rung == len(self.steps) - 1 or not scored.resumable or scored.reached < self.steps[run.rung]:
            return True
        others = self._others(run)
        run.compared = run.rung >= self.options.grace and len(others) >= self.options.peers
        if not run.compared:
            return False
        best = max(run.scores.values()) if self.options.against == "averages" else scored.values[0]
        return best < median(others)

    def _others(self, run: _Run) -> list[float]:
        """What a run is compared with at its rung, one value for each other run."""
        peers = [peer for peer in self._runs.values() if peer is not run and run.rung in peer.scores]
        if self.options.against == "averages":
            return [peer.average(run.rung) for peer in peers if peer.ended]
        return [peer.scores[run.rung] for peer in peers]

    def keeps(self) -> Collection[ProposalId]:
        """The newest segment of every run that is pending or to be continued, unless it is the last rung."""
        return [run.last for run in self._runs.values() if not run.ended and run.rung < len(self.steps) - 1]
