"""Elementary functions that a loop turns into vector code.

The libraries' own are called one by one. `tanh` is in single precision, `exp` and `log` in double.
In plain Python, and for tanh in double precision, they are the library's.

References:
    [Cody1980] W. Cody, W. Waite. Software manual for the elementary functions. Prentice-Hall, 1980.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from autorl.population.kernels import INNER

# tanh(x) = x P(x^2) / Q(x^2), both of degree 4, fitted by iteratively reweighted least squares on
# |x| <= LIMIT towards the smallest maximal error: 3.5e-7 in float32, never above 1 in magnitude.
_LIMIT = 7.9
_P = (9.99999974e-01, 1.34444549e-01, 3.57169978e-03, 2.19034807e-05, 1.52597742e-08)
_Q = (1.0, 4.67777771e-01, 2.61644271e-02, 3.41174930e-04, 8.53058484e-07)
_P32 = tuple(map(np.float32, _P))
_Q32 = tuple(map(np.float32, _Q))
_LIMIT32 = np.float32(_LIMIT)

_PER_LOG_2 = 1.0 / math.log(2.0)
# Their sum is log 2; the first has 33 bits.
_LOG_2_HIGH = 0.6931471803691238
_LOG_2_LOW = 1.9082149292705877e-10
# 14 terms on |x| <= log(2) / 2: below one unit in the last place.
_E = tuple(1.0 / math.factorial(k) for k in range(14))
# log((1 + s) / (1 - s)) / s in powers of s^2, |s| <= 0.172.
_L = tuple(2.0 / (2 * k + 1) for k in range(11))
_LOWEST = -708.0
_HIGHEST = 709.79
# An IEEE 754 double: bias of the exponent, bits of the fraction, and their mask.
_BIAS = 1023
_SHIFT = 52
_FRACTION = 2**52 - 1
_ROOT_2 = math.sqrt(2.0)
# Reassociation would add the two parts of log 2 up again.
_EXACT: Any = {**INNER, "fastmath": {"contract"}}


def tanh(x: float) -> Any:
    """Hyperbolic tangent of a scalar in its own precision."""
    return np.tanh(x)


# `Any` throughout: Numba refuses an implementation whose parameters have other annotations than
# its overload's, of which they are the types.
@overload(tanh, jit_options=INNER, inline="always")
def _tanh(x: Any) -> Callable[[Any], Any]:
    def library(x: Any) -> Any:
        return math.tanh(x)

    def rational(x: Any) -> Any:
        # Beyond the limit the fraction would leave the function it was fitted to.
        x = min(max(x, -_LIMIT32), _LIMIT32)
        y = x * x
        p = (((_P32[4] * y + _P32[3]) * y + _P32[2]) * y + _P32[1]) * y + _P32[0]
        q = (((_Q32[4] * y + _Q32[3]) * y + _Q32[2]) * y + _Q32[1]) * y + _Q32[0]
        return x * p / q

    return rational if x == types.float32 else library


def exp(x: float) -> float:
    """The exponential, to the last place or two.

    It is infinite from 709.5 on, 3e-308 below -708, NaN of NaN.
    """
    return float(np.exp(x))


@overload(exp, jit_options=_EXACT)
def _exp(x: Any) -> Callable[[Any], Any]:
    def reduced(x: Any) -> Any:
        # exp(x) = 2^n exp(r), |r| <= log(2) / 2. n log 2 is taken off in two parts, the first of
        # which is exact [Cody1980].
        x = min(max(x, _LOWEST), _HIGHEST)
        n = np.rint(x * _PER_LOG_2)
        r = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
        high = ((((_E[13] * r + _E[12]) * r + _E[11]) * r + _E[10]) * r + _E[9]) * r + _E[8]
        low = (
            (((((high * r + _E[7]) * r + _E[6]) * r + _E[5]) * r + _E[4]) * r + _E[3]) * r + _E[2]
        ) * r
        # The conversion of NaN is undefined; `low` carries it on.
        power = np.int64(n) if n == n else 0
        return ((low + 1.0) * r + 1.0) * np.int64((power + _BIAS) << _SHIFT).view(np.float64)

    return reduced


def log(x: float) -> float:
    """The natural logarithm of a positive normal number.

    It is right to the last place or two.
    """
    return math.log(x)


@overload(log, jit_options=_EXACT)
def _log(x: Any) -> Callable[[Any], Any]:
    def reduced(x: Any) -> Any:
        # log(x) = e log 2 + log(f) with f in [sqrt(1/2), sqrt(2)], where s below is small.
        bits = np.float64(x).view(np.int64)
        fraction = np.int64((bits & _FRACTION) | (_BIAS << _SHIFT)).view(np.float64)
        above = fraction > _ROOT_2
        exponent = float((bits >> _SHIFT) - _BIAS) + (1.0 if above else 0.0)
        fraction = 0.5 * fraction if above else fraction
        s = (fraction - 1.0) / (fraction + 1.0)
        y = s * s
        high = ((((_L[10] * y + _L[9]) * y + _L[8]) * y + _L[7]) * y + _L[6]) * y + _L[5]
        low = ((((high * y + _L[4]) * y + _L[3]) * y + _L[2]) * y + _L[1]) * y + _L[0]
        return exponent * _LOG_2_HIGH + (s * low + exponent * _LOG_2_LOW)

    return reduced
