"""A task's data as the data sets that TRL's trainers take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError
from autorl.trainers.language.contract import Built
from autorl.trainers.language.models import load_tokenizer
from autorl.trainers.language.sampling import joined
from autorl.trainers.trl.methods import Method

if TYPE_CHECKING:
    from torch import Tensor


def data_set(method: Method, built: Built) -> Any:
    """Return what the method is trained on, as a `datasets.Dataset`.

    Raises:
        InputError: the task has nothing of the kind the method needs.
    """
    from datasets import Dataset

    # TRL puts prompt and completion together as they are, without a space between words
    pairs = [
        {"prompt": prompt, "chosen": joined(prompt, better), "rejected": joined(prompt, worse)}
        for prompt, better, worse in built.pairs
    ]
    rows: list[dict[str, Any]] = pairs
    match method.data:
        case "prompts":
            rows = [{"prompt": prompt} for prompt in built.prompts]
        case "unpaired":
            rows = [
                {"prompt": prompt, "completion": joined(prompt, text), "label": label}
                for prompt, text, label in built.labelled
            ]
            # for KTO and BCO a pair is a completion that is wanted and one that is not
            rows = rows or [
                {"prompt": pair["prompt"], "completion": pair[name], "label": name == "chosen"}
                for pair in pairs
                for name in ("chosen", "rejected")
            ]
        case "completions":
            imitated = [(prompt, joined(prompt, text)) for prompt, text in built.completions]
            imitated = imitated or [(pair["prompt"], pair["chosen"]) for pair in pairs]
            rows = [{"prompt": prompt, "completion": text} for prompt, text in imitated]
            # SFT trains on every token of `text`, of a completion on that alone
            if not any(prompt for prompt, _ in imitated):
                rows = [{"text": text} for _, text in imitated]
    if not rows:
        raise InputError(
            f"trl/{method.name} is trained on {' or '.join(method.learns_from)}; "
            f"{built.name} has none",
            key="environment",
        )
    return Dataset.from_list(rows)


def check_lengths(method: Method, built: Built, most: int) -> None:
    """Raise `InputError` if every prompt alone fills the limit of a sequence.

    TRL leaves such rows out.
    """
    rows = data_set(method, built)
    if "prompt" not in rows.column_names:
        return
    tokens = load_tokenizer(built.reference)(list(rows["prompt"]))["input_ids"]
    shortest = min(map(len, tokens))
    if shortest >= most:
        raise InputError(
            f"a limit of {most} tokens leaves none of the {len(rows)} rows to train on: "
            f"the shortest prompt has {shortest}",
            key="trainer.kwargs.max_length",
        )


def sequence_tokens(batch: Mapping[str, Tensor]) -> int:
    """Count the tokens in a batch of data, without padding.

    CPO and ORPO have the prompts apart too, which are in the sequences already. A batch without a
    mask has no padding: SFT can lay sequences end to end.
    """
    masks = {name for name in batch if name.endswith("attention_mask")} - {"prompt_attention_mask"}
    if not masks:
        return int(batch["input_ids"].numel())
    return sum(int(batch[name].sum()) for name in masks)
