"""Completions of a language model from an explicit seed, and the KL divergence between two policies over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_CHUNK = 256  # sequences in memory at once


@dataclass(frozen=True)
class Samples:
    """Completions of n prompts, batched by chunk.

    Attributes:
        texts: the completions without special tokens.
        lengths: tokens of each completion, the end of sequence not counted.
        ended: whether each completion has an end of sequence; the others were cut at the most tokens.
        distinct: share of distinct tokens in each completion; 0 for an empty one.
        batches: (tokens, attention mask, completion mask) of each chunk; prompts are padded left, completions right,
            and the completion mask is 1 up to and including the end of sequence.
    """

    texts: tuple[str, ...]
    lengths: tuple[int, ...]
    ended: tuple[bool, ...]
    distinct: tuple[float, ...]
    batches: tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], ...]


def ends_of_sequence(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Tokens any of which ends a completion: the tokenizer's, then those of the generation configuration.

    As TRL samples in training, and `generate`: a chat model's turn often ends with another token than its tokenizer
    names.
    """
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    others = (
        [] if configured is None else [configured] if isinstance(configured, int) else configured
    )
    return tuple(dict.fromkeys([int(tokenizer.eos_token_id), *map(int, others)]))


def sample(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    most: int,
    seed: int,
    temperature: float = 1.0,
) -> Samples:
    """One completion of at most `most` tokens for each prompt: a function of the weights, the prompts and `seed`.

    Tokens are drawn from the model's own distribution, whatever penalties or filters its generation configuration asks
    for; at temperature 0 each is the likeliest. The global random streams and the model are left as they were.
    """
    import torch

    texts: list[str] = []
    lengths: list[int] = []
    ended: list[bool] = []
    distinct: list[float] = []
    batches = []
    ends = ends_of_sequence(model, tokenizer)
    with torch.random.fork_rng(devices=[]), evaluating(model):
        torch.manual_seed(seed)
        for first in range(0, len(prompts), _CHUNK):
            tokens, attention, mask = _complete(
                model, tokenizer, prompts[first : first + _CHUNK], most, temperature
            )
            batches.append((tokens, attention, mask))
            for row, counted in zip(tokens, mask.bool(), strict=True):
                completion = row[counted].tolist()
                ended.append(completion[-1] in ends)
                words = completion[:-1] if ended[-1] else completion
                texts.append(tokenizer.decode(words, skip_special_tokens=True))
                lengths.append(len(words))
                distinct.append(len(set(words)) / len(words) if words else 0.0)
    return Samples(tuple(texts), tuple(lengths), tuple(ended), tuple(distinct), tuple(batches))


def sequence_kl(policy: Any, reference: Any, samples: Samples) -> float:
    """KL(policy || reference) of whole completions in nats, over completions sampled from `policy` at temperature 1.

    At each position the divergence of the two next-token distributions is taken exactly, and summed over the
    completion: unbiased like the mean log ratio of the sampled tokens, never negative, and of smaller variance (Amini,
    Vieira and Cotterell 2025, "Better estimation of the KL divergence between language models"). It needs no penalty
    in the trainer, so it is there at beta 0 too.
    """
    import torch

    total, count = 0.0, 0
    with evaluating(policy, reference):
        for tokens, attention, mask in samples.batches:
            ours = _log_probabilities(policy, tokens, attention)
            theirs = _log_probabilities(reference, tokens, attention)
            steps = torch.nn.functional.kl_div(theirs, ours, log_target=True, reduction="none").sum(
                -1
            )
            total += float((steps * mask[:, 1:]).sum(dtype=torch.float64))
            count += len(tokens)
    return total / count


@contextmanager
def evaluating(*models: Any) -> Iterator[None]:
    """No gradients and no dropout in the block; the models are left in the mode they were in."""
    import torch

    modes = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for model, mode in zip(models, modes, strict=True):
            model.train(mode)


def _complete(
    model: Any, tokenizer: Any, prompts: Sequence[str], most: int, temperature: float
) -> Any:
    """Tokens, attention mask and completion mask of one chunk."""
    import torch
    from transformers import GenerationConfig

    side, tokenizer.padding_side = tokenizer.padding_side, "left"
    encoded = tokenizer(
        list(prompts), return_tensors="pt", padding=True, return_token_type_ids=False
    ).to(model.device)
    tokenizer.padding_side = side
    make: Any = GenerationConfig
    ends = ends_of_sequence(model, tokenizer)
    own, model.generation_config = (
        model.generation_config,
        make(),
    )  # `generate` takes from it whatever is not set below
    drawn = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    settings = make(
        **(drawn if temperature > 0 else {"do_sample": False}),
        max_new_tokens=most,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=list(ends),
        bos_token_id=tokenizer.bos_token_id,
        disable_compile=True,
    )
    try:
        tokens = model.generate(**encoded, generation_config=settings)
    finally:
        model.generation_config = own
    start = encoded["input_ids"].shape[1]
    mask = torch.zeros_like(tokens)
    ended = torch.isin(tokens[:, start:], torch.tensor(ends, device=tokens.device)).long()
    mask[:, start:] = (ended.cumsum(1) - ended == 0).long()
    attention = torch.cat([encoded["attention_mask"], mask[:, start:]], dim=1)
    return tokens, attention, mask


def _log_probabilities(model: Any, tokens: Any, attention: Any) -> Any:
    """Log-probabilities of every next token, (sequences, length - 1, vocabulary)."""
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=tokens, attention_mask=attention, position_ids=positions).logits
    return logits[:, :-1].float().log_softmax(-1)
