"""The metrics of a policy, from held-out prompts and the evaluation stream.

Each says something a single reward hides: the signals themselves, how far the policy has moved
(sequence KL), whether it beats the reference prompt by prompt (win rate), and whether it repeats
itself (length, distinct).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count, product
from typing import TYPE_CHECKING

import numpy as np

from autorl.core.seeds import evaluation_seeds, generator
from autorl.core.types import SeedRole
from autorl.statistics.episodes import tails
from autorl.trainers.language.contract import Built, Pair, Signal, Task
from autorl.trainers.language.passes import reference_of
from autorl.trainers.language.sampling import log_likelihoods, model_rewards, sample, sequence_kl

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

METRICS = (  # names an evaluation may have beside the signals of a task
    *("kl", "win_rate", "length", "truncated", "distinct", "tokens"),
    *("completions", "reward_zero_std"),
    *("pair_accuracy", "pair_margin", "pair_ties", "log_likelihood", "best_of_16"),
)
JUDGED = ("win_rate", "best_of_16")
"""Metrics that are by another one; see `judge`."""
REFERENCE = "reference_"
"""Prefix of what the reference policy scores on the same prompts."""
WORST_GROUP = "_worst_group"
_OF_16_PROMPTS = 64  # prompts of `best_of_16`
_PROBED = 128  # prompts of `checked_measures`


def evaluation_prompts(
    held_out: Sequence[str], seed: int, role: SeedRole, step: int, n: int, groups: Mapping[str, str]
) -> list[str]:
    """Draw `n` held-out prompts for an evaluation.

    They are a function of (seed, role, step).

    Tuning seeds see the prompts at even places and test seeds those at odd ones, so a result is on
    prompts that no search has seen. If there are fewer than n, prompts are repeated; their
    completions differ. Groups of prompts have one prompt each, then as many as their shares of all.
    """
    prompts = half(held_out, role)
    # a stream of this evaluation: what was drawn before, or was not, cannot change it
    order = generator(seed, "evaluation", role, step).permutation(len(prompts))
    drawn = [prompts[place] for place in order]
    if groups:
        sizes = Counter(groups[prompt] for prompt in drawn)
        ranks: dict[str, Iterator[int]] = {group: count() for group in sizes}
        # stable: prompts of a group stay in the order they were drawn
        drawn = sorted(drawn, key=lambda p: next(ranks[groups[p]]) / sizes[groups[p]])
        n = max(n, len(sizes))
    return [drawn[index % len(drawn)] for index in range(n)]


def in_group(signal: str, group: str) -> str:
    """Name the metric of a signal on the prompts of a group."""
    return f"{signal}_in_{group}"


def measure(
    policy: PreTrainedModel,
    reference: PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase,
    built: Built,
    *,
    seed: int,
    role: SeedRole,
    step: int,
    n: int,
    asked: Sequence[str] = (),
) -> dict[str, float]:
    """Measure a policy on held-out prompts.

    It writes one completion of each of `n` prompts, at temperature 1. It is compared
    with the reference policy, or, where that is None, with the base of its adapter.

    Returns:
        Metrics by name: every signal of the task under its own name (mean over prompts); `kl`, the
        sequence KL to the reference in nats; `win_rate` against a completion of the reference for
        the same prompt by the report signal (ties half); `length` in tokens; `truncated`, the share
        of completions that were cut at `max_completion`; `distinct`, the mean share of distinct
        tokens; `reference_<signal>`, what the reference scores; and what the task itself probes.
        There is no win rate if no signal judges. Tails over prompts, as `asked`. Where prompts are
        in groups, `<signal>_in_<group>` and their least, `<signal>_worst_group`.
    """
    prompts = evaluation_prompts(built.held_out, seed, role, step, n, built.groups)
    # two seeds: of one seed a policy that has not moved would write the reference's own words
    policy_seed, reference_seed = evaluation_seeds(seed, role, step, 2)
    samples = sample(policy, tokenizer, prompts, built.max_completion, policy_seed)
    with reference_of(policy, reference) as frozen:
        baseline = sample(frozen, tokenizer, prompts, built.max_completion, reference_seed)
    values: dict[str, Sequence[float]]
    values = {name: signal(prompts, samples.texts) for name, signal in built.signals.items()}
    by = judge(built)
    if by is not None:
        reference_values = built.signals[by](prompts, baseline.texts)
        wins = [_won(a, b) for a, b in zip(values[by], reference_values, strict=True)]
        values |= {REFERENCE + by: reference_values, "win_rate": wins}
    groups = sorted({*built.groups.values()})
    for name, group in product(built.signals, groups):
        inside = [built.groups[prompt] == group for prompt in prompts]
        values[in_group(name, group)] = [*compress(values[name], inside)]
    metrics = {name: _mean(value) for name, value in values.items()}
    for name in built.signals if groups else ():
        metrics[name + WORST_GROUP] = min(metrics[in_group(name, group)] for group in groups)
    metrics["kl"] = sequence_kl(policy, reference, samples)
    values |= {"length": samples.lengths, "distinct": samples.distinct}
    metrics |= {name: _mean(values[name]) for name in ("length", "distinct")}
    metrics |= tails(values, asked)
    metrics["truncated"] = 1.0 - _mean(samples.ended)
    if built.probe is not None:
        metrics |= built.probe(policy, tokenizer, prompts, policy_seed)
    return metrics


def answers_of(pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Return (prompt, completion) of n pairs, the chosen answer first: 2 n."""
    return [(prompt, completion) for prompt, *answers in pairs for completion in answers]


