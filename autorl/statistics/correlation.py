"""Rank correlation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Correlate ranks along the last axis, by Spearman's coefficient, ties averaged.

    (..., n) and (..., n) -> (...). It is 0 where one side is constant, since that side then says
    nothing about the order of the other (SciPy: NaN).
    """
    from scipy.stats import rankdata

    centred = []
    for sample in (first, second):
        ranks = rankdata(np.asarray(sample, dtype=np.float64), axis=-1)
        centred.append(ranks - ranks.mean(axis=-1, keepdims=True))
    left, right = centred
    scale = np.sqrt((left**2).sum(axis=-1) * (right**2).sum(axis=-1))
    product = (left * right).sum(axis=-1)
    return np.asarray(np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0))
