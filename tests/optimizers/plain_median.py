"""The median stopping rule as it is written down: every decision looks at all runs. Faster code is
held to it."""

from dataclasses import dataclass, field, replace
from statistics import mean, median

from autorl.core.types import Continue, Failed, FrozenMap, Proposal, Proposed, Scored, Wait
from autorl.optimizers.base import BaseOptimizer
from autorl.optimizers.median_stop import MedianStop, MedianStopOptions


@dataclass
class PlainRun:
    root: int
    last: int
    rung: int = 0
    scores: dict = field(default_factory=dict)
    ready: bool = False
    compared: bool = False
    ended: bool = False

    def average(self, rung):
        return mean(score for scored, score in self.scores.items() if scored <= rung)


class PlainMedianStop(BaseOptimizer):
    Options = MedianStopOptions
    partial = True

    def __init__(self, problem, options, inner):
        super().__init__(problem, options)
        self.inner = inner
        self.steps = MedianStop.cuts(problem.horizon, options)
        self._runs = {}

    def _ask(self, rng):
        for run in self._runs.values():
            if run.ready:
                rung = run.rung + 1
                config = self.history[run.root].proposal.config
                meta = FrozenMap(root=run.root, rung=rung)
                informed = run.compared or self.history[run.last].proposal.informed
                origin = f"continue to rung {rung}"
                return Proposal(
                    config,
                    self.steps[rung],
                    Continue(run.last),
                    origin=origin,
                    meta=meta,
                    informed=informed,
                )
        answer = self.inner.ask(rng)
        if isinstance(answer, Proposal):
            return replace(answer, until=self.steps[0], meta=FrozenMap(rung=0, inner=answer.meta))
        return Wait() if self.history.pending else answer

    def _observe(self, event):
        if isinstance(event, Proposed):
            meta = event.proposal.meta
            if "root" in meta:
                run = self._runs[meta["root"]]
                run.last, run.rung, run.ready = event.id, meta["rung"], False
                return
            self._runs[event.id] = PlainRun(event.id, event.id)
            whole = replace(event.proposal, until=self.problem.horizon, meta=meta["inner"])
            self.inner.observe(Proposed(event.id, whole))
            return
        meta = self.history[event.proposal].proposal.meta
        run = self._runs[meta.get("root", event.proposal)]
        if isinstance(event, Scored):
            run.scores[meta["rung"]] = event.values[0]
        if event.proposal != run.last:
            return
        if not run.ended and not run.ready:
            run.ended = isinstance(event, Failed) or self._ends(run, event)
            run.ready = not run.ended
        if run.ended:
            self.inner.observe(replace(event, proposal=run.root))

    def _ends(self, run, scored):
        if (
            run.rung == len(self.steps) - 1
            or not scored.resumable
            or scored.reached < self.steps[run.rung]
        ):
            return True
        others = self._others(run)
        run.compared = run.rung >= self.options.grace and len(others) >= self.options.peers
        if not run.compared:
            return False
        best = max(run.scores.values()) if self.options.against == "averages" else scored.values[0]
        return best < median(others)

    def _others(self, run):
        peers = [
            peer for peer in self._runs.values() if peer is not run and run.rung in peer.scores
        ]
        if self.options.against == "averages":
            return [peer.average(run.rung) for peer in peers if peer.ended]
        return [peer.scores[run.rung] for peer in peers]

    def keeps(self):
        return [
            run.last
            for run in self._runs.values()
            if not run.ended and run.rung < len(self.steps) - 1
        ]
