"""Counter-based random numbers.

Every draw is a hash of (member key, purpose, counter), never of what came before.

A stream is the 64-bit hash of a key and a purpose; draw i of a stream is SplitMix64's output
function applied to the stream's seed plus i golden-ratio steps. No state is shared between members,
so a draw does not depend on companions, threads or the number of environments; checkpointing a
stream is saving one counter.

The functions ending in `_array` are NumPy twins over arrays of counters: the oracle and the
initialisation use them.

References:
    [Salmon2011] J. Salmon et al. Parallel random numbers: as easy as 1, 2, 3. SC 2011.
    [Steele2014] G. Steele, D. Lea, C. Flood. Fast splittable pseudorandom number generators. OOPSLA
        2014.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autorl.population.kernels import Array, kernel

# Purposes: one stream each. A member's counters are kept in an array in this order.
RESET, ACTION, DYNAMICS, SHUFFLE, REPLAY, UPDATE, INITIALISE, EVALUATE = range(8)
PURPOSES = 8

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11, _S32 = (np.uint64(shift) for shift in (30, 27, 31, 11, 32))
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_UNIT = 2.0**-53  # a double has 53 bits: all are random, and 1 is never reached


@kernel
def mix(z: Any) -> Any:
    """Hash a word as SplitMix64 does.

    The output function is a bijection of 64-bit words in which every input bit reaches every output
    bit.
    """
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@kernel
def stream(key: Any, purpose: Any) -> Any:
    """Return the stream of `key` for `purpose`.

    `purpose` is also the number of an episode, epoch, ... of a parent stream.
    """
    return mix(key ^ mix(GOLDEN * (np.uint64(purpose) + _ONE)))


@kernel
def bits(seed: Any, counter: Any) -> Any:
    """Return 64 random bits: draw `counter` of stream `seed`."""
    return mix(seed + GOLDEN * (np.uint64(counter) + _ONE))


@kernel
def uniform(seed: Any, counter: int) -> float:
    """Return a number uniform in [0, 1) with 53 random bits."""
    return float(bits(seed, counter) >> _S11) * _UNIT


@kernel
def integer(seed: Any, counter: int, n: int) -> Any:
    """Return a number uniform in 0..n-1 for n < 2^32.

    By multiply and shift, with a bias below n / 2^32.
    """
    return np.int64(((bits(seed, counter) >> _S32) * np.uint64(n)) >> _S32)


@kernel
def normal(seed: Any, counter: int) -> float:
    """Return a standard normal number by Box and Muller's cosine branch.

    It takes two uniform draws of this counter's own.
    """
    first = uniform(seed, 2 * counter)
    second = uniform(seed, 2 * counter + 1)
    # 1 - first lies in (0, 1]: its logarithm is finite.
    return math.sqrt(-2.0 * math.log(1.0 - first)) * math.cos(2.0 * math.pi * second)


@kernel
def permute(order: Array, seed: Any) -> None:
    """Fill `order` with a uniformly random permutation of 0..n-1 (Fisher and Yates)."""
    n = len(order)
    for i in range(n):
        order[i] = i
    for i in range(n - 1, 0, -1):
        j = integer(seed, i, i + 1)
        order[i], order[j] = order[j], order[i]


def stream_array(key: Array, purpose: Array) -> Array:
    """Compute `stream` over arrays of uint64 that broadcast."""
    return np.asarray(mix(key ^ mix(GOLDEN * (purpose + _ONE))))


def derived(key: int, *purposes: int) -> Array:
    """Apply `stream` once for each purpose in turn.

    Returns a uint64 array of shape (1,).
    """
    # An array of one: NumPy warns where a scalar word overflows, which is what words do here.
    word = np.array([key], np.uint64)
    for purpose in purposes:
        word = stream_array(word, np.array([purpose], np.uint64))
    return word


def bits_array(seed: Array, counter: Array) -> Array:
    """Compute `bits` over arrays of uint64 that broadcast."""
    return np.asarray(mix(seed + GOLDEN * (counter + _ONE)))


def uniform_array(seed: Array, counter: Array) -> Array:
    """Compute `uniform` over arrays of uint64 that broadcast."""
    return (bits_array(seed, counter) >> _S11).astype(np.float64) * _UNIT


def normal_array(seed: Array, counter: Array) -> Array:
    """Compute `normal` over arrays of uint64 that broadcast.

    Equal up to the last bit of log and cos.
    """
    first = uniform_array(seed, _TWO * counter)
    second = uniform_array(seed, _TWO * counter + _ONE)
    return np.asarray(np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * np.pi * second))
