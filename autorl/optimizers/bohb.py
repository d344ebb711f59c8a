"""BOHB: the brackets of Hyperband, started by a tree-structured Parzen estimator.

The model is that of `tpe`, made of the longest runs of which `startup` are scored (10, at most a
quarter of the budget, so that small studies have a model too): scores of different lengths are
never compared. The other part of the new configurations is random, which keeps Hyperband's
guarantee. Promotions continue from checkpoints, and count for the model of each length they
reached.

    eta 2, 3 rungs, horizon 100
    10 runs scored at 25:    new configurations from the model of the runs to 25
    10 runs scored at 50:    ... of the runs to 50
    10 runs scored at 100:   ... of the full runs, from then on

References:
    Falkner, Klein and Hutter, "BOHB: robust and efficient hyperparameter optimization at scale",
    ICML 2018. Theirs is a kernel density of its own; Optuna's (multivariate, conditionals in
    groups, a prior, pending runs as liars) leaves less than half of its regret on a 4-d sphere with
    40 full runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autorl.core.types import Config, Event, Proposed
from autorl.optimizers._startup import startup_size
from autorl.optimizers.base import Problem, option
from autorl.optimizers.hyperband import Hyperband, HyperbandOptions
from autorl.optimizers.tpe import TPE, TPEOptions

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class BOHBOptions(HyperbandOptions, TPEOptions):
    # The authors' HpBandSter has other defaults: a model after n + 1 runs of n hyperparameters, 64
    # samples, a third at random.
    startup: int | None = option(
        None,
        "runs scored at one length before the model of that length is used; "
        "null: 10, at most a quarter of the budget",
        minimum=1,
    )
    random_fraction: float = option(
        0.2, "part of the new configurations drawn at random", minimum=0.0, maximum=1.0
    )


class BOHB(Hyperband[BOHBOptions]):
    """Hyperband's brackets, started by a TPE of the longest runs scored."""

    Options = BOHBOptions
    learns = True

    def __init__(self, problem: Problem, options: BOHBOptions) -> None:
        super().__init__(problem, options)
        self._ended = dict.fromkeys(self.steps, 0)  # runs with an outcome, by length
        self._startup = startup_size(options.startup, problem.budget)
        # The start-up is counted here, by length, so a model that is asked at all is ready.
        at_once = TPEOptions(startup=1, candidates=options.candidates)
        self._models = {step: TPE(problem, at_once) for step in self.steps}
        for model in self._models.values():
            model.history.configs = self.history.configs  # nothing is started twice, at any length

    def blind(self, number: int) -> bool:
        """Tell whether a proposal comes before any model."""
        return super().blind(number) and number < self._startup

    def _draw(self, rng: np.random.Generator) -> tuple[Config, str, bool]:
        # At random, or by the model of the longest runs (Falkner et al. 2018, algorithm 2).
        ready = [step for step, ended in self._ended.items() if ended >= self._startup]
        if not ready or rng.random() < self.options.random_fraction:
            return super()._draw(rng)
        step = max(ready)
        # Not `ask`: the initial configurations are Hyperband's to place.
        proposal = self._models[step]._ask(rng)
        return proposal.config, f"{proposal.origin}, of runs to step {step}", proposal.informed

    def _observe(self, event: Event) -> None:
        number = event.id if isinstance(event, Proposed) else event.proposal
        length = self.history[number].proposal.until
        # A promoted run counts for each length it was scored at, and scores never mix.
        model = self._models[length]
        model.observe(event)
        self._ended[length] = len(model.history) - len(model.history.pending)
        super()._observe(event)
