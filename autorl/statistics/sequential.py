"""Group-sequential permutation test: how many seeds are enough to tell agents apart, with the error rate held.

Agents are compared pair by pair on blocks of n runs, for at most K blocks. After each block (an interim) pairs whose
difference is larger than chance allows are decided; agents without an open pair stop; the rest run another block. The
probability of deciding any pair of equal agents, over all pairs and interims, is at most alpha.

This follows AdaStop [Mathieu2023], with one change that matters: the threshold is taken from the distribution of the
maximum of *absolute* permuted differences, as the statistic is absolute. Versions that maximise signed differences run
at about twice the nominal error rate.

References:
    [Mathieu2023] Mathieu et al., "AdaStop: adaptive statistical testing for sound comparisons of Deep RL agents", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.statistics._check import Array, as_vector, in_range

Pair: TypeAlias = tuple[str, str]
Verdict: TypeAlias = Literal["larger", "smaller", "equal", "open"]
_ROUNDING = 1e-12  # splits that give the observed difference again must not fall below it by the order of summation


@dataclass(frozen=True)
class SequentialResult:
    """What is known after the runs so far.

    Attributes:
        verdicts: for each pair (a, b): a is `larger` or `smaller` than b, not told apart after all K blocks (`equal`),
            or `open` while runs are missing.
        needs: agents that must run one more block of `block` runs; empty when the test is over.
        block: runs per block.
        thresholds: for each interim reached, the last threshold its statistics were held against.
    """

    verdicts: Mapping[Pair, Verdict]
    needs: tuple[str, ...]
    block: int
    thresholds: tuple[float, ...]


def sequential_test(
    runs: Mapping[str, npt.ArrayLike],
    *,
    rng: np.random.Generator,
    block: int = 5,
    interims: int = 5,
    alpha: float = 0.05,
    permutations: int = 10_000,
) -> SequentialResult:
    """Decide which agents differ from the scores of their runs so far.

    The statistic of a pair at interim k is T = |sum over blocks 1..k of (mean_a - mean_b)|. Under equality any split of
    a block's 2n runs is as likely as the one seen, so T is held against the same quantity under random splits (the
    identity among them). The threshold at interim k is the smallest value t with

        share of splits that passed an earlier threshold + share with max over open pairs of T > t   <=   alpha k / K;

    the largest T above it decides its pair, which leaves the open set, and the threshold is computed again (step-down).

    The test is a function of all runs so far: call it again with more runs and a Generator seeded alike, and earlier
    decisions come out the same.

    Args:
        runs: scores by agent, (blocks * n,) in the order they were run; agents without an open pair need no more.
        rng: draws the splits.
        block: runs per block, n.
        interims: the most blocks, K.
        alpha: error rate over all pairs and interims.
        permutations: number of splits. At interim 1 a decision needs alpha / K of them at least.

    Raises:
        ValueError: fewer than 2 agents, scores not finite, a number of runs that is not a multiple of `block`, or
            too few permutations.
    """
    blocks = _blocks(runs, block, interims)
    in_range(alpha, "alpha", 0.0, 1.0)
    if permutations * alpha < interims:
        raise ValueError(f"permutations must be at least interims / alpha = {interims / alpha:.0f}, got {permutations}")
    pairs = list(combinations(blocks, 2))
    verdicts: dict[Pair, Verdict] = dict.fromkeys(pairs, "open")
    passed = _Permuted(pairs, permutations)
    thresholds: list[float] = []
    for interim in range(interims):
        undecided = [pair for pair in pairs if verdicts[pair] == "open"]
        waiting = {agent for pair in undecided for agent in pair if len(blocks[agent]) <= interim}
        if waiting or not undecided:
            return SequentialResult(verdicts, tuple(a for a in blocks if a in waiting), block, tuple(thresholds))
        passed.add_block({agent: blocks[agent][interim] for pair in undecided for agent in pair}, undecided, rng)
        level = alpha * (interim + 1) / interims
        thresholds.append(_decide(verdicts, undecided, passed, thresholds, level))
    final = {pair: "equal" if verdict == "open" else verdict for pair, verdict in verdicts.items()}
    return SequentialResult(final, (), block, tuple(thresholds))


def _blocks(runs: Mapping[str, npt.ArrayLike], block: int, interims: int) -> dict[str, Array]:
    if len(runs) < 2:
        raise ValueError(f"at least 2 agents are needed, got {len(runs)}")
    if block < 2 or interims < 1:
        raise ValueError(f"block must be at least 2 and interims at least 1, got {block} and {interims}")
    blocks = {}
    for agent, scores in runs.items():
        values = as_vector(scores, f"runs[{agent!r}]")
        if len(values) % block or len(values) > block * interims:
            raise ValueError(
                f"runs[{agent!r}] must hold a multiple of {block} scores, at most {block * interims}, got {len(values)}"
            )
        blocks[agent] = values.reshape(-1, block)
    return blocks


class _Permuted:
    """Running sums of block differences for every split (row 0: as observed), and their paths over the interims."""

    def __init__(self, pairs: list[Pair], permutations: int) -> None:
        self.sums = {pair: np.zeros(permutations) for pair in pairs}
        self.paths: dict[Pair, list[Array]] = {pair: [] for pair in pairs}  # |sum| at each interim
        self.permutations = permutations

    def add_block(self, scores: Mapping[str, Array], pairs: list[Pair], rng: np.random.Generator) -> None:
        """Add one block; the same splits serve all pairs, so statistics that share an agent stay correlated."""
        size = len(next(iter(scores.values())))
        signs = np.repeat([1.0, -1.0], size)
        splits = rng.permuted(np.tile(signs, (self.permutations, 1)), axis=1)
        splits[0] = signs
        for first, second in pairs:
            difference = splits @ np.concatenate([scores[first], scores[second]]) / size
            self.sums[first, second] = self.sums[first, second] + difference
            self.paths[first, second].append(np.abs(self.sums[first, second]))

    def observed(self, pair: Pair) -> float:
        return float(self.sums[pair][0])

    def largest(self, pairs: list[Pair], interim: int) -> Array:
        """Maximum over `pairs` of |sum| at an interim, one per split."""
        return np.asarray(np.max([self.paths[pair][interim] for pair in pairs], axis=0))


def _decide(
    verdicts: dict[Pair, Verdict], undecided: list[Pair], permuted: _Permuted, earlier: list[float], level: float
) -> float:
    """Decide pairs at the present interim until none passes; returns the last threshold."""
    interim, left = len(earlier), list(undecided)
    while True:
        spent = np.zeros(permuted.permutations, dtype=bool)
        for past, threshold in enumerate(earlier):
            spent |= permuted.largest(left, past) > threshold
        threshold = _threshold(permuted.largest(left, interim), spent, level)
        strongest = max(left, key=lambda pair: abs(permuted.observed(pair)))
        difference = permuted.observed(strongest)
        if abs(difference) <= threshold:
            return threshold
        verdicts[strongest] = "larger" if difference > 0 else "smaller"
        left.remove(strongest)
        if not left:
            return threshold


def _threshold(statistics: Array, spent: npt.NDArray[np.bool_], level: float) -> float:
    """Smallest value t of the unspent statistics with share(spent) + share(unspent and statistic > t) <= level."""
    alive = np.sort(statistics[~spent])
    allowed = int(np.floor(level * len(statistics) + 1e-9)) - int(spent.sum())
    if len(alive) == 0 or allowed < 0:
        return float("inf")
    return float(alive[max(len(alive) - allowed - 1, 0)]) * (1 + _ROUNDING)
