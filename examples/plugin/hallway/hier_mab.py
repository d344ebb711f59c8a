"""Hier-MAB: a bandit chooses which hyperparameter changes, a second one to which value.

Both pull the arm of the highest upper confidence bound, Q + alpha * sqrt(ln t / n). Numbers have a few levels.

Fu et al., "AutoRAG-HP: automatic online hyper-parameter tuning for retrieval-augmented generation", 2024
(arXiv 2406.19251). There a pull is a batch of new queries, and all else stays as in the pull before. Here the same
configuration has the same score, so the best pair of arms is pulled whose configuration is new, and all else is as in
the best configuration so far: walking from pull to pull finds 9 or 10 of 12 in the test, not 12.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.core.types import Proposal, Scored
from autorl.optimizers import BaseOptimizer, option


@dataclass(frozen=True)
class HierMABOptions:
    alpha: float = option(1.0, "weight of arms that were rarely pulled", minimum=0.0)
    levels: int = option(5, "values that a number can have", minimum=2)


class HierMAB(BaseOptimizer[HierMABOptions]):
    """Bandits in two levels: which hyperparameter changes, and to which value (Fu et al. 2024)."""

    Options = HierMABOptions
    learns = True

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        scored = [record for record in self.history if isinstance(record.result, Scored)]
        best = max(scored, key=lambda record: record.values).proposal.config if scored else None
        unit = space.to_unit(best or space.default())
        places = [
            place
            for place, name in enumerate(space.names)
            if space.hyperparameters[name].varies and not np.isnan(unit[place])
        ]
        pulls = self._pulls([record.values[0] for record in scored])
        proposals = []
        for place in self._ranked(places, pulls[None], rng):
            count = space.hyperparameters[space.names[place]].n_choices
            for level in self._ranked(range(count or self.options.levels), pulls[place], rng):
                changed = np.where(np.isnan(unit), 0.5, unit)
                changed[place] = (
                    (level + 0.5) / count if count else level / (self.options.levels - 1)
                )
                config = space.decode(changed, rng)  # repairs what breaks a rule
                origin = f"{space.names[place]}, level {level}"
                meta = {"place": place, "level": level}
                proposals.append(self._propose(config, origin, meta, informed=bool(scored)))
                if config not in self.history.configs:
                    return proposals[-1]
        return proposals[0]

    def _pulls(self, scores: list[float]) -> dict[Any, list[tuple[int, float | None]]]:
        """Arms and rewards of every bandit: that of the hyperparameters is None, the others are by place."""
        low = min(scores, default=0.0)
        width = max(scores, default=0.0) - low
        pulls = defaultdict(list)
        for record in self.history:
            if "place" not in record.proposal.meta:
                continue
            reward = None if record.result is None else 0.0  # pending, or failed
            if isinstance(record.result, Scored) and width > 0:
                reward = (record.values[0] - low) / width
            place, level = (record.proposal.meta[name] for name in ("place", "level"))
            pulls[None].append((place, reward))
            pulls[place].append((level, reward))
        return pulls

    def _ranked(self, arms: Any, pulls: list[tuple[int, float | None]], rng: Any) -> list[int]:
        """The arms by their upper confidence bounds, the highest first, equal ones by chance."""

        def bound(arm: int) -> float:
            mine = [reward for pulled, reward in pulls if pulled == arm]
            if not mine:
                return math.inf
            rewards = [reward for reward in mine if reward is not None] or [0.0]
            spread = self.options.alpha * math.sqrt(math.log(len(pulls)) / len(mine))
            return float(np.mean(rewards)) + spread

        shuffled = [int(arm) for arm in rng.permutation(list(arms))]
        return sorted(shuffled, key=bound, reverse=True)
