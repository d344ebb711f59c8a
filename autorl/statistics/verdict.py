"""Verdicts on edits: screened on tuning seeds, confirmed on held-out seeds.

The *screen* looks at tuning seeds one by one, and gives the edit up or passes it on. The
*confirmation* tests it on held-out seeds that no look has used, by a group-sequential rank-sum
test: after each look the number of pairs of runs, one of the baseline and one of the edit, in which
the edit's is better is held against a boundary. Only the confirmation can keep an edit, so that
looks at tuning seeds cost no error, however many there are.

If the edit changes nothing, its runs and the baseline's are exchangeable, and the chance that any
look of a confirmation passes its boundary is at most its level, for scores of any distribution: the
boundaries are those of ranks [Wilcoxon1945], spent look by look [Lan1983], and ties are broken by
a coin. A session spends its error on confirmations that fail (`level_after`). In a session whose
edits change nothing anything is kept with probability at most ALPHA:

- The confirmations that fail before the first false keep, and the one that makes it, have different
  numbers of failures before them, so that their levels add up to at most ALPHA. Keeps of edits that
  are better cost nothing, as in the online fallback procedure [Tian2021].
- A baseline's held-out runs serve many judgements. History says of them only that they were good
  enough: all its events increase in them, so by Harris' inequality [Harris1960] they are, if
  anything, too good, and a false keep only becomes rarer.

References:
    [Wilcoxon1945] Wilcoxon, "Individual comparisons by ranking methods", 1945.
    [Lan1983] Lan and DeMets, "Discrete sequential boundaries for clinical trials", 1983.
    [Tian2021] Tian and Ramdas, "Online control of the familywise error rate", 2021.
    [Harris1960] Harris, "A lower bound for the critical probability in a certain percolation
        process", 1960.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
OPEN = 0
PASSED = 1
FAILED = -1

ALPHA = 0.05
"""Error of a judgement alone, and of a whole session of a ledger."""
SCREEN = tuple(range(2, 13))
"""Runs of the edit at the looks of a screen."""
LOOKS = (*range(3, 15), 16, 18, 20, 23, 26, 29, 32, 36, 40, 45, 50)
"""Runs of the edit at the looks of a confirmation."""
# Chosen on ARLBench's seed noise, where one in six edits passes that change nothing, and three in
# four that gain half a standard deviation (`benchmarks/judge.py`).
_PASS = 1.6
_FAIL = 1.0
# An edit is better than the baseline in so many pairs of runs if it gains 0.5 standard deviations
# of a normal distribution.
_WORTH = 0.64
_HOPELESS = -0.5  # standard errors below equality at which a confirmation is given up
_EARLY = 0.5  # exponent of the error spent by a look; 1 spends it evenly
_DRAWS = 100_000
_SHARED = 12  # failed confirmations after which the levels begin to fall steeply
_TAIL = 1.2020569031595942 - sum(n**-3 for n in range(1, _SHARED + 1))  # zeta(3), less its head


def level_after(failed: int, alpha: float = ALPHA) -> float:
    """Return the level of a session's next confirmation.

    It is proportional to (failed + 13)^-3. The levels of all failures add up to `alpha`.
    """
    return alpha * (failed + 1 + _SHARED) ** -3 / _TAIL


def wins(baseline: npt.ArrayLike, edit: npt.ArrayLike, coins: tuple[Array, Array] | None) -> Array:
    """Say in which pairs of runs the edit's is better.

    Shape (..., baseline, edit).

    Args:
        baseline: scores (..., m), larger is better.
        edit: scores (..., n).
        coins: a number for each run of both, by which ties are broken; None: they count half.
    """
    first = np.asarray(baseline)[..., :, None]
    second = np.asarray(edit)[..., None, :]
    broken = 0.5 if coins is None else coins[0][..., :, None] < coins[1][..., None, :]
    return np.where(first == second, broken, second > first).astype(np.float32)


class Stage(NamedTuple):
    """The state of a stage, of many judgements at once.

    Attributes:
        state: OPEN, PASSED or FAILED.
        runs: of the edit at the look that decided, or at the last one.
    """

    state: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64]


def baseline_runs(runs: int, pool: int) -> int:
    """Return the runs of the baseline at a look.

    They are as many as the edit's, but at least the pool's.
    """
    return max(pool, runs)


Decision: TypeAlias = Callable[[int, Array, float], tuple[Array, Array]]


def screened(
    baseline: npt.ArrayLike, edit: npt.ArrayLike, pool: int, *, first_look: int = 0
) -> Stage:
    """Screen an edit on tuning seeds, look by look.

    Args:
        baseline: scores (..., m), larger is better.
        edit: scores (..., n). Looks that these are too few for are not held.
        pool: runs of the baseline that were there before the judgement.
        first_look: number of the first look that is held.
    """

    def decide(look: int, share: Array, error: float) -> tuple[Array, Array]:
        return (share - 0.5) / error >= _PASS, (share - _WORTH) / error <= -_FAIL

    return _looks(wins(baseline, edit, None), pool, SCREEN, decide, first_look)


def confirmed(
    baseline: npt.ArrayLike,
    edit: npt.ArrayLike,
    coins: tuple[Array, Array],
    pool: int,
    level: float,
    *,
    first_look: int = 0,
) -> Stage:
    """Test an edit on held-out seeds, look by look.

    It passes at a look whose wins reach the boundary and whose mean is above the baseline's.

    Args:
        baseline: scores (..., m), larger is better.
        edit: scores (..., n), as `screened` takes them.
        coins: a number for each run of both, by which ties are broken.
        pool: runs of the baseline that were there before the judgement.
        level: probability that an edit that changes nothing passes, over all looks.
        first_look: number of the first look that is held.
    """
    limits = boundary(pool, level)
    first = np.asarray(baseline)
    second = np.asarray(edit)

    def decide(look: int, share: Array, error: float) -> tuple[Array, Array]:
        count = LOOKS[look]
        size = baseline_runs(count, pool)
        # Sums of up to 10,000 wins in single precision are whole numbers.
        reached = np.rint(share * count * size) >= limits[look]
        gains = second[..., :count].mean(axis=-1) > first[..., :size].mean(axis=-1)
        return reached & gains, (share - 0.5) / error < _HOPELESS

    return _looks(wins(baseline, edit, coins), pool, LOOKS, decide, first_look)


def _looks(won: Array, pool: int, looks: Sequence[int], decide: Decision, begin: int) -> Stage:
    state = np.full(won.shape[:-2], OPEN)
    runs = np.zeros_like(state)
    for look, count in list(enumerate(looks))[begin:]:
        size = baseline_runs(count, pool)
        if count > won.shape[-1] or size > won.shape[-2]:
            break
        share = won[..., :size, :count].mean(axis=(-2, -1), dtype=np.float64)
        error = ((size + count + 1) / (12 * size * count)) ** 0.5
        passed, failed = decide(look, share, error)
        runs = np.where(state == OPEN, count, runs)
        state = np.where((state == OPEN) & passed, PASSED, state)
        state = np.where((state == OPEN) & failed, FAILED, state)
    return Stage(state, runs)


@functools.lru_cache(maxsize=1024)
def boundary(pool: int, level: float) -> tuple[float, ...]:
    """Return the wins at which a confirmation passes, by look.

    By the look at n of N runs the error spent is level * sqrt(n / N). The law of the wins under
    exchangeability is drawn 100,000 times, from a fixed stream.
    """
    drawn = _null_wins(pool)
    spent = np.zeros(len(drawn), dtype=bool)
    limits = []
    for look, count in enumerate(LOOKS):
        share = level * (count / LOOKS[-1]) ** _EARLY
        # The edit's own runs count as one of the draws.
        allowed = int(share * (len(drawn) + 1) + 1e-9) - 1 - int(spent.sum())
        alive = np.sort(drawn[~spent, look])
        limits.append(float(alive[-allowed - 1]) + 1 if 0 <= allowed < len(alive) else np.inf)
        spent |= drawn[:, look] >= limits[-1]
    return tuple(limits)


@functools.lru_cache(maxsize=8)
def _null_wins(pool: int) -> npt.NDArray[np.float32]:
    """Draw the wins of an edit that changes nothing, (draws, looks)."""
    rng = np.random.default_rng(20_261_128)
    parts = []
    for _ in range(20):  # a part at a time: the arrays of all draws would take gigabytes
        draws = _DRAWS // 20
        first = rng.random((draws, baseline_runs(LOOKS[-1], pool)), dtype=np.float32)
        second = rng.random((draws, LOOKS[-1]), dtype=np.float32)
        won = np.zeros((draws, LOOKS[-1]), dtype=np.float32)
        for run in range(LOOKS[-1]):
            size = baseline_runs(run + 1, pool)
            won[:, run] = (first[:, :size] < second[:, run, None]).sum(axis=1)
            if run >= pool:  # a new run of the baseline, too
                won[:, run] += (first[:, run, None] < second[:, :run]).sum(axis=1)
        parts.append(won.cumsum(axis=1)[:, np.array(LOOKS) - 1])
    return np.concatenate(parts)


def at_least(baseline: Array, edit: Array, pool: int, level: float) -> float:
    """Bound the edit's gain from below, with all looks together.

    It is the largest shift d for which edit - d still passes at some look: the repeated confidence
    limit of a shift, at 1 - level. It is -inf where no shift does.
    """
    shifts = [-np.inf]
    for limit, count in zip(boundary(pool, level), LOOKS, strict=True):
        size = baseline_runs(count, pool)
        if count <= len(edit) and size <= len(baseline) and limit <= count * size:
            differences = np.sort((edit[:count] - baseline[:size, None]).ravel())
            shifts.append(float(differences[-int(limit)]))
    return max(shifts)


def pools(number: int, first: int) -> tuple[int, int]:
    """Return how many tuning and held-out runs a ledger's baseline has.

    They grow with the judgements that have been: a session that goes on deserves a better baseline.

    Args:
        number: of judgements before, with this ledger.
        first: tuning runs at the start; 0 where each judgement trains pairs.
    """
    steps = 1 + number // 25
    return first * min(3, steps), 2 * first * min(5, steps)


def planned(
    noise: npt.ArrayLike, gain: float, sizes: tuple[int, int], level: float, draws: int = 500
) -> Array:
    """Draw the runs of an edit until it is kept.

    They are infinite where it is not.

    Args:
        noise: scores of runs of one configuration, drawn from with replacement.
        gain: of the edit.
        sizes: runs of the baseline, on tuning and held-out seeds.
        level: of the confirmation.
        draws: judgements.
    """
    rng = np.random.default_rng(0)
    values = np.asarray(noise, dtype=np.float64)
    baseline, edit, against, held = (
        rng.choice(values, (draws, runs))
        for looks, size in zip((SCREEN, LOOKS), sizes, strict=True)
        for runs in (baseline_runs(looks[-1], size), looks[-1])
    )
    screen = screened(baseline, edit + gain, sizes[0])
    coins = (rng.random(against.shape), rng.random(held.shape))
    stage = confirmed(against, held + gain, coins, sizes[1], level)
    passed = (screen.state == PASSED) & (stage.state == PASSED)
    return np.where(passed, screen.runs + stage.runs, np.inf)
