"""Best of n: keep the completion that the proxy likes best.

The other way to optimise a proxy, at a known distance from the reference
(`overoptimization.best_of_n_kl`): a study of reward models needs no policy to be trained, and a
trained policy has something to be held against at equal KL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_table, same_shape
from autorl.trainers.language.contract import Built, Signal
from autorl.trainers.language.overoptimization import best_of_n_kl
from autorl.trainers.language.sampling import sample

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class BestOfN:
    """Mean rewards of the best of n by the proxy, by n.

    Attributes:
        n: (k,) how many are sampled.
        kl: (k,) from the reference policy, in nats.
        proxy, gold: (k,) mean reward of what is kept.
    """

    n: tuple[int, ...]
    kl: Array
    proxy: Array
    gold: Array


def best_of_n(proxy: npt.ArrayLike, gold: npt.ArrayLike, n: int) -> float:
    """Estimate the gold reward of the best of n by the proxy.

    N >= n completions of each prompt are scored.

    Unbiased, and of far smaller variance than taking n of them once: the mean over all C(N, n)
    subsets. The completion of proxy rank i (1 = lowest) is the best of C(i - 1, n - 1) of them.

    Args:
        proxy: (prompts, N). Equal rewards share their chances.
        gold: (prompts, N), of the same completions.
        n: 1..N.

    Raises:
        ValueError: shapes differ, values are not finite, or n is out of range.
    """
    scores = as_table(proxy, "proxy")
    truth = as_table(gold, "gold")
    same_shape(scores, truth, "proxy and gold")
    size = scores.shape[1]
    if not 1 <= n <= size:
        raise ValueError(f"n must lie in 1..{size}, the completions scored of each prompt, got {n}")
    weights = _chances(size, n)
    total = 0.0
    for row, values in zip(scores, truth, strict=True):
        # equal proxies share their chances: each completion counts with the mean gold of its group
        _, tied = np.unique(row, return_inverse=True)
        mean = np.bincount(tied, values) / np.bincount(tied)
        total += float(weights @ mean[np.sort(tied)])
    return total / len(scores)


def curve(
    policy: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    built: Built,
    prompts: Sequence[str],
    seed: int,
    *,
    proxy: Signal,
    most: int = 256,
) -> BestOfN:
    """Measure a policy's best of 1, 2, 4, ..., `most` completions.

    Args:
        policy: a language model.
        tokenizer: of the model.
        built: the task; gold is the signal it reports.
        prompts: `most` completions are sampled for each.
        seed: of the samples.
        proxy: the signal by which a completion is the best.
        most: completions.
    """
    repeated = [prompt for prompt in prompts for _ in range(most)]
    # one sample serves every n: curves of separate samples would cross by chance
    texts = sample(policy, tokenizer, repeated, built.max_completion, seed).texts
    shape = (len(prompts), most)
    scores = np.array(proxy(repeated, texts)).reshape(shape)
    truth = np.array(built.signals[built.report](repeated, texts)).reshape(shape)
    counts = tuple(2**power for power in range(most.bit_length()) if 2**power <= most)
    return BestOfN(
        counts,
        best_of_n_kl(counts),
        np.array([best_of_n(scores, scores, n) for n in counts]),
        np.array([best_of_n(scores, truth, n) for n in counts]),
    )


def _chances(size: int, n: int) -> Array:
    """Return the chance that each rank is the best of n.

    The chance of rank i is C(i - 1, n - 1) / C(size, n), computed without large numbers.
    """
    chances = np.zeros(size)
    # C(N - 1, n - 1) / C(N, n); large N overflow the binomials themselves
    chances[-1] = n / size
    for i in range(size - 1, n - 1, -1):  # C(i - 1, n - 1) = C(i, n - 1) (i - n + 1) / i
        chances[i - 1] = chances[i] * (i - n + 1) / i
    return chances
