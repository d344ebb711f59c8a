"""Has every trainer of TRL read prompts as evaluation does.

Evaluation (`autorl.rlhf.sampling`, `autorl.rlhf.completion_scores`), and most of TRL, begin a
sequence as the tokenizer itself does. CPO and ORPO put a beginning of sequence before every prompt
as soon as the tokenizer names one, and online DPO never puts one: their policies would be trained
on other inputs than they are evaluated on.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.trainers.trl.methods import Method

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer

_READERS: Mapping[str, str] = {
    "cpo": "tokenize_row",
    "orpo": "tokenize_row",
    "online_dpo": "_generate",
}
"""Where TRL turns prompts into tokens by a rule of its own, by method."""


class AsItIs:
    """A tokenizer that always adds what it adds by itself.

    It names no beginning of sequence to add. Only for reading: the tokenizer it stands for stays as
    it is and goes with the checkpoint.
    """

    # CPO and ORPO put what is named here before a prompt
    bos_token_id = None

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: object, **options: object) -> Any:
        # online DPO and CPO ask for none, which leaves a tokenizer's own out too
        return self._tokenizer(*texts, **{**options, "add_special_tokens": True})


def as_evaluated(trainer_class: type[Trainer], method: Method) -> Any:
    """Return a class of trainers that reads as evaluation does.

    It is `trainer_class` but for a method with a rule of its own.
    """
    name = _READERS.get(method.name)
    if name is None:
        return trainer_class
    read = getattr(trainer_class, name)

    @functools.wraps(read)
    def reading(self: Trainer, *arguments: object, **named: object) -> Any:
        tokenizer = self.processing_class
        self.processing_class = AsItIs(tokenizer)
        try:
            return read(self, *arguments, **named)
        finally:
            # the checkpoint gets the tokenizer itself
            self.processing_class = tokenizer

    return type(trainer_class.__name__, (trainer_class,), {name: reading})
