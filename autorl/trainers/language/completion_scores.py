"""Scores completions that are given: log-likelihoods, and rewards of a reward model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from autorl.trainers.language.sampling import ends_of_sequence, evaluating

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def log_likelihoods(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    chunk: int = 256,
) -> list[float]:
    """Return the log-probability of each completion given its prompt.

    The end of sequence is included.

    Args:
        model: a language model.
        tokenizer: of the model.
        texts: n of (prompt, completion).
        chunk: how many go through the model at once.

    Returns:
        n values in nats.
    """
    values: list[float] = []
    ends = ends_of_sequence(model, tokenizer)
    with evaluating(model):
        for first in range(0, len(texts), chunk):
            tokens, attention, mask = _encode(
                tokenizer, texts[first : first + chunk], model.device, ends
            )
            # padded right, so positions are those of an unpadded text without being given
            logits = model(input_ids=tokens, attention_mask=attention).logits[:, :-1].float()
            steps = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
            values += (steps * mask[:, 1:]).sum(1).tolist()
    return values


def model_rewards(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    chunk: int = 256,
) -> list[float]:
    """Return the scores that a reward model gives completions.

    It is a sequence classifier with one label, read at the last token.

    Args:
        model: the classifier.
        tokenizer: of the model.
        texts: n of (prompt, completion).
        chunk: how many go through the model at once.
    """
    values: list[float] = []
    with evaluating(model):
        for first in range(0, len(texts), chunk):
            tokens, attention, _ = _encode(tokenizer, texts[first : first + chunk], model.device)
            logits = model(input_ids=tokens, attention_mask=attention).logits
            values += logits[:, 0].float().tolist()
    return values


def joined(prompt: str, completion: str) -> str:
    """Return the text of a completion after its prompt.

    A space comes between them where neither brings one.
    """
    gap = "" if completion[:1].isspace() or prompt[-1:].isspace() or not prompt else " "
    return f"{gap}{completion}"


def _encode(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    device: torch.device | str = "cpu",
    ends: Collection[int] = (),
) -> tuple[Any, Any, Any]:
    """Encode (prompt, completion) texts.

    A completion keeps its own end of sequence (the tokenizer's, or another of `ends`); otherwise
    it gets the tokenizer's.

    Returns:
        Three tensors (n, longest): tokens, padded right; the attention mask; the mask of the
        completions with their end of sequence.
    """
    import torch

    rows = []
    # one that only appends an end (as T5's) begins an empty text with that end
    begin = tokenizer("")["input_ids"][:1]
    if begin != [tokenizer.bos_token_id]:  # as where completions are sampled, or trained on
        begin = []
    # apart: in one text a token could lie across the border, and the mask would cut it
    prompts = tokenizer([prompt for prompt, _ in texts], add_special_tokens=False)["input_ids"]
    continuations = [joined(*text) for text in texts]
    completions = tokenizer(continuations, add_special_tokens=False)["input_ids"]
    for prompt, completion in zip(prompts, completions, strict=True):
        # a text that brings its own end gets no second one, as in TRL's training
        has_end = completion and completion[-1] in (tokenizer.eos_token_id, *ends)
        end = [] if has_end else [tokenizer.eos_token_id]
        rows.append((len(begin) + len(prompt), [*begin, *prompt, *completion, *end]))
    longest = max(len(row) for _, row in rows)
    padding = tokenizer.pad_token_id
    tokens = torch.tensor([[*row, *[padding] * (longest - len(row))] for _, row in rows])
    places = torch.arange(longest)
    attention = (places < torch.tensor([[len(row)] for _, row in rows])).long()
    # ends count: a policy has to know when to stop
    mask = attention * (places >= torch.tensor([[start] for start, _ in rows]))
    return tokens.to(device), attention.to(device), mask.to(device)
