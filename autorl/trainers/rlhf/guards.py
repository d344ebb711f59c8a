"""Rules on a run's own evaluations that end it: over-optimisation, and collapse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from autorl.core.numbers import check_number
from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.trainers.language.contract import COLLAPSE
from autorl.trainers.shared import train_metric

PATIENCE = 3
DIVERGING = "diverging"
_BOUNDS: Mapping[str, float] = {
    "kl": 1.5,  # of the landscapes' configurations above it (per token) none of RL beat its start
    "entropy": 0.01,
    "reward_std": 1e-6,  # rounding can miss 0
    "evaluations": PATIENCE,
}
_WORDS = {
    "kl": "KL above {:g} nats per token",
    "entropy": "entropy below {:g} nats per token",
    "reward_std": "constant rewards (deviation below {:g})",
}


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
        """Note of the record on a stopped run."""
        return (
            f"over-optimisation guard: {self.training} rose and {self.selection} fell for "
            f"{counted(self.patience, 'evaluation')} in a row"
        )


class Collapse:
    """Stops a run that has collapsed, for several `evaluations` in a row.

    KL to the reference policy is above a bound, entropy below one (both in nats per token), or the
    rewards of an update do not differ. The run is scored normally.

    Args:
        bounds: as `collapse_bounds` returns them.
        counts: evaluations in a row that each bound was broken in, up to now.
    """

    def __init__(self, bounds: Mapping[str, float], counts: Mapping[str, int]) -> None:
        self.bounds = bounds
        self.counts = dict(counts)
        self.note = ""

    def tripped(self, metrics: Mapping[str, float]) -> bool:
        """Record an evaluation and say whether the run is to stop."""
        per_token = metrics.get("kl", 0.0) / max(1.0, metrics.get("length", 1.0))
        beyond = {"kl": per_token > self.bounds.get("kl", math.inf)}
        for name in ("entropy", "reward_std"):
            bound = self.bounds.get(name, -math.inf)
            beyond[name] = metrics.get(train_metric(name), math.inf) < bound
        self.counts = {name: (self.counts.get(name, 0) + 1) * now for name, now in beyond.items()}
        for name, count in self.counts.items():
            if self.bounds and count >= self.bounds["evaluations"]:
                what = _WORDS[name].format(self.bounds[name])
                self.note = f"{COLLAPSE}{what} for {counted(count, 'evaluation')} in a row"
        return bool(self.note)


def collapse_bounds(stop: object) -> Mapping[str, float]:
    """Read the option `stop`: the bounds of a collapse, empty without.

    Raises:
        InputError: it is neither `diverging` nor a mapping of bounds.
    """
    if stop is None or stop == DIVERGING:
        return {} if stop is None else _BOUNDS
    key = "trainer.kwargs.stop"
    if not isinstance(stop, Mapping) or not stop.keys() <= _BOUNDS.keys():
        message = f"expected {DIVERGING}, or some of {', '.join(_BOUNDS)} by name, got {stop!r}"
        raise InputError(message, key=key)
    for name, bound in stop.items():
        check_number(bound, f"{key}.{name}", name == "evaluations", whole=name == "evaluations")
    return {"evaluations": PATIENCE, **stop}
