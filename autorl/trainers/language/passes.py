"""Runs language models over many sequences within a bound of memory.

A pass takes as many sequences as fit, and the body of a model runs once in it. The head, whose
tables are positions x vocabulary, runs over blocks of the positions that count.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

T = TypeVar("T")
Opened: TypeAlias = Callable[[], AbstractContextManager["PreTrainedModel"]]
"""Gives a model for the time of a block: the base of an adapter is one only there."""

MEMORY_GB = 1.0
_MOST = 256  # sequences of a pass
_TABLES = 5  # of positions x vocabulary, which the KL of a block peaks at (measured on a CPU)
_LEAST = 2**20  # bytes; a pass of one sequence that needs more is not made smaller


@dataclass
class _Bound:
    """Bytes that a pass may take beside the weights."""

    size: float = MEMORY_GB * 2**30


_BOUND: ContextVar[_Bound] = ContextVar("bytes of a pass")


@contextmanager
def bounded(gigabytes: float) -> Iterator[None]:
    """Bound what passes take beside the weights."""
    token = _BOUND.set(_Bound(gigabytes * 2**30))
    try:
        yield
    finally:
        _BOUND.reset(token)


def sequences_at_once(config: Any, width: int) -> int:
    """Count the sequences of a pass.

    Args:
        config: of the model.
        width: tokens of a sequence.
    """
    text = config.get_text_config()
    hidden = text.hidden_size
    between = getattr(text, "intermediate_size", None) or 4 * hidden
    heads = getattr(text, "num_attention_heads", None) or 1  # none in state-space models
    keys = hidden * (getattr(text, "num_key_value_heads", None) or heads) // heads
    # keys and values of all layers; states of the layer at work; its attention mask; logits of the
    # position that is sampled
    of_token = 2 * keys * text.num_hidden_layers + 8 * hidden + 3 * between + width
    size = 4 * (of_token * width + _TABLES * text.vocab_size)
    return max(1, min(_MOST, int(_bound().size // size)))


def in_parts(config: Any, width: int, count: int, work: Callable[[slice], T]) -> Iterator[T]:
    """Yield what `work` returns for each part of `count` sequences.

    A device that has run out of memory halves the bound, and the part is worked on again. On a CPU
    nothing says so in time.

    Args:
        config: of the model.
        width: tokens of a sequence.
        count: of sequences.
        work: is given the places of its part.
    """
    import torch

    first = 0
    while first < count:
        last = min(count, first + sequences_at_once(config, width))
        try:
            done = work(slice(first, last))
        except torch.OutOfMemoryError:
            if _bound().size < _LEAST:
                raise
            _bound().size /= 2
            torch.cuda.empty_cache()
            continue
        yield done
        first = last


@contextmanager
def evaluating(*models: PreTrainedModel) -> Iterator[None]:
    """Switch gradients and dropout off in the block.

    A GPU computes in bfloat16 if it can. The models keep the mode they were in.
    """
    import torch

    modes = [model.training for model in models]
    half = models[0].device.type == "cuda" and torch.cuda.is_bf16_supported()
    for model in models:
        model.eval()
    try:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=half):
            yield
    finally:
        for model, mode in zip(models, modes, strict=True):
            model.train(mode)


@contextmanager
def reference_of(
    policy: PreTrainedModel, reference: PreTrainedModel | None
) -> Iterator[PreTrainedModel]:
    """Open the reference policy: a model, or an adapter's base."""
    if reference is not None:
        yield reference
        return
    adapted: Any = policy
    with adapted.disable_adapter():
        yield policy


def inputs(model: Any, tokens: Tensor, attention: Tensor) -> dict[str, Any]:
    """Return the arguments of a forward pass.

    Positions count from the first token, wherever sequences are padded.
    """
    # whole sequences at once: a cache of keys and values would only take memory
    arguments: dict[str, Any] = {
        "input_ids": tokens,
        "attention_mask": attention,
        "use_cache": False,
    }
    # models with ALiBi (BLOOM) take none
    if "position_ids" in inspect.signature(model.forward).parameters:
        arguments["position_ids"] = (attention.cumsum(1) - 1).clamp(min=0)
    return arguments


def at_positions(
    tokens: Tensor,
    attention: Tensor,
    counted: Tensor,
    models: tuple[Opened, ...],
    value: Callable[..., Tensor],
) -> Tensor:
    """Return a value of next-token distributions by position.

    The result is (sequences, length - 1), 0 where no token counts.

    Args:
        tokens: (sequences, length).
        attention: (sequences, length).
        counted: (sequences, length - 1), whether the token after a position counts.
        models: of the distributions.
        value: is given the tokens that follow, (block,), and the log-probabilities of each model,
            (block, vocabulary); returns (block,).
    """
    import torch

    heads = [_after_body(model, tokens, attention, counted) for model in models]
    following = tokens[:, 1:][counted]
    with models[0]() as model:
        vocabulary = model.config.get_text_config().vocab_size
    size = max(1, int(_bound().size // (_TABLES * 4 * vocabulary)))
    blocks = [slice(first, first + size) for first in range(0, len(following), size)]
    values = torch.zeros(counted.shape, device=tokens.device)
    values[counted] = torch.cat(
        [value(following[block], *(head(block) for head in heads)) for block in blocks]
    )
    return values


def _after_body(
    opened: Opened, tokens: Tensor, attention: Tensor, counted: Tensor
) -> Callable[[slice], Tensor]:
    """Run the body of a model, and return its head."""
    with opened() as model:
        causal, body = _parts(model)
        outputs = body(**inputs(body, tokens, attention))
    states = outputs.last_hidden_state[:, :-1][counted]

    def head(block: slice) -> Tensor:
        outputs.last_hidden_state = states[None, block]
        replaced = vars(body).get("forward")
        # the model itself scales or caps its logits, as 58 families of transformers do
        body.forward = lambda *_, **__: outputs
        try:
            with opened():
                logits = causal(input_ids=tokens[:1, :1]).logits[0]
        finally:
            del body.forward
            if replaced is not None:
                body.forward = replaced
        log_probabilities: Tensor = logits.float().log_softmax(-1)
        return log_probabilities

    return head


def _parts(model: Any) -> tuple[Any, Any]:
    """Return a language model without what wraps its adapter, and its body."""
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    return causal, causal.base_model


def _bound() -> _Bound:
    bound = _BOUND.get(None)
    if bound is None:
        bound = _Bound()
        _BOUND.set(bound)
    return bound
