"""Group-sequential permutation test: how many seeds tell agents apart.

Agents are compared pair by pair on blocks of n runs, for at most K blocks. After each block (an
interim) pairs whose difference is larger than chance allows are decided; agents without an open
pair stop; the rest run another block.

The probability of deciding any pair, over all pairs and interims, is at most alpha where all
agents' scores have one distribution, for any number of agents. If some agents differ, or means are
equal and spreads are not, it is about alpha: with 5 runs a block and one agent of five times the
spread 0.07 to 0.13 at alpha = 0.05 (measured for 2 to 10 agents:
`benchmarks/results/error_rates.md`).

This follows AdaStop [Mathieu2023] with three changes. The maximum is over *absolute* permuted
statistics, as the statistic is absolute: versions that maximise signed ones run at about twice the
nominal error rate. The runs of a block are permuted among all agents that are still connected by
open pairs: one split of 2 n runs applied to every pair is no permutation of the data of three
agents, and decided pairs of five equal agents with probability 0.063. Differences are studentized,
so that equal means are told from unequal spreads better [Chung2013].

References:
    [Mathieu2023] Mathieu et al., "AdaStop: adaptive statistical testing for sound comparisons of
        Deep RL agents", 2023.
    [Chung2013] Chung and Romano, "Exact and asymptotically robust permutation tests", Annals of
        Statistics 2013.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_vector, in_range

Pair: TypeAlias = tuple[str, str]
Verdict: TypeAlias = Literal["larger", "smaller", "equal", "open"]
# Permutations that give the observed statistic again must not fall below it by the order of
# summation.
_ROUNDING = 1e-9
# Least variance of an agent's runs, as a share of that of all: constant scores have none.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class SequentialResult:
    """Verdicts on all pairs of agents after the runs so far.

    Attributes:
        verdicts: for each pair (a, b): a is `larger` or `smaller` than b, not told apart after all
            K blocks (`equal`), or `open` while runs are missing.
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

    The statistic of a pair at interim k is T = |mean_a - mean_b| / sqrt(s_a^2 / kn + s_b^2 / kn) of
    its runs so far, s^2 the sample variances. If agents are equal, any permutation of the runs of a
    block among them is as likely as the one seen, so T is held against the same quantity under
    random permutations (the identity among them). The threshold at interim k is the smallest value
    t with

        share of permutations that passed an earlier one
        + share with max over open pairs of T > t   <=   alpha k / K;

    the largest T above it decides its pair, which leaves the open set, and the threshold is
    computed again (step-down). Runs are permuted within the groups of agents that open pairs
    connect.

    The test is a function of all runs so far: call it again with more runs and a Generator seeded
    alike, and earlier decisions come out the same.

    Args:
        runs: scores by agent, (blocks * n,) in the order they were run; agents without an open pair
            need no more.
        rng: draws the permutations.
        block: runs per block, n.
        interims: the most blocks, K.
        alpha: error rate over all pairs and interims.
        permutations: their number. At interim 1 a decision needs alpha / K of them at least.

    Raises:
        ValueError: fewer than 2 agents, scores not finite, a number of runs that is not a multiple
            of `block`, or too few permutations.
    """
    blocks = _blocks(runs, block, interims)
    in_range(alpha, "alpha", 0.0, 1.0)
    if permutations * alpha < interims:
        raise ValueError(
            f"permutations must be at least interims / alpha = {interims / alpha:.0f}, "
            f"got {permutations}"
        )
    pairs = list(combinations(blocks, 2))
    verdicts: dict[Pair, Verdict] = dict.fromkeys(pairs, "open")
    permuted = _Permuted(blocks, permutations, rng)
    thresholds: list[float] = []
    for interim in range(interims):
        undecided = [pair for pair in pairs if verdicts[pair] == "open"]
        waiting = {agent for pair in undecided for agent in pair if len(blocks[agent]) <= interim}
        if waiting or not undecided:
            return SequentialResult(
                verdicts, tuple(a for a in blocks if a in waiting), block, tuple(thresholds)
            )
        level = alpha * (interim + 1) / interims
        thresholds.append(_decide(verdicts, undecided, permuted, thresholds, level))
    final = {pair: "equal" if verdict == "open" else verdict for pair, verdict in verdicts.items()}
    return SequentialResult(final, (), block, tuple(thresholds))


def _blocks(runs: Mapping[str, npt.ArrayLike], block: int, interims: int) -> dict[str, Array]:
    if len(runs) < 2:
        raise ValueError(f"at least 2 agents are needed, got {len(runs)}")
    if block < 2 or interims < 1:
        raise ValueError(
            f"block must be at least 2 and interims at least 1, got {block} and {interims}"
        )
    blocks = {}
    for agent, scores in runs.items():
        values = as_vector(scores, f"runs[{agent!r}]")
        if len(values) % block or len(values) > block * interims:
            raise ValueError(
                f"runs[{agent!r}] must hold a multiple of {block} scores, "
                f"at most {block * interims}, got {len(values)}"
            )
        blocks[agent] = values.reshape(-1, block)
    return blocks


class _Group:
    """Agents whose runs are permuted among each other, block by block.

    Row 0 of every array is as observed.
    """

    def __init__(
        self, scores: Mapping[str, Array], permutations: int, rng: np.random.Generator
    ) -> None:
        self._scores = scores  # (blocks, n) by agent, centred
        self._shape = (permutations, len(scores))
        self._rng = rng
        self._sums = np.zeros(self._shape)
        self._squares = np.zeros(self._shape)
        self._columns = {pair: column for column, pair in enumerate(combinations(scores, 2))}
        self._interims: list[Array] = []

    def statistics(self, pairs: Sequence[Pair], interim: int) -> Array:
        """Return T of pairs of the group at an interim, (permutations, pairs)."""
        while len(self._interims) <= interim:
            self._add_block(len(self._interims))
        return self._interims[interim][:, [self._columns[pair] for pair in pairs]]

    def _add_block(self, block: int) -> None:
        observed = np.concatenate([scores[block] for scores in self._scores.values()])
        runs = self._rng.permuted(np.tile(observed, (self._shape[0], 1)), axis=1)
        # The identity is one of the permutations.
        runs[0] = observed
        runs = runs.reshape(*self._shape, -1)
        self._sums = self._sums + runs.sum(axis=2)
        self._squares = self._squares + (runs**2).sum(axis=2)
        count = runs.shape[2] * (block + 1)
        means = self._sums / count
        variances = (self._squares - count * means**2) / (count - 1)
        # The variance of all runs: one number.
        pooled = self._squares[0].sum() / (count * len(self._scores)) - means[0].mean() ** 2
        errors = np.maximum(variances, _LEAST_VARIANCE * max(pooled, 0.0)) / count
        first, second = np.triu_indices(len(self._scores), 1)  # in the order of `combinations`
        differences = np.abs(means[:, first] - means[:, second])
        error = np.sqrt(errors[:, first] + errors[:, second])
        self._interims.append(
            np.divide(differences, error, out=np.zeros_like(error), where=error > 0)
        )


class _Permuted:
    """Statistics under permutation, of the groups that open pairs make."""

    def __init__(
        self, blocks: Mapping[str, Array], permutations: int, rng: np.random.Generator
    ) -> None:
        first = np.concatenate([scores[:1].ravel() for scores in blocks.values()])
        centre = first.mean()  # of the first block: the same however many runs follow
        scale = float(np.abs(first - centre).max()) or 1.0
        self._scores = {agent: (scores - centre) / scale for agent, scores in blocks.items()}
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._rng = rng
        self.permutations = permutations

    def strongest(self, pairs: Sequence[Pair], interim: int) -> tuple[Pair, float, Array]:
        """Find the open pair of the largest T at an interim.

        Returns the pair, its T, and the maximum over `pairs`, (permutations,).
        """
        strongest = pairs[0]
        observed = -1.0
        largest = np.zeros(self.permutations)
        for connected in _connected(pairs):
            agents = tuple(agent for agent in self._scores if agent in connected)
            if agents not in self._groups:
                scores = {agent: self._scores[agent] for agent in agents}
                self._groups[agents] = _Group(scores, self.permutations, self._rng)
            # A pair lies in one group whole: pairs are what connects.
            among = [pair for pair in pairs if pair[0] in connected]
            statistics = self._groups[agents].statistics(among, interim)
            largest = np.maximum(largest, statistics.max(axis=1))
            column = int(statistics[0].argmax())
            if statistics[0, column] > observed:
                strongest = among[column]
                observed = float(statistics[0, column])
        return strongest, observed, largest

    def sign(self, pair: Pair, interim: int) -> float:
        """Subtract the mean of the second agent's runs from the first's.

        Runs up to the interim count.
        """
        first, second = (self._scores[agent][: interim + 1].mean() for agent in pair)
        return float(first - second)


def _connected(pairs: Sequence[Pair]) -> list[set[str]]:
    """Group the agents that pairs connect."""
    groups: list[set[str]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in touched]
        groups.append(set(pair).union(*touched))
    return groups


def _decide(
    verdicts: dict[Pair, Verdict],
    undecided: list[Pair],
    permuted: _Permuted,
    earlier: list[float],
    level: float,
) -> float:
    """Decide pairs at the present interim until none passes.

    Returns the last threshold.
    """
    interim = len(earlier)
    remaining = list(undecided)
    while True:
        spent = np.zeros(permuted.permutations, dtype=bool)
        # Permutations that passed an earlier threshold have spent their part of the level. They
        # are found anew each time: the maximum is over the pairs that are still open.
        for past, threshold in enumerate(earlier):
            spent |= permuted.strongest(remaining, past)[2] > threshold
        strongest, observed, largest = permuted.strongest(remaining, interim)
        threshold = _threshold(largest, spent, level)
        if observed <= threshold:
            return threshold
        verdicts[strongest] = "larger" if permuted.sign(strongest, interim) > 0 else "smaller"
        remaining.remove(strongest)
        if not remaining:
            return threshold


def _threshold(statistics: Array, spent: npt.NDArray[np.bool_], level: float) -> float:
    """Return the smallest unspent statistic that keeps to the level.

    It is the smallest value t with share(spent) + share(unspent and statistic > t) <= level.
    """
    alive = np.sort(statistics[~spent])
    # 0.29 * 100 is 28.999999999999996: rounding must not cost a permutation.
    allowed = int(np.floor(level * len(statistics) + 1e-9)) - int(spent.sum())
    if len(alive) == 0 or allowed < 0:
        return float("inf")
    return float(alive[max(len(alive) - allowed - 1, 0)]) * (1 + _ROUNDING)