def pair_likelihoods(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair]
) -> list[float]:
    """Return log-probabilities of n pairs, (2 n,), in nats.

    The chosen completion of each pair comes first, then the rejected completion.
    """
    return log_likelihoods(model, tokenizer, answers_of(pairs))


def pair_measures(policy: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """Measure how the policy's implicit reward ranks labelled pairs.

    The reward is log policy / reference.

    Not for selection: a collapsed policy can rank held-out pairs best of all.

    Args:
        policy: its `pair_likelihoods`.
        reference: those of the reference policy, of the same pairs.

    Returns:
        `pair_accuracy`, in which a tie counts half; `pair_margin`, the mean difference of the
        implicit rewards in nats; `pair_ties`, the share of pairs that tie.
    """
    gains = [
        of_policy - of_reference for of_policy, of_reference in zip(policy, reference, strict=True)
    ]
    return _ranking(gains)


def reward_measures(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    reference: PreTrainedModel,
    built: Built,
    seed: int,
    role: SeedRole = "tuning",
) -> dict[str, float]:
    """Measure how good a scalar reward model is.

    It ranks held-out pairs, and picks the best of 16 completions.

    Returns:
        `pair_accuracy`, `pair_margin` (in the model's own unit), `pair_ties`, and `best_of_16`: the
        mean report signal of the completion it scores highest among 16 by the reference policy,
        where the task has a signal to judge by.
    """
    ranking = _ranking(model_rewards(model, tokenizer, answers_of(built.pairs_of(role))))
    by = judge(built)
    if by is None:
        return ranking
    # 64 x 16 completions, whatever the number of episodes
    asked = half(built.held_out, role)[:_OF_16_PROMPTS]
    prompts = [prompt for prompt in asked for _ in range(16)]
    samples = sample(reference, tokenizer, prompts, built.max_completion, seed)
    scores = model_rewards(model, tokenizer, list(zip(prompts, samples.texts, strict=True)))
    truth = built.signals[by](prompts, samples.texts)
    best = [
        max(range(first, first + 16), key=scores.__getitem__)
        for first in range(0, len(prompts), 16)
    ]
    return ranking | {"best_of_16": _mean([truth[index] for index in best])}


def checked_measures(
    policy: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    seed: int,
    *,
    right: Signal,
    tries: int,
    longest: int,
) -> dict[str, float]:
    """Measure whether the likeliest answer, or a sampled one, is right.

    Args:
        policy: the model that answers.
        tokenizer: its own.
        prompts: texts; more than 128 are not asked.
        seed: of the sampled answers.
        right: 1 for a right answer, 0 for a wrong one.
        tries: k, sampled answers to a prompt.
        longest: tokens of an answer.

    Returns:
        `greedy`, the share of likeliest answers that are right, and `pass_at_k`, that of prompts to
        which one of k sampled answers is, both over the first 128 prompts.
    """
    asked = list(prompts[:_PROBED])
    likeliest = sample(policy, tokenizer, asked, longest, seed, temperature=0.0)
    repeated = [prompt for prompt in asked for _ in range(tries)]
    sampled = sample(policy, tokenizer, repeated, longest, seed)
    verified = np.array(right(repeated, sampled.texts)).reshape(len(asked), tries)
    return {
        "greedy": float(np.mean(right(asked, likeliest.texts))),
        f"pass_at_{tries}": float(verified.max(axis=1).mean()),
    }


def judge(about: Built | Task) -> str | None:
    """Return the signal that decides who wins.

    It is the report signal, else the selection signal, else None.
    """
    # never by the signal trained on: a policy that exploits it would win
    return next((name for name in (about.report, about.selection) if name in about.signals), None)


def half(held_out: Sequence[str], role: SeedRole) -> Sequence[str]:
    """Return the held-out prompts of a seed role."""
    # even and odd places: `splits.HeldOut` lays its halves so
    return held_out[0 if role == "tuning" else 1 :: 2]


def _ranking(scores: Sequence[float]) -> dict[str, float]:
    """Measure how pairs are ranked by scores.

    The chosen completion's score of each pair comes first, then the rejected completion's score.
    """
    margins = [
        chosen - rejected for chosen, rejected in zip(scores[::2], scores[1::2], strict=True)
    ]
    return {
        "pair_accuracy": _mean([_won(margin, 0.0) for margin in margins]),
        "pair_margin": _mean(margins),
        "pair_ties": _mean([margin == 0.0 for margin in margins]),
    }


def _won(ours: float, theirs: float) -> float:
    if math.isnan(ours) or math.isnan(theirs):  # a reward that does not apply
        return math.nan
    return 0.5 if ours == theirs else float(ours > theirs)


def _mean(values: Sequence[float]) -> float:
    """Return the mean of all values but NaN, else NaN."""
    applying = [value for value in values if not math.isnan(value)]
    # an exact sum: the order of the values cannot change the last digit
    return math.fsum(applying) / len(applying) if applying else math.nan
