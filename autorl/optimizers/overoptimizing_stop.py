"""Stops runs that over-optimise: KL predicts that they end below others.

Under a proxy the score rises, turns and falls with the distance from the reference policy, as
d = sqrt(KL) says: score = a + d (b - c log d). The fastest learner turns first, so scores at a rung
rank runs wrongly. Here the law is fitted to all runs at the rung, KL is taken to grow on as between
a run's last two evaluations, and the score that the law predicts at the end is compared with the
quantile of those of the others.

References:
    Gao, Schulman and Hilton, "Scaling laws for reward model overoptimization", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from autorl.core.types import Scored
from autorl.optimizers._cut_runs import CutRun, StopOptions, StoppingRule
from autorl.optimizers.base import option

_KL = "kl"
_MOST = 256  # runs the law is fitted to, the newest: an ask costs the same however long a study is


@dataclass(frozen=True)
class OveroptimizingStopOptions(StopOptions):
    rungs: int = option(2, "segments a run is cut into", minimum=2)
    grace: int = option(0, "rungs at which nothing is stopped", minimum=0)
    peers: int = option(
        8, "other runs to compare with at a rung before one is stopped there", minimum=3
    )
    keep: float = option(0.25, "share of the runs at a rung that go on", minimum=0.0, maximum=1.0)


class OveroptimizingStop(StoppingRule[OveroptimizingStopOptions]):
    """Stops runs whose score, predicted by KL, ends below others'."""

    Options = OveroptimizingStopOptions
    watches: ClassVar[tuple[str, ...]] = (_KL,)

    def _stops(self, run: CutRun, scored: Scored) -> bool:
        rung = run.rung
        newest = reversed(self._runs.values())
        peers = (peer for peer in newest if peer is not run and rung in peer.scores)
        runs = [run, *islice(peers, _MOST)]
        run.compared = rung >= self.options.grace and len(runs) > self.options.peers
        if not run.compared:
            return False
        predicted = self._predicted(runs, rung)
        return predicted[0] < float(np.quantile(predicted[1:], 1.0 - self.options.keep))

    def _predicted(self, runs: Sequence[CutRun], rung: int) -> list[float]:
        """Predict the scores at the end of runs from a rung."""
        scores = np.array([run.scores[rung] for run in runs])
        curves = [(0.0, *run.watched[rung][_KL]) for run in runs]
        now = np.array([curve[-1] for curve in curves])
        # Per evaluation; they are as far apart as the first is from step 0.
        growth = now - [curve[-2] for curve in curves]
        step = self.steps[rung]
        to_come = (self.problem.horizon - step) * (len(curves[0]) - 1) / step
        law, *_ = np.linalg.lstsq(np.c_[np.ones(len(now)), _terms(now)], scores, rcond=None)
        change = _terms(now + np.maximum(0.0, growth) * to_come) - _terms(now)
        predicted: list[float] = (scores + change @ law[1:]).tolist()
        return predicted


def _terms(kl: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return d and d log d of the law, (n, 2)."""
    distance = np.sqrt(np.maximum(kl, 0.0))
    return np.stack([distance, distance * np.log(np.maximum(distance, 1e-9))], axis=1)
