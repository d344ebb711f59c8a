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

    one, two = (rankdata(np.asarray(each, dtype=np.float64), axis=-1) for each in (first, second))
    one, two = (each - each.mean(axis=-1, keepdims=True) for each in (one, two))
    scale = np.sqrt((one**2).sum(axis=-1) * (two**2).sum(axis=-1))
    product = (one * two).sum(axis=-1)
    return np.asarray(np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0))
