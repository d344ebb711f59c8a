"""What is measured of a policy at every evaluation, on held-out prompts and from the evaluation stream alone.

Each measure says something a single reward hides: the signals themselves, how far the policy has moved (sequence KL),
whether it beats the reference prompt by prompt (win rate), and whether it repeats itself (length, distinct).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from autorl.rlhf.sampling import ends_of_sequence, evaluating, sample, sequence_kl
from autorl.rlhf.task import Built, Pair, Task
from autorl.seeds import evaluation_seeds, generator
from autorl.types import SeedRole

METRICS = (  # names an evaluation may have beside the signals of a task
    *("kl", "win_rate", "length", "truncated", "distinct", "tokens", "reward_zero_std"),
    *("pair_accuracy", "pair_margin", "pair_ties", "log_likelihood", "best_of_16"),
)
JUDGED = ("win_rate", "best_of_16")  # metrics that are by another one; see `judge`
REFERENCE = "reference_"  # prefix of what the reference policy scores on the same prompts


def evaluation_prompts(
    held_out: Sequence[str], seed: int, role: SeedRole, step: int, n: int
) -> list[str]:
    """`n` held-out prompts for an evaluation: a function of (seed, role, step).

    Tuning seeds see the prompts at even places and test seeds those at odd ones, so a result is on prompts that no
    search has seen. Where there are fewer than n, prompts are repeated; their completions differ.
    """
    own = half(held_out, role)
    order = generator(seed, "evaluation", role, step).permutation(len(own))
    return [own[order[index % len(own)]] for index in range(n)]


def measure(
    policy: Any,
    reference: Any,
    tokenizer: Any,
    built: Built,
    *,
    seed: int,
    role: SeedRole,
    step: int,
    n: int,
) -> dict[str, float]:
    """Metrics of a policy by name, from one completion of each of `n` held-out prompts at temperature 1.

    Returns:
        Every signal of the task under its own name (mean over prompts); `kl`, the sequence KL to the reference in
        nats; `win_rate` against a completion of the reference for the same prompt by the report signal (ties half);
        `length` in tokens; `truncated`, the share of completions that were cut at `max_completion`; `distinct`, the
        mean share of distinct tokens; `reference_<signal>`, what the reference scores; and what the task itself probes.
        Without a signal to judge by there is no win rate.
    """
    prompts = evaluation_prompts(built.held_out, seed, role, step, n)
    ours, theirs = evaluation_seeds(seed, role, step, 2)
    drawn = sample(policy, tokenizer, prompts, built.max_completion, ours)
    baseline = sample(reference, tokenizer, prompts, built.max_completion, theirs)
    values = {name: signal(prompts, drawn.texts) for name, signal in built.signals.items()}
    metrics = {name: _mean(value) for name, value in values.items()}
    by = judge(built)
    if by is not None:
        reference_values = built.signals[by](prompts, baseline.texts)
        metrics[REFERENCE + by] = _mean(reference_values)
        metrics["win_rate"] = _mean(
            [_won(a, b) for a, b in zip(values[by], reference_values, strict=True)]
        )
    metrics["kl"] = sequence_kl(policy, reference, drawn)
    metrics |= {"length": _mean(drawn.lengths), "distinct": _mean(drawn.distinct)}
    metrics["truncated"] = 1.0 - _mean(drawn.ended)
    if built.probe is not None:
        metrics |= built.probe(policy, tokenizer, prompts, ours)
    return metrics


def pair_likelihoods(model: Any, tokenizer: Any, pairs: Sequence[Pair]) -> list[float]:
    """Log-probabilities in nats of the chosen and the rejected completion of every pair, one after the other."""
    return log_likelihoods(
        model, tokenizer, [(prompt, text) for prompt, *both in pairs for text in both]
    )


def pair_measures(policy: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """How the policy's implicit reward, log policy / reference, ranks labelled pairs.

    Not for selection: a collapsed policy can rank held-out pairs best of all.

    Args:
        policy: its `pair_likelihoods`.
        reference: those of the reference policy, of the same pairs.

    Returns:
        `pair_accuracy`, in which a tie counts half; `pair_margin`, the mean difference of the implicit rewards in nats;
        `pair_ties`, the share of pairs that tie.
    """
    gains = [ours - theirs for ours, theirs in zip(policy, reference, strict=True)]
    margins = [chosen - rejected for chosen, rejected in zip(gains[::2], gains[1::2], strict=True)]
    return _ranking(margins)


def reward_measures(
    model: Any, tokenizer: Any, reference: Any, built: Built, seed: int, role: SeedRole = "tuning"
) -> dict[str, float]:
    """What a scalar reward model is worth: ranking of held-out pairs, and the gold of the best of 16 it picks.

    Returns:
        `pair_accuracy`, `pair_margin` (in the model's own unit), `pair_ties`, and `best_of_16`: the mean report signal
        of the completion it scores highest among 16 by the reference policy, where the task has a signal to judge by.
    """
    pairs = (
        built.held_out_pairs if role == "tuning" or built.test_pairs is None else built.test_pairs
    )
    scores = rewards(model, tokenizer, [(prompt, text) for prompt, *both in pairs for text in both])
    margins = [
        chosen - rejected for chosen, rejected in zip(scores[::2], scores[1::2], strict=True)
    ]
    by = judge(built)
    ranking = _ranking(margins)
    if by is None:
        return ranking
    prompts = [prompt for prompt in half(built.held_out, role)[:64] for _ in range(16)]
    drawn = sample(reference, tokenizer, prompts, built.max_completion, seed)
    scored = rewards(model, tokenizer, list(zip(prompts, drawn.texts, strict=True)))
    truth = built.signals[by](prompts, drawn.texts)
    best = [
        max(range(first, first + 16), key=scored.__getitem__)
        for first in range(0, len(prompts), 16)
    ]
    return ranking | {"best_of_16": _mean([truth[index] for index in best])}


def log_likelihoods(
    model: Any, tokenizer: Any, texts: Sequence[tuple[str, str]], chunk: int = 256
) -> list[float]:
    """The log-probability of each completion given its prompt in nats, end of sequence included."""
    found: list[float] = []
    ends = ends_of_sequence(model, tokenizer)
    with evaluating(model):
        for first in range(0, len(texts), chunk):
            tokens, attention, mask = _encode(
                tokenizer, texts[first : first + chunk], model.device, ends
            )
            logits = model(input_ids=tokens, attention_mask=attention).logits[:, :-1].float()
            steps = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
            found += (steps * mask[:, 1:]).sum(1).tolist()
    return found


def rewards(
    model: Any, tokenizer: Any, texts: Sequence[tuple[str, str]], chunk: int = 256
) -> list[float]:
    """Scores of a sequence classifier with one label, read at the last token of each (prompt, completion)."""
    found: list[float] = []
    with evaluating(model):
        for first in range(0, len(texts), chunk):
            tokens, attention, _ = _encode(tokenizer, texts[first : first + chunk], model.device)
            found += model(input_ids=tokens, attention_mask=attention).logits[:, 0].float().tolist()
    return found


def joined(prompt: str, completion: str) -> str:
    """The text of a completion after its prompt, a space between them where neither brings one."""
    gap = "" if completion[:1].isspace() or prompt[-1:].isspace() or not prompt else " "
    return f"{gap}{completion}"


def _encode(
    tokenizer: Any,
    texts: Sequence[tuple[str, str]],
    device: Any = "cpu",
    ends: Collection[int] = (),
) -> tuple[Any, Any, Any]:
    """Tokens (padded right), attention mask, and the mask of the completions with their end of sequence.

    The end is the tokenizer's, unless a completion brings one of its own: that, or another of `ends`.
    """
    import torch

    rows = []
    begin = tokenizer("")["input_ids"][:1]
    begin = (
        begin if begin == [tokenizer.bos_token_id] else []
    )  # as where completions are sampled, or trained on
    prompts = tokenizer([prompt for prompt, _ in texts], add_special_tokens=False)["input_ids"]
    completions = tokenizer([joined(*text) for text in texts], add_special_tokens=False)[
        "input_ids"
    ]
    for prompt, completion in zip(prompts, completions, strict=True):
        has_end = completion and completion[-1] in (tokenizer.eos_token_id, *ends)
        end = [] if has_end else [tokenizer.eos_token_id]
        rows.append((len(begin) + len(prompt), [*begin, *prompt, *completion, *end]))
    longest = max(len(row) for _, row in rows)
    tokens = torch.tensor(
        [[*row, *[tokenizer.pad_token_id] * (longest - len(row))] for _, row in rows]
    )
    places = torch.arange(longest)
    attention = (places < torch.tensor([[len(row)] for _, row in rows])).long()
    mask = attention * (places >= torch.tensor([[start] for start, _ in rows]))
    return tokens.to(device), attention.to(device), mask.to(device)


def judge(about: Built | Task) -> str | None:
    """The signal that decides who wins: the report signal, else the selection one; None if neither is a signal."""
    return next((name for name in (about.report, about.selection) if name in about.signals), None)


def half(held_out: Sequence[str], role: SeedRole) -> Sequence[str]:
    """The held-out prompts of a seed role."""
    return held_out[0 if role == "tuning" else 1 :: 2]


def _ranking(margins: Sequence[float]) -> dict[str, float]:
    """How pairs are ranked, by what the chosen completion has more than the rejected one."""
    return {
        "pair_accuracy": _mean([_won(margin, 0.0) for margin in margins]),
        "pair_margin": _mean(margins),
        "pair_ties": _mean([margin == 0.0 for margin in margins]),
    }


def _won(ours: float, theirs: float) -> float:
    return 0.5 if ours == theirs else float(ours > theirs)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
