"""Samples completions of a language model, and compares policies on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


# `sequence_kl` peaks at five tables of chunk x tokens x vocabulary x 4 bytes (measured on a CPU)
_CHUNK = 256  # sequences in memory at once


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
    # `generate` takes no generator: it draws from the global stream, which is put back
    with torch.random.fork_rng(devices=[]), evaluating(model):
        torch.manual_seed(seed)
        for first in range(0, len(prompts), _CHUNK):
            chunk = prompts[first : first + _CHUNK]
            tokens, attention, mask = _complete(model, tokenizer, chunk, most, temperature)
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


def sequence_kl(policy: PreTrainedModel, reference: PreTrainedModel, samples: Samples) -> float:
    """Estimate KL(policy || reference) of whole completions, in nats.

    At each position the divergence of the two next-token distributions is taken exactly, and summed
    over the completion: unbiased like the mean log ratio of the sampled tokens, never negative, and
    of smaller variance (Amini, Vieira and Cotterell 2025, "Better estimation of the KL divergence
    between language models"). It needs no penalty in the trainer, so it is there at beta 0 too.

    Args:
        policy: a language model.
        reference: another one over the same tokens.
        samples: completions sampled from `policy` at temperature 1.
    """
    import torch

    total = 0.0
    count = 0
    with evaluating(policy, reference):
        for tokens, attention, mask in samples.batches:
            of_policy = _log_probabilities(policy, tokens, attention)
            of_reference = _log_probabilities(reference, tokens, attention)
            # torch's first argument is the log of q in KL(p || q)
            kl = torch.nn.functional.kl_div(
                of_reference, of_policy, log_target=True, reduction="none"
            )
            # position t holds the distribution of token t + 1
            total += float((kl.sum(-1) * mask[:, 1:]).sum(dtype=torch.float64))
            count += len(tokens)
    return total / count


@contextmanager
def evaluating(*models: PreTrainedModel) -> Iterator[None]:
    """Switch gradients and dropout off in the block.

    The models keep the mode they were in.
    """
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


def _log_probabilities(
    model: PreTrainedModel, tokens: torch.Tensor, attention: torch.Tensor
) -> Any:
    """Return log-probabilities of every next token, (sequences, length - 1, vocabulary)."""
    # transformers counts the padding on the left as positions unless it is told otherwise
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=tokens, attention_mask=attention, position_ids=positions).logits
    return logits[:, :-1].float().log_softmax(-1)


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
    values: list[float] = []
    ends = ends_of_sequence(model, tokenizer)
    # padded right, so positions are those of an unpadded text without being given
    for tokens, mask, logits in _read(model, tokenizer, texts, ends):
        steps = logits[:, :-1].float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        values += (steps * mask[:, 1:]).sum(1).tolist()
    return values


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
    scores: list[float] = []
    for _, _, logits in _read(model, tokenizer, texts):
        scores += logits[:, 0].float().tolist()
    return scores


def _read(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    ends: Collection[int] = (),
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield tokens, mask of completions, and logits, chunk by chunk."""
    with evaluating(model):
        for first in range(0, len(texts), _CHUNK):
            chunk = texts[first : first + _CHUNK]
            tokens, attention, mask = _encode(tokenizer, chunk, model.device, ends)
            yield tokens, mask, model(input_ids=tokens, attention_mask=attention).logits


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

    The end is the tokenizer's, unless a completion brings one of its own: that, or another of
    `ends`.

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
