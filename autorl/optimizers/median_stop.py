"""The median stopping rule, around any optimizer of full-length runs.

Each run is cut into segments at `rungs` equally spaced steps. When a segment is scored, the run
stops if its best score so far is below the median of the running averages that ended runs had at
the same rung, as in Vizier: the average of a run's scores at this rung and all before. Otherwise it
is continued before anything new is started. `against: scores` compares the score at the rung with
the median of the scores of all other runs there, ended or not. The optimizer inside sees one
proposal per run, and one outcome when the run has ended: the score at the highest rung reached.

    run 3:  Proposed(3, until=20, meta {rung: 0})  Scored(3, 0.7)
                median of averages at rung 0: 0.5 -> continue
            Proposed(9, until=40, resume_from=3, meta {root: 3, rung: 1})  Scored(9, 0.6)
                best 0.7, median 0.8 -> stop
            inside:  Proposed(3, until=100) ..... Scored(3, 0.6)

References:
    Golovin, Solnik, Moitra, Kochanski, Karro and Sculley, "Google Vizier: a service for black-box
    optimization", KDD 2017.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from statistics import mean
from typing import Any

from autorl.core.types import ProposalId, Scored
from autorl.optimizers._cut_runs import CutRun, StopOptions, StoppingRule
from autorl.optimizers.base import BaseOptimizer, Problem, option


@dataclass(frozen=True)
class MedianStopOptions(StopOptions):
    peers: int = option(
        4, "other runs to compare with at a rung before one is stopped there", minimum=1
    )
    against: str = option(
        "averages",
        "`averages`: the best score so far against the running averages of ended runs (Vizier); "
        "`scores`: the score at the rung against those of all others there",
        choices=("averages", "scores"),
    )


class RungValues:
    """One value for each run at a rung, in order.

    Other runs' values there are read without looking at all of them.
    """

    def __init__(self) -> None:
        self._value_of: dict[ProposalId, float] = {}
        self._ascending: list[float] = []

    def put(self, run: ProposalId, value: float) -> None:
        """Set the value of a run, in place of an earlier one."""
        if run in self._value_of:
            del self._ascending[self._place(run)]
        self._value_of[run] = value
        # A search and the shift of an array, not a pass over all runs: studies are linear in their
        # runs (`benchmarks/results/growth.md`).
        insort(self._ascending, value)

    def count_without(self, run: ProposalId) -> int:
        """Count the other runs that have a value."""
        return len(self._ascending) - (run in self._value_of)

    def median_without(self, run: ProposalId) -> float:
        """Return the median of the other runs' values.

        There is at least one of them.
        """
        left_out = self._place(run) if run in self._value_of else len(self._ascending)
        middle, odd = divmod(self.count_without(run), 2)
        places = (middle,) if odd else (middle - 1, middle)
        return sum(self._ascending[place + (place >= left_out)] for place in places) / len(places)

    def _place(self, run: ProposalId) -> int:
        return bisect_left(self._ascending, self._value_of[run])


class MedianStop(StoppingRule[MedianStopOptions]):
    """Stops runs whose best score is below the median of others' averages."""

    Options = MedianStopOptions

    def __init__(
        self, problem: Problem, options: MedianStopOptions, inner: BaseOptimizer[Any]
    ) -> None:
        super().__init__(problem, options, inner)
        # By rung: averages of ended runs, or scores of all.
        self._values = [RungValues() for _ in self.steps]

    def _stops(self, run: CutRun, scored: Scored) -> bool:
        values = self._values[run.rung]
        run.compared = (
            run.rung >= self.options.grace and values.count_without(run.root) >= self.options.peers
        )
        if not run.compared:
            return False
        best = max(run.scores.values()) if self.options.against == "averages" else scored.values[0]
        # "Strictly worse than the median": equal runs go on (Golovin et al. 2017, section 3.2).
        return best < values.median_without(run.root)

    def _take(self, run: CutRun, from_rung: int) -> None:
        """Put what others compare with this run into the values."""
        if self.options.against == "scores":
            if from_rung in run.scores:
                self._values[from_rung].put(run.root, run.scores[from_rung])
            return
        # Only ended runs have averages that others are held against, as Vizier's completed trials.
        if run.ended:
            for rung in run.scores:
                if rung >= from_rung:  # earlier averages do not hold the score that is new
                    until = [score for scored, score in run.scores.items() if scored <= rung]
                    self._values[rung].put(run.root, mean(until))
