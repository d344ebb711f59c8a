"""A (1+1) evolution strategy: a whole optimizer on one page."""

from dataclasses import dataclass

import numpy as np

from autorl.core.types import Proposal, Scored
from autorl.optimizers import BaseOptimizer, Record, option

GROWTH = 1.5  # of the step after a success; four failures undo one success (the one-fifth rule)
WIDEST = 0.5


@dataclass(frozen=True)
class OnePlusOneOptions:
    step: float = option(0.2, "first step, in units of a range", minimum=0.01, maximum=WIDEST)


class OnePlusOne(BaseOptimizer[OnePlusOneOptions]):
    """Steps from the best configuration; the step grows with success (Kern et al. 2004)."""

    Options = OnePlusOneOptions
    learns = True

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        parent, step = self._parent_and_step()
        if parent is None:
            return self._propose(space.sample(rng), "random")
        middle = space.to_unit(parent.proposal.config)  # NaN where a condition leaves one out
        middle = np.where(np.isnan(middle), 0.5, middle)
        child = (middle + rng.normal(0.0, step, len(middle))).clip(0.0, 1.0)
        # `decode` repairs what breaks a rule of the space.
        return self._propose(space.decode(child, rng), f"child of {parent.id}", informed=True)

    def _parent_and_step(self) -> tuple[Record | None, float]:
        """The best run so far and the step that its predecessors led to.

        A function of the history alone: a study that was killed goes on without any other state.
        """
        parent, step = None, self.options.step
        for record in self.history:
            if not isinstance(record.result, Scored):  # in training, or failed
                continue
            better = parent is None or record.values > parent.values
            if parent is not None:
                step *= GROWTH if better else GROWTH**-0.25
            if better:
                parent = record
        return parent, min(step, WIDEST)
