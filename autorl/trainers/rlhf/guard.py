"""The over-optimisation guard: a rule on a run's own evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from autorl.plain_text import counted

PATIENCE = 3


class Guard:
    """Stops a run whose training signal rises while its held-out score falls.

    Both are measured on held-out prompts, and have to do so for `patience` evaluations in a row.
    The run is scored normally; with `reduce: best` at its best step.

    Args:
        patience: evaluations in a row; 0 = never stop.
        training, selection: the metrics compared. With "" for the training signal no run is
            stopped.
        history: (training, selection) of earlier evaluations of the chain, oldest first.
    """

    def __init__(
        self, patience: int, training: str, selection: str, history: Sequence[Sequence[float]] = ()
    ) -> None:
        self.patience = patience
        self.training = training
        self.selection = selection
        self.history: list[tuple[float, float]] = [
            (float(signal), float(score)) for signal, score in history
        ]

    def tripped(self, metrics: Mapping[str, float]) -> bool:
        """Record an evaluation and say whether the run is to stop."""
        # one metric as both can never rise and fall at once
        if not self.patience or self.training in ("", self.selection):
            return False
        if self.training not in metrics or self.selection not in metrics:
            return False
        self.history.append((metrics[self.training], metrics[self.selection]))
        latest = self.history[-self.patience - 1 :]
        # k changes need k + 1 evaluations
        if len(latest) <= self.patience:
            return False
        return all(now[0] > before[0] and now[1] < before[1] for before, now in pairwise(latest))

    @property
    def note(self) -> str:
        """What the record says of a stopped run."""
        return (
            f"over-optimisation guard: {self.training} rose and {self.selection} fell for "
            f"{counted(self.patience, 'evaluation')} in a row"
        )
