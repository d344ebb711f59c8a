from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy import stats

from autorl.population import rng


@njit
def _draws(seed, n, out_bits, out_uniform, out_normal, out_integer, order):
    for i in range(n):
        out_bits[i] = rng.bits(seed, i)
        out_uniform[i] = rng.uniform(seed, i)
        out_normal[i] = rng.normal(seed, i)
        out_integer[i] = rng.integer(seed, i, i + 1)
    rng.permute(order, seed)


@njit
def _many(seed, n, seeds):
    """Integers below 7, and a code of a permutation of 3 for each of some seeds."""
    integers, codes, order = np.zeros(n, np.int64), np.zeros(len(seeds)), np.zeros(3, np.int64)
    for i in range(n):
        integers[i] = rng.integer(seed, i, 7)
    for i in range(len(seeds)):
        rng.permute(order, seeds[i])
        codes[i] = 9 * order[0] + 3 * order[1] + order[2]
    return integers, codes


@njit
def _stream(key, purpose):
    return rng.stream(key, purpose)


@pytest.fixture(scope="module")
def compiled():
    n, seed = 20_000, np.uint64(0x123456789ABCDEF0)
    columns = (
        np.zeros(n, np.uint64),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(500, np.int64),
    )
    _draws(seed, n, *columns)
    return seed, np.arange(n, dtype=np.uint64), columns


def test_bits_are_those_of_splitmix64():
    assert [
        int(x) for x in rng.bits_array(np.zeros(3, np.uint64), np.arange(3, dtype=np.uint64))
    ] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_numpy_twins_draw_the_same(compiled):
    seed, counters, (words, uniforms, normals, integers, order) = compiled
    assert np.array_equal(words, rng.bits_array(seed, counters))
    assert np.array_equal(uniforms, rng.uniform_array(seed, counters))
    with np.errstate(over="ignore"):
        plain = np.zeros(500, np.int64)
        rng.permute(plain, seed)
        assert np.array_equal(order, plain)
        assert list(integers[:500]) == [rng.integer(seed, i, i + 1) for i in range(500)]
    np.testing.assert_allclose(normals, rng.normal_array(seed, counters), rtol=0, atol=1e-14)


def test_streams_agree_with_their_twin_and_differ_by_purpose_and_key():
    keys = np.arange(40, dtype=np.uint64)
    table = np.array(
        [[_stream(key, purpose) for purpose in range(rng.PURPOSES)] for key in keys], np.uint64
    )
    twin = rng.stream_array(keys[:, None], np.arange(rng.PURPOSES, dtype=np.uint64)[None, :])
    assert np.array_equal(table, twin)
    assert len(np.unique(table)) == table.size


def test_uniform_and_normal_have_their_distributions(compiled):
    _, _, (_, uniforms, normals, _, _) = compiled
    assert uniforms.min() >= 0.0
    assert uniforms.max() < 1.0
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-3
    assert stats.kstest(normals, "norm").pvalue > 1e-3


def test_integers_and_permutations_are_uniform():
    integers, codes = _many(
        np.uint64(5), 60_000, rng.bits_array(np.uint64(9), np.arange(6000, dtype=np.uint64))
    )
    for counts, kinds in ((np.bincount(integers), 7), (np.unique(codes, return_counts=True)[1], 6)):
        assert len(counts) == kinds
        assert stats.chisquare(counts).pvalue > 1e-3


def test_draws_of_neighbouring_streams_are_uncorrelated():
    counters = np.arange(5000, dtype=np.uint64)
    seeds = rng.stream_array(np.arange(8, dtype=np.uint64)[:, None], np.zeros((1, 1), np.uint64))
    correlations = np.corrcoef(rng.uniform_array(seeds, counters[None, :]))
    assert np.abs(correlations - np.eye(8)).max() < 5.5 / np.sqrt(
        5000
    )  # 28 pairs: false alarm below 1e-5
