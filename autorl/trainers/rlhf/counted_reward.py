"""The training signal as a reward function, with counts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from autorl.trainers.language.contract import Signal
from autorl.trainers.language.rewards.composition import Constrained


class CountedReward:
    """The training signal as a reward function, with counts.

    Args:
        name, signal: the training signal.
        grouped: completions of one prompt are held against each other (PPO holds those of a batch).

    Attributes:
        ends: tokens any of which ends a completion. Tokens after the first are padding
            (online DPO).
        tokens: of completions up to their end, that included; of a method that learns from data,
            of its batches.
        completions: that were scored.
        groups, equal_groups: groups of completions it was asked for, and those in which all had the
            same reward.
    """

    ends: Collection[int] = frozenset()

    def __init__(self, name: str, signal: Signal, *, grouped: bool = True) -> None:
        self.__name__ = name  # TRL's logs
        self._signal = signal
        self.grouped = grouped
        self.tokens = 0
        self.completions = 0
        self.groups = 0
        self.equal_groups = 0

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        completion_ids: Iterable[Sequence[int]] = (),
        **rest: object,
    ) -> list[float]:
        """Return a reward for each of n completions.

        Args:
            prompts: n texts.
            completions: n texts.
            completion_ids: the tokens of each completion.
            **rest: columns of the data and other things that TRL gives reward functions.
        """
        self.tokens += sum(self._length(ids) for ids in completion_ids)
        self.completions += len(completions)
        rewards = self._signal(prompts, completions)
        undefined = sum(math.isnan(reward) for reward in rewards)
        if undefined:  # TRL takes NaN for None, and blames a function that returns nothing
            message = (
                f"the reward {self.__name__} is no number, or None, for {undefined} of "
                f"{len(rewards)} completions"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        if self.grouped:
            by_prompt: dict[str, list[float]] = {}
            for prompt, reward in zip(prompts, rewards, strict=True):
                by_prompt.setdefault(prompt, []).append(reward)
            # where no prompt comes twice, the batch is what completions are held against
            groups = [group for group in by_prompt.values() if len(group) > 1] or [rewards]
            for group in groups:
                self.compare(group)
        return rewards

    def compare(self, rewards: Sequence[float]) -> None:
        """Count a group of completions that are held against each other.

        One completion is no group.
        """
        if len(rewards) < 2:
            return
        self.groups += 1
        # not a deviation of 0, which rounding can miss
        self.equal_groups += min(rewards) == max(rewards)

    @property
    def zero_std(self) -> float:
        """Share of the groups so far in which all rewards were equal.

        It is 0 before the first group.
        """
        return self.equal_groups / self.groups if self.groups else 0.0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold, as JSON."""
        signal = self._signal.state() if isinstance(self._signal, Constrained) else None
        groups = [self.groups, self.equal_groups]
        counts = {"tokens": self.tokens, "completions": self.completions, "groups": groups}
        return {"signal": signal, **counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's `state`."""
        self.tokens = state["tokens"]
        self.completions = state["completions"]
        self.groups, self.equal_groups = state["groups"]
        if isinstance(self._signal, Constrained):
            self._signal.load(state["signal"])

    def _length(self, ids: Sequence[int]) -> int:
        """Count the tokens of a completion up to its end, that included."""
        # a tokenizer without padding pads with its end: only the first one counts
        places = (place for place, token in enumerate(ids, start=1) if token in self.ends)
        return next(places, len(ids))
