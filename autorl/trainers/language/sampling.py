"""Samples completions of a language model, and compares policies on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autorl.trainers.language.passes import at_positions, evaluating, in_parts, reference_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Samples:
    """Completions of n prompts, batched by chunk.

    Attributes:
        texts: the completions without special tokens.
        lengths: tokens of each completion, the end of sequence not counted.
        ended: whether each completion has an end of sequence; the others were cut at the most
            tokens.
        distinct: share of distinct tokens in each completion; 0 for an empty one.
        batches: (tokens, attention mask, completion mask) of each chunk, all (sequences, tokens).
            Prompts are padded left, completions right, and the completion mask is 1 up to and
            including the end of sequence.
    """

    texts: tuple[str, ...]
    lengths: tuple[int, ...]
    ended: tuple[bool, ...]
    distinct: tuple[float, ...]
    batches: tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], ...]


def ends_of_sequence(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the tokens any of which ends a completion.

    The tokenizer's comes first, then those of the generation configuration. TRL samples like this
    in training, and so does `generate`: a chat model's turn often ends with another token than its
    tokenizer names.
    """
    further = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if further is None:
        further = []
    elif isinstance(further, int):
        further = [further]
    return tuple(dict.fromkeys([int(tokenizer.eos_token_id), *map(int, further)]))


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    most: int,
    seed: int,
    temperature: float = 1.0,
) -> Samples:
    """Sample one completion for each prompt.

    They are a function of the weights, the prompts and the seed.

    Tokens are drawn from the model's own distribution, whatever penalties or filters its
    generation configuration asks for; at temperature 0 each is the likeliest. The global random
    streams and the model are left as they were.

    Args:
        model: a language model.
        tokenizer: of the model.
        prompts: n texts.
        most: tokens of a completion.
        seed: of the draws.
        temperature: of the distribution.
    """
    import torch

    texts: list[str] = []
    lengths: list[int] = []
    ended: list[bool] = []
    distinct: list[float] = []
    batches = []
    ends = ends_of_sequence(model, tokenizer)
    width = most + max(map(len, tokenizer(list(prompts))["input_ids"]))

    def complete(part: slice) -> Any:
        return _complete(model, tokenizer, prompts[part], most, temperature)

    # `generate` takes no generator: it draws from the global stream, which is put back
    with torch.random.fork_rng(devices=[]), evaluating(model):
        torch.manual_seed(seed)
        for tokens, attention, mask in in_parts(model.config, width, len(prompts), complete):
            batches.append((tokens, attention, mask))
            for row, counted in zip(tokens, mask.bool(), strict=True):
                # never empty: a completion is at least its end, or a token that was cut
                completion = row[counted].tolist()
                ended.append(completion[-1] in ends)
                words = completion[:-1] if ended[-1] else completion
                texts.append(tokenizer.decode(words, skip_special_tokens=True))
                lengths.append(len(words))
                distinct.append(len(set(words)) / max(1, len(words)))
    return Samples(tuple(texts), tuple(lengths), tuple(ended), tuple(distinct), tuple(batches))


def sequence_kl(
    policy: PreTrainedModel, reference: PreTrainedModel | None, samples: Samples
) -> float:
    """Estimate KL(policy || reference) of whole completions, in nats.

    At each position the divergence of the two next-token distributions is taken exactly, and summed
    over the completion: unbiased like the mean log ratio of the sampled tokens, never negative, and
    of smaller variance (Amini, Vieira and Cotterell 2025, "Better estimation of the KL divergence
    between language models"). It needs no penalty in the trainer, so it is there at beta 0 too.

    Args:
        policy: a language model.
        reference: another one over the same tokens; None: the base of the policy's adapter.
        samples: completions sampled from `policy` at temperature 1.
    """
    import torch

    models = (partial(nullcontext, policy), partial(reference_of, policy, reference))

    def divergence(_: Tensor, of_policy: Tensor, of_reference: Tensor) -> Tensor:
        # torch's first argument is the log of q in KL(p || q)
        return torch.nn.functional.kl_div(
            of_reference, of_policy, log_target=True, reduction="none"
        ).sum(-1)

    def of_batch(tokens: Tensor, attention: Tensor, mask: Tensor) -> float:
        def of_part(part: slice) -> float:
            texts = (tokens[part], attention[part], mask[part, 1:].bool())
            return float(at_positions(*texts, models, divergence).sum(dtype=torch.float64))

        return sum(in_parts(policy.config, tokens.shape[1], len(tokens), of_part))

    with evaluating(policy, *([] if reference is None else [reference])):
        total = sum(of_batch(*batch) for batch in samples.batches)
    return total / len(samples.texts)


