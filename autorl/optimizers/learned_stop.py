"""Stopping runs that are unlikely to beat the incumbent.

It stands around any optimizer of full-length runs. A run stops at a rung if the probability that
its final score beats the incumbent is below `threshold`. The probability is of learning curves
(`autorl.optimizers._beat_probability`): those of landscapes, earlier studies and prior files of the
algorithm that `curves` names, which stand in the frozen study file (`curve_data`), and those of the
study's own complete runs, which count more and more. Nothing is stopped before there are
`references` curves and `peers` ended runs, nor before a run has a final score to beat.

A run that is stopped never shows whether that was right. Every `check`-th run that would be stopped
is therefore trained to its end, and counts as the study's own complete runs do: curves that mislead
are found out. A run that fails counts as ended, and has no curve.

    run 3:  Scored(3, 0.2) at rung 1, incumbent 0.9, 12 ended runs
                probability 0.01 < 0.02 -> stop
    run 4:  Scored(7, 0.4) at rung 1 -> 0.11: continue
            Scored(9, 0.4) at rung 2 -> 0.01, the tenth that would stop: continue, to its end
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError, ProposalId, Scored
from autorl.optimizers._beat_probability import BeatProbability, Reference, Standing, own_count
from autorl.optimizers._cut_runs import CutRun, StopOptions, StoppingRule
from autorl.optimizers.base import BaseOptimizer, Problem, Surroundings, option
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.priors.sources import AUTO, NONE, STUDIES, check_sources, gather
from autorl.optimizers.priors.study_curves import StudyCurves, reference_curves, study_curves_of
from autorl.statistics.reductions import parse_reduction

_CURVES_KEY = "optimizer.curves"
MOST_RUNS = 256
"""Ended runs that scores are scaled by: the latest."""


@dataclass(frozen=True)
class LearnedStopOptions(StopOptions):
    peers: int = option(4, "ended runs of the study before one is stopped", minimum=1)
    # PPO loses 0.000 of the range at 0.02 and 0.016 at 0.05 (`benchmarks/learned_stopping.py`).
    threshold: float = option(
        0.02,
        "a run stops if it beats the incumbent with a lower probability",
        minimum=0.0,
        maximum=0.5,
    )
    references: int = option(
        16,
        "complete learning curves, of `curves` and the study, before a run is stopped",
        minimum=2,
    )
    check: int = option(
        10, "every so many-th run that would be stopped goes on to its end; 0: none", minimum=0
    )
    curves: str | Sequence[Any] = option(
        AUTO,
        "landscapes whose learning curves count: auto (those of the optimizer's prior, or all of "
        "the algorithm), none, or a list of ids, folders and prior files",
    )
    curve_data: Mapping[str, Any] | None = option(
        None, "the learning curves; a study writes them when it begins"
    )


class LearnedStop(StoppingRule[LearnedStopOptions]):
    """Stops runs that are unlikely to beat the incumbent, by learning curves."""

    Options = LearnedStopOptions
    resolved: ClassVar[tuple[str, ...]] = ("curve_data",)

    @classmethod
    def resolved_options(
        cls, options: Mapping[str, Any], surroundings: Surroundings
    ) -> Mapping[str, Any]:
        """Read the learning curves that `curves` names.

        Raises:
            InputError: `curves` is none of what it may be, or a source it names cannot be used.
        """
        curves = options.get("curves", AUTO)
        check_sources(curves, _CURVES_KEY, "curves", (AUTO, NONE))
        named = not isinstance(curves, str)
        if curves == AUTO:  # those of the optimizer's prior, which reports its own faults
            prior = options.get("prior", AUTO)
            curves = prior if prior in (NONE, STUDIES) else AUTO
            if isinstance(prior, Sequence) and not isinstance(prior, str):
                curves = [name for name in prior if isinstance(name, str)]
        if options.get("curve_data") is not None or curves == NONE:
            return options
        made = reference_curves(
            gather(curves, surroundings, _CURVES_KEY),
            surroundings.environment,
            n_seeds=surroundings.n_seeds,
            reduction=parse_reduction(surroundings.reduction),
            named=named,
        )
        return {**options, "curve_data": made.to_dict()}

    def __init__(
        self, problem: Problem, options: LearnedStopOptions, inner: BaseOptimizer[Any]
    ) -> None:
        super().__init__(problem, options, inner)
        self.curves = _curves_of(options)
        fractions = [step / problem.horizon for step in self.steps]
        references = []
        for source in self.curves.sources:
            scores, first = source.at(fractions)
            references.append(Reference(scores, first, source.weight))
        self._probability = BeatProbability(references)
        self._ended: dict[ProposalId, CutRun] = {}  # by root, in the order they ended
        self._complete: dict[ProposalId, CutRun] = {}  # of these, those with a final score
        self._doubted = 0  # runs that would be stopped
        self._checked: set[ProposalId] = set()  # roots of those that go on all the same
        self._chances: dict[ProposalId, float] = {}  # by root, at the latest rung

    def outline(self) -> tuple[str, ...]:
        """Say which curves the rule begins with."""
        rule = (
            f"a run stops if it beats the incumbent with a probability below "
            f"{self.options.threshold:g}, after "
            f"{counted(self.options.peers, 'ended run')} and "
            f"{counted(self.options.references, 'learning curve')}"
        )
        lines: tuple[str, ...] = ("no reference curves: curves is none",)
        if self.options.curves != NONE:
            lines = (self.curves.line(),)
        return (*super().outline(), rule, *lines)

    def cautions(self) -> tuple[str, ...]:
        """Say that nothing is stopped, or late."""
        cautions = super().cautions()
        if self.curves.count >= self.options.references:
            return cautions
        count = self.curves.count
        late = self.options.references - count
        consequence = f"no run is stopped before {late} of the study are complete"
        if late >= self.problem.budget:
            consequence = f"no run will be stopped: {late} of the study had to be complete first"
        return (
            *cautions,
            f"stop: learned has {counted(count, 'learning curve')} to begin with, so {consequence}",
        )

    def _stops(self, run: CutRun, scored: Scored) -> bool:
        run.compared = False
        self._chances.pop(run.root, None)
        if run.rung < self.options.grace or run.root in self._checked:
            return False
        chance = self._chance(run)
        if chance is None:
            return False
        run.compared = True
        self._chances[run.root] = chance
        if chance >= self.options.threshold:
            return False
        self._doubted += 1
        if self.options.check and self._doubted % self.options.check == 0:
            self._checked.add(run.root)
            return False
        return True

    def _chance(self, run: CutRun) -> float | None:
        """Return the probability of a run, None where too little is known."""
        curves = self.curves.count + len(self._complete)
        if (
            len(self._ended) < self.options.peers
            or curves < self.options.references
            or not self._complete
        ):
            return None
        best = max(complete.scores[complete.rung] for complete in self._complete.values())
        recent = [ended for ended in self._ended.values() if ended.scores][-MOST_RUNS:]
        first = np.array([ended.scores[0] for ended in recent])
        high = max(max(ended.scores.values()) for ended in recent)
        scores = np.array([run.scores[rung] for rung in range(run.rung + 1)])
        # The model of as many is fitted once: an ask costs the same however long a study is.
        fitted = list(self._complete.values())[: own_count(len(self._complete))]
        standing = Standing.of(first, best, max(high, best))
        return self._probability(scores, standing, len(self._ended), self._curves(fitted))

    def _curves(self, runs: Sequence[CutRun]) -> Array:
        """Return complete runs as curves, shape (runs, rungs).

        One that its trainer stopped keeps its last score.
        """
        rungs = range(len(self.steps))
        rows = [[run.scores[min(rung, run.rung)] for rung in rungs] for run in runs]
        return np.array(rows).reshape(len(runs), len(rungs))

    def _take(self, run: CutRun, from_rung: int) -> None:
        """Take note of a run that has ended."""
        if run.ended:
            self._ended.setdefault(run.root, run)
            if run.complete and run.rung in run.scores:
                self._complete.setdefault(run.root, run)

    def _reason(self, run: CutRun) -> str:
        chance = self._chances.get(run.root)
        if chance is None:
            return ""
        text = f": beats the incumbent with probability {chance:.2f}"
        return f"{text}, a check of the rule" if run.root in self._checked else text


def _curves_of(options: LearnedStopOptions) -> StudyCurves:
    """Return the reference curves that a study has, empty without any.

    Raises:
        InputError: landscapes are named and were not looked up, or the content was changed.
    """
    if options.curve_data is not None:
        return study_curves_of(options.curve_data)
    if not isinstance(options.curves, str):
        message = "landscapes are looked up when a study file is read: `curve_data` is missing"
        raise InputError(message, key="optimizer.curve_data")
    return StudyCurves()
