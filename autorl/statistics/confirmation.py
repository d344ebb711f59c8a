"""The rule of adaptive seeds: more for the best configurations.

A budget of runs is split. Most of it explores, with few seeds for each configuration. The rest
confirms: level by level the best of those that are left get one more seed, and fewer go on to the
next level, until those of the last have the most seeds. It is successive rejects [Audibert2010] on
posterior means (`autorl.statistics.noise`), with a plan that does not depend on the scores.

References:
    [Audibert2010] Audibert, Bubeck and Munos, "Best arm identification in multi-armed bandits",
        COLT 2010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Shares of 0.1 to 0.5 on the 19 ARLBench tables of DQN and PPO at 32 and 96 runs: 0.1 to 0.2 are as
# good as each other, more is worse (`benchmarks/adaptive_seeds.py`).
SHARE = 0.15
"""Share of a budget that confirms."""
_GOING_ON = 0.6  # of a level's configurations, to the next level
_LAST = 2  # configurations at the last level: a choice needs two


def runs_to_confirm(runs: float, share: float = SHARE, *, confirmed: int = 0) -> int:
    """Return how many runs of a budget confirm.

    The others explore. The number is the share, rounded: at least two, which a choice needs, and
    at most half.

    Args:
        runs: of the budget.
        share: of it that confirms.
        confirmed: seeds by which the best so far is ahead of a new configuration, which needs as
            many to be compared with it; 0 at first.
    """
    return min(max(_LAST, confirmed, round(share * runs)), int(runs // 2))


def levels_of(runs: int, candidates: int, levels: int, *, confirmed: int = 0) -> tuple[int, ...]:
    """Return how many configurations get one more seed at each level.

    They descend, about 3/5 from level to level down to two, and add up to `runs`, or to all that
    `candidates` can take. With few runs there are fewer levels.

    Args:
        runs: for all levels together, one for each configuration and level.
        candidates: configurations that may get seeds.
        levels: seeds that a configuration may get.
        confirmed: as in `runs_to_confirm`. Above 0 one new configuration at the last level is
            enough: there is another to compare it with.

    Raises:
        ValueError: a negative number.
    """
    if min(runs, candidates, levels, confirmed) < 0:
        raise ValueError(f"expected no negative numbers, got {(runs, candidates, levels)}")
    last = min(1 if confirmed else _LAST, candidates, runs)
    if not last or not levels:
        return ()
    # 1. as many levels as there are runs for, of the last level's size
    counts = [last] * min(levels, runs // last)
    # 2. grown at the first levels while the runs last
    size = float(last)
    while True:
        size += 0.25
        grown = [max(last, int(size * _GOING_ON**level)) for level in range(len(counts))]
        if sum(grown) > runs or grown[0] > candidates:
            break
        counts = grown
    # 3. what is left, one by one, to the first level that stays no larger than the one before it
    for _ in range(runs - sum(counts)):
        above = [candidates, *counts]
        room = [level for level, count in enumerate(counts) if count < above[level]]
        if not room:
            break
        counts[room[0]] += 1
    return tuple(counts)


def confirmed_at(
    ranked: Sequence[int], seeds: Mapping[int, int], target: int, runs: int
) -> list[int]:
    """Return the configurations that have `target` seeds after a level.

    Configurations with as many already pass. Each of the others takes the seeds it lacks, in their
    order, as long as the runs of the level pay for them.

    Args:
        ranked: indices of those that are left, best first.
        seeds: how many each configuration has, by index.
        target: seeds of this level.
        runs: that the level may take.
    """
    passed = []
    for index in ranked:
        lacking = max(0, target - seeds[index])
        if lacking > runs:
            runs = 0  # nobody takes a seed in place of a better one
        else:
            runs -= lacking
            passed.append(index)
    return passed