def _complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    most: int,
    temperature: float,
) -> Any:
    """Return tokens, attention mask and completion mask of one chunk.

    Each is (sequences, tokens).
    """
    import torch
    from transformers import GenerationConfig

    # completions follow the last column, so prompts have to end there
    side = tokenizer.padding_side
    tokenizer.padding_side = "left"
    encoded = tokenizer(
        list(prompts), return_tensors="pt", padding=True, return_token_type_ids=False
    ).to(model.device)
    tokenizer.padding_side = side
    make: Any = GenerationConfig
    ends = ends_of_sequence(model, tokenizer)
    configuration = model.generation_config
    model.generation_config = make()  # `generate` takes from it whatever is not set below
    drawing: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        # 0 and 1.0 switch filters off: what is not set has top_k 50 in transformers
        drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    settings = make(
        **drawing,
        max_new_tokens=most,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=list(ends),
        bos_token_id=tokenizer.bos_token_id,
        disable_compile=True,
    )
    try:
        tokens = model.generate(**encoded, generation_config=settings)
    finally:
        model.generation_config = configuration
    start = encoded["input_ids"].shape[1]
    mask = torch.zeros_like(tokens)
    ended = torch.isin(tokens[:, start:], torch.tensor(ends, device=tokens.device)).long()
    # 1 up to the first end and on it: the count of earlier ends is 0
    mask[:, start:] = (ended.cumsum(1) - ended == 0).long()
    attention = torch.cat([encoded["attention_mask"], mask[:, start:]], dim=1)
    return tokens, attention, mask


def log_likelihoods(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[tuple[str, str]]
) -> list[float]:
    """Return the log-probability of each completion given its prompt.

    The end of sequence is included.

    Args:
        model: a language model.
        tokenizer: of the model.
        texts: n of (prompt, completion).

    Returns:
        n values in nats.
    """

    def chosen(following: Tensor, log_probabilities: Tensor) -> Tensor:
        return log_probabilities.gather(-1, following[:, None])[:, 0]

    def likelihoods(tokens: Tensor, attention: Tensor, mask: Tensor) -> list[float]:
        counted = mask[:, 1:].bool()
        opened = (partial(nullcontext, model),)
        values: list[float] = (
            at_positions(tokens, attention, counted, opened, chosen).sum(1).tolist()
        )
        return values

    return _read(model, tokenizer, texts, likelihoods, ends_of_sequence(model, tokenizer))


def model_rewards(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[tuple[str, str]]
) -> list[float]:
    """Return the scores that a reward model gives completions.

    It is a sequence classifier with one label, read at the last token.

    Args:
        model: the classifier.
        tokenizer: of the model.
        texts: n of (prompt, completion).
    """

    def scores(tokens: Tensor, attention: Tensor, _: Tensor) -> list[float]:
        logits = model(input_ids=tokens, attention_mask=attention).logits
        values: list[float] = logits[:, 0].float().tolist()
        return values

    return _read(model, tokenizer, texts, scores)


def _read(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    value: Callable[[Tensor, Tensor, Tensor], list[float]],
    ends: Collection[int] = (),
) -> list[float]:
    """Return a value of tokens, attention mask and completion mask."""
    rows = _encode(tokenizer, texts, ends)

    def of_part(part: slice) -> list[float]:
        return value(*_padded(rows[part], tokenizer.pad_token_id, model.device))

    with evaluating(model):
        width = max((len(row) for _, row in rows), default=0)
        parts = list(in_parts(model.config, width, len(rows), of_part))
    return [number for part in parts for number in part]


def joined(prompt: str, completion: str) -> str:
    """Return the text of a completion after its prompt.

    A space comes between them where neither brings one.
    """
    gap = "" if completion[:1].isspace() or prompt[-1:].isspace() or not prompt else " "
    return f"{gap}{completion}"


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[tuple[str, str]], ends: Collection[int] = ()
) -> list[tuple[int, list[int]]]:
    """Encode (prompt, completion) texts: where the completion begins, and the tokens.

    The end is the tokenizer's, unless a completion brings one of its own: that, or another of
    `ends`.
    """
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
    return rows


def _padded(
    rows: Sequence[tuple[int, list[int]]], padding: int, device: torch.device | str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows as three tensors (n, longest).

    Tokens, padded right; the attention mask; the mask of the completions with their end of
    sequence.
    """
    import torch

    longest = max(len(row) for _, row in rows)
    tokens = torch.tensor([[*row, *[padding] * (longest - len(row))] for _, row in rows])
    places = torch.arange(longest)
    attention = (places < torch.tensor([[len(row)] for _, row in rows])).long()
    # ends count: a policy has to know when to stop
    mask = attention * (places >= torch.tensor([[start] for start, _ in rows]))
    return tokens.to(device), attention.to(device), mask.to(device)
