"""Sobol search: a scrambled low-discrepancy sequence.

Sobol 1967; Owen 1998; direction numbers of Joe and Kuo 2008.

Point i is a function of (seed, i) alone, so a study resumes at the next index whatever happened. An
index whose configuration breaks a condition of the space (forbidden clause, constraint) is skipped,
not repaired: the points that remain are the sequence restricted to the valid region, still evenly
spread there, while repaired points would pile up on its border.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autorl.core.types import Event, InputError, Proposal, Proposed
from autorl.optimizers.base import BaseOptimizer, Problem, option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Indices tried for one proposal; a valid region smaller than 1e-5 of the space is not worth
# searching so.
SKIPS = 100_000


@dataclass(frozen=True)
class SobolOptions:
    seed: int = option(0, "of the scrambling; a study gives its own seed", minimum=0)


class SobolSearch(BaseOptimizer[SobolOptions]):
    """Scrambled Sobol points, spread more evenly than those of random search.
    Results have no part in it.
    """

    Options = SobolOptions
    multi_objective = True
    lag_free = True
    search_kind = "design"
    reads_priors = False

    def __init__(self, problem: Problem, options: SobolOptions) -> None:
        super().__init__(problem, options)
        self._next = 0
        # SciPy's generator, a cache: it stands before the index `_engine.num_generated`.
        self._engine: Any = None

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        for index in range(self._next, self._next + SKIPS):
            config = space.from_unit(self.point(index))
            if space.is_valid(config):
                return self._propose(config, f"sobol {index}", {"index": index})
        raise InputError(
            f"no valid configuration among {SKIPS} Sobol points: use `random`", key="optimizer.name"
        )

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed) and "index" in event.proposal.meta:
            self._next = event.proposal.meta["index"] + 1

    def point(self, index: int) -> NDArray[np.float64]:
        """Return point `index` of the sequence, (n hyperparameters,), in [0, 1)."""
        # The generator goes forward only: for an earlier point it is made anew.
        if self._engine is None or self._engine.num_generated > index:
            from scipy.stats import qmc

            self._engine = qmc.Sobol(
                len(self.problem.space.names), scramble=True, rng=self.options.seed
            )
        if self._engine.num_generated < index:
            self._engine.fast_forward(index - self._engine.num_generated)
        drawn: NDArray[np.float64] = self._engine.random(1)[0]
        return drawn
