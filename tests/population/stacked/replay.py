"""The replay memories of stacked members: one tensor, (P, capacity, width), and priorities (P, capacity).

References: see `autorl.population.replay`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stacked import rng


class StackedReplay:
    """Transitions of P members that step in lockstep; rows as in `autorl.population.replay.Replay`."""

    def __init__(self, members: int, capacity: int, width: int, prioritized: bool) -> None:
        self.rows = torch.zeros((members, capacity, width), dtype=torch.float64)
        self.priorities = torch.zeros(
            (members, capacity if prioritized else 0), dtype=torch.float64
        )
        self.top = torch.ones(members, dtype=torch.float64)
        self.written = 0

    def __len__(self) -> int:
        return min(self.written, self.rows.shape[1])

    def add(self, rows: Tensor) -> None:
        """Write (P, n_envs, width) rows over the oldest ones; new ones get the largest priority yet."""
        places = (self.written + torch.arange(rows.shape[1])) % self.rows.shape[1]
        self.rows[:, places] = rows
        if self.priorities.shape[1]:
            self.priorities[:, places] = self.top[:, None]
        self.written += rows.shape[1]

    def take(self, batch: Tensor) -> Tensor:
        """(P, n, width) rows of the indices (P, n)."""
        return self.rows.gather(1, batch[..., None].expand(-1, -1, self.rows.shape[2]))

    def sample_uniform(self, seed: Tensor, n: int) -> Tensor:
        """(P, n) indices drawn uniformly, one seed per member."""
        return rng.integer(seed[:, None], torch.arange(n)[None, :], len(self))

    def sample_by_priority(self, seed: Tensor, n: int, beta: Tensor) -> tuple[Tensor, Tensor]:
        """(P, n) indices in proportion to priorities, stratified, and their importance weights."""
        shares = torch.arange(n)[None, :] + rng.uniform(seed[:, None], torch.arange(n)[None, :])
        cumulated = self.priorities.cumsum(1)
        total = cumulated[:, -1:]
        batch = torch.searchsorted(cumulated, total * shares / n, right=True).clamp(
            max=len(self) - 1
        )
        weights = (len(self) * self.priorities.gather(1, batch) / total) ** -beta[:, None]
        return batch, weights / weights.amax(1, keepdim=True)

    def set_priorities(self, batch: Tensor, priorities: Tensor) -> None:
        """Give the rows `batch` (P, n) priorities; the last of a repeated row counts."""
        for i in range(batch.shape[1]):  # in the native engine's order
            self.priorities.scatter_(1, batch[:, i : i + 1], priorities[:, i : i + 1])
        self.top = torch.maximum(self.top, priorities.amax(1))
