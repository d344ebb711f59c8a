"""Random search: independent uniform configurations.

Bergstra and Bengio 2012. It is the baseline of every claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autorl.core.types import Proposal
from autorl.optimizers.base import BaseOptimizer, NoOptions

if TYPE_CHECKING:
    import numpy as np


class RandomSearch(BaseOptimizer[NoOptions]):
    """Configurations drawn uniformly on each hyperparameter's scale.
    Results have no part in it.
    """

    multi_objective = True
    lag_free = True
    search_kind = "design"

    def _ask(self, rng: np.random.Generator) -> Proposal:
        return self._propose(self.problem.space.sample(rng), "random")
