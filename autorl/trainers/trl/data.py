"""A task's data as the data sets TRL's trainers take, and its training signal as the reward function they call."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autorl.rlhf.measures import joined
from autorl.rlhf.task import Built, Signal
from autorl.trainers.trl.methods import Method
from autorl.types import InputError


def data_set(method: Method, built: Built) -> Any:
    """What the method is trained on, as a `datasets.Dataset`.

    Raises:
        InputError: the task has nothing of the kind the method needs.
    """
    from datasets import Dataset

    pairs = [
        (prompt, joined(prompt, one), joined(prompt, other)) for prompt, one, other in built.pairs
    ]
    match method.data:
        case "prompts":
            columns: dict[str, list[Any]] = {"prompt": list(built.prompts)}
        case "pairs" | "ranking":
            columns = _columns(("prompt", "chosen", "rejected"), pairs)
        case "unpaired":
            labelled = [
                (prompt, joined(prompt, text), wanted) for prompt, text, wanted in built.labelled
            ]
            taken_apart = [
                (prompt, text, label)
                for prompt, *both in pairs
                for text, label in zip(both, (True, False), strict=True)
            ]
            columns = _columns(("prompt", "completion", "label"), labelled or taken_apart)
        case "completions":
            imitated = [(prompt, joined(prompt, text)) for prompt, text in built.completions]
            columns = _columns(
                ("prompt", "completion"), imitated or [(prompt, text) for prompt, text, _ in pairs]
            )
            if columns and not any(columns["prompt"]):
                columns = {"text": columns["completion"]}
    if not columns:
        raise InputError(
            f"trl/{method.name} is trained on {' or '.join(method.kinds)}; {built.name} has none",
            key="environment",
        )
    return Dataset.from_dict(columns)


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows by column; nothing where there is no row."""
    return (
        dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
        if rows
        else {}
    )


def sequence_tokens(batch: Mapping[str, Any]) -> int:
    """Tokens of the sequences of a batch of a method that learns from data, without padding.

    CPO and ORPO have the prompts apart too, which are in the sequences already. Without a mask nothing is padded: SFT
    can lay sequences end to end.
    """
    names = {name for name in batch if name.endswith("attention_mask")} - {"prompt_attention_mask"}
    return (
        sum(int(batch[name].sum()) for name in names) if names else int(batch["input_ids"].numel())
    )


class Reward:
    """The training signal as a reward function of TRL; counts the tokens of the completions it is shown.

    A signal that learns while it scores (Lagrange multipliers) has `learn`, `state` and `load`; it is copied, so that
    runs do not share what it has learnt.

    Args:
        name, signal: the training signal.
        grouped: completions of one prompt are held against each other (PPO holds those of a batch).

    Attributes:
        ends: tokens any of which ends a completion; what a trainer shows after the first is padding (online DPO).
        tokens: of completions up to their end, that included.
        groups, equal_groups: groups of completions it was asked for, and those in which all had the same reward.
    """

    ends: Collection[int] = frozenset()

    def __init__(self, name: str, signal: Signal, *, grouped: bool = True) -> None:
        self.__name__ = name  # TRL's logs
        self.signal = copy.deepcopy(signal) if hasattr(signal, "learn") else signal
        self._score: Signal = getattr(self.signal, "learn", self.signal)
        self.grouped = grouped
        self.tokens = self.groups = self.equal_groups = 0

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        completion_ids: Any = (),
        **rest: Any,
    ) -> list[float]:
        self.tokens += sum(self._length(ids) for ids in completion_ids)
        rewards = self._score(prompts, completions)
        undefined = sum(math.isnan(reward) for reward in rewards)
        if undefined:  # TRL takes NaN for None, and blames a function that returns nothing
            message = f"the reward {self.__name__} is not a number for {undefined} of {len(rewards)} completions"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        if self.grouped:
            by_prompt: dict[str, list[float]] = {}
            for prompt, reward in zip(prompts, rewards, strict=True):
                by_prompt.setdefault(prompt, []).append(reward)
            groups = [group for group in by_prompt.values() if len(group) > 1] or [rewards]
            for group in groups:
                self.compare(group)
        return rewards

    def compare(self, rewards: Sequence[float]) -> None:
        """Take note of a group of completions that are held against each other, if there are two."""
        if len(rewards) < 2:
            return
        self.groups += 1
        self.equal_groups += min(rewards) == max(rewards)

    @property
    def zero_std(self) -> float:
        """Share of the groups so far in which all rewards were equal; 0 before there is one."""
        return self.equal_groups / self.groups if self.groups else 0.0

    def _length(self, ids: Sequence[int]) -> int:
        return next(
            (place for place, token in enumerate(ids, start=1) if token in self.ends), len(ids)
        )

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON."""
        signal = self.signal.state() if hasattr(self.signal, "state") else None
        return {"signal": signal, "groups": [self.groups, self.equal_groups]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's `state`; those of earlier versions count no groups."""
        self.tokens = state["tokens"]
        self.groups, self.equal_groups = state.get("groups", (0, 0))
        if state["signal"] is not None:
            self.signal.load(state["signal"])  # type: ignore[attr-defined]
