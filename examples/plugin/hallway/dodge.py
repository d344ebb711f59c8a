"""DODGE(epsilon): settings that bring nothing new become taboo.

A setting is a choice, or a part of a number's range. A score within epsilon of an earlier one says that its settings
are redundant: their weights fall by one, otherwise they rise. The draw of the greatest weight is trained; after some
draws its numbers are those between the best configuration and half way to the worst.

Agrawal et al., "How to 'DODGE' complex software analytics", 2019 (arXiv 1902.01838).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autorl.core.types import Proposal, Scored
from autorl.optimizers import BaseOptimizer, Record, option

DRAWS = 16  # of which the one of the greatest weight is trained

Setting = tuple[int, int]  # of which hyperparameter, and which of its choices or parts


@dataclass(frozen=True)
class DodgeOptions:
    epsilon: float = option(
        0.2,
        "scores are alike that differ by less, in parts of their range",
        minimum=0.0,
        maximum=1.0,
    )
    startup: int = option(12, "scores before numbers are narrowed down", minimum=2)
    parts: int = option(4, "settings that a number's range is divided into", minimum=2)


class Dodge(BaseOptimizer[DodgeOptions]):
    """Avoids settings whose scores were like earlier ones (Agrawal et al. 2019)."""

    Options = DodgeOptions
    learns = True

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        scored = [record for record in self.history if isinstance(record.result, Scored)]
        weights = self._weights(scored)
        draws = [space.to_unit(self._sampled(rng)) for _ in range(DRAWS)]
        unit = max(draws, key=lambda draw: sum(weights[one] for one in self._settings(draw)))
        if len(scored) >= self.options.startup:
            ranked = sorted(scored, key=lambda record: record.values)
            worst, best = (space.to_unit(ranked[place].proposal.config) for place in (0, -1))
            narrow = best + rng.uniform(0.0, 0.5, len(unit)) * (worst - best)
            numbers = np.array([space.hyperparameters[name].numeric for name in space.names])
            unit = np.where(numbers & ~np.isnan(narrow), narrow, unit)
        # Whatever a condition leaves out is in the middle, and `decode` repairs what breaks a rule.
        config = space.decode(np.where(np.isnan(unit), 0.5, unit), rng)
        return self._propose(config, "dodge", informed=bool(scored))

    def _weights(self, scored: list[Record]) -> Counter[Setting]:
        """The weight of every setting that was scored: a function of the history alone."""
        values = [record.values[0] for record in scored]
        width = self.options.epsilon * (max(values) - min(values)) if values else 0.0
        weights: Counter[Setting] = Counter()
        different: list[float] = []
        for record, value in zip(scored, values, strict=True):
            alike = any(abs(value - other) <= width for other in different)
            for setting in self._settings(self.problem.space.to_unit(record.proposal.config)):
                weights[setting] += -1 if alike else 1
            if not alike:
                different.append(value)
        return weights

    def _settings(self, unit: np.ndarray) -> Iterator[Setting]:
        space = self.problem.space
        for place, name in enumerate(space.names):
            if not np.isnan(unit[place]):
                parts = space.hyperparameters[name].n_choices or self.options.parts
                yield place, min(parts - 1, int(unit[place] * parts))
