"""A task's data as the data sets that TRL's trainers take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        (prompt, joined(prompt, better), joined(prompt, worse))
        for prompt, better, worse in built.pairs
    ]
    match method.data:
        case "prompts":
            columns: dict[str, list[Any]] = {"prompt": list(built.prompts)}
        case "pairs" | "ranking":
            columns = _columns(("prompt", "chosen", "rejected"), pairs)
        case "unpaired":
            labelled = [
                (prompt, joined(prompt, text), label) for prompt, text, label in built.labelled
            ]
            # for KTO and BCO a pair is a completion that is wanted and one that is not
            of_pairs = [
                (prompt, text, label)
                for prompt, *answers in pairs
                for text, label in zip(answers, (True, False), strict=True)
            ]
            columns = _columns(("prompt", "completion", "label"), labelled or of_pairs)
        case "completions":
            imitated = [(prompt, joined(prompt, text)) for prompt, text in built.completions]
            chosen = [(prompt, text) for prompt, text, _ in pairs]
            columns = _columns(("prompt", "completion"), imitated or chosen)
            # SFT trains on every token of `text`, of a completion on that alone
            if columns and not any(columns["prompt"]):
                columns = {"text": columns["completion"]}
    if not columns:
        raise InputError(
            f"trl/{method.name} is trained on {' or '.join(method.learns_from)}; "
            f"{built.name} has none",
            key="environment",
        )
    return Dataset.from_dict(columns)


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


def _columns(names: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, list[Any]]:
    """Return rows by column.

    There is no column where there is no row.
    """
    if not rows:
        return {}
    columns = (list(column) for column in zip(*rows, strict=True))
    return dict(zip(names, columns, strict=True))


def sequence_tokens(batch: Mapping[str, Tensor]) -> int:
    """Count the tokens in a batch of data, without padding.

    CPO and ORPO have the prompts apart too, which are in the sequences already. A batch without a
    mask has no padding: SFT can lay sequences end to end.
    """
    masks = {name for name in batch if name.endswith("attention_mask")} - {"prompt_attention_mask"}
    if not masks:
        return int(batch["input_ids"].numel())
    return sum(int(batch[name].sum()) for name in masks)
