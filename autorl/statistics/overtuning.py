"""Measures how far a tuning score overstates the chosen configuration.

And what choosing by it costs on test seeds.

References:
    [Schneider2025] Schneider, Bischl and Feurer, "Overtuning in hyperparameter optimization",
        AutoML 2025; sign turned for returns, where larger is better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_vector, same_shape


@dataclass(frozen=True)
class Overtuning:
    """Gap and overtuning after each of T proposals, arrays of shape (T,).

    With i_t the incumbent after proposal t, the first argmax of the tuning scores 1..t:

    Attributes:
        incumbent: i_t, counted from 0.
        gap: tuning(i_t) - test(i_t).
        overtuning: max over s <= t of test(i_s), minus test(i_t): what a better earlier incumbent
            would have kept; >= 0.
        relative: overtuning / (max over s <= t of test(i_s), minus test(i_1)). Above 1: worse on
            test seeds than the first configuration tried. NaN where the denominator is 0, so report
            its median over studies, not its mean.
    """

    incumbent: npt.NDArray[np.int64]
    gap: Array
    overtuning: Array
    relative: Array


def overtuning_trace(tuning: npt.ArrayLike, test: npt.ArrayLike) -> Overtuning:
    """Trace gap and overtuning of a study over its proposals.

    Args:
        tuning: tuning scores (T,), in the order of the proposals.
        test: test scores (T,), alike.

    Raises:
        ValueError: empty, not finite, not one-dimensional or of different length.
    """
    tuned = as_vector(tuning, "tuning")
    tested = as_vector(test, "test")
    same_shape(tuned, tested, "tuning and test scores")
    # Strictly above all before it: of equal scores the first stays the incumbent.
    improved = np.concatenate([[True], tuned[1:] > np.maximum.accumulate(tuned)[:-1]])
    incumbent = np.maximum.accumulate(np.where(improved, np.arange(len(tuned)), 0))
    reached = tested[incumbent]
    best = np.maximum.accumulate(reached)
    gained = best - reached[0]
    relative = np.divide(best - reached, gained, out=np.full(len(tuned), np.nan), where=gained > 0)
    return Overtuning(incumbent, tuned[incumbent] - reached, best - reached, relative)


def regret(test: npt.ArrayLike, chosen: int) -> float:
    """Test regret of a choice, >= 0.

    It is the largest test score of all configurations minus the chosen one's.

    Args:
        test: test scores (configurations,), of the whole table the choice was made from.
        chosen: index of the chosen configuration.
    """
    scores = as_vector(test, "test")
    if not 0 <= chosen < len(scores):
        raise ValueError(f"chosen must lie in 0..{len(scores) - 1}, got {chosen}")
    return float(scores.max() - scores[chosen])
