from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from autorl.population import gemm as module
from autorl.population.gemm import GATED, PAD, PLAIN, RECTIFIED, gemm, gemm_loops, link, make_panel

link()  # plain njit functions below call the product by name


@njit
def _gemm(out, a, b, start, gate, then, rows, columns, depth):
    gemm(out, a, b, start, gate, then, rows, columns, depth)


@njit
def _loops(out, a, b, start, gate, then, rows, columns, depth):
    gemm_loops(out, a, b, start, gate, then, rows, columns, depth)


SHAPES = [
    (1, 4, 1),
    (3, 8, 5),
    (4, 64, 64),
    (7, 76, 13),
    (9, 132, 3),
    (32, 100, 64),
    (5, 20, 0),
    (2, 256, 40),
    (32, 132, 64),
    (37, 260, 65),
    (40, 192, 0),
    (66, 128, 70),
]


def _case(seed, rows, columns, depth):
    generator = np.random.default_rng(seed)
    a = generator.normal(size=(rows, depth)).astype(np.float32)
    b = generator.normal(size=(depth, columns)).astype(np.float32)
    return a, b, generator.normal(size=columns).astype(np.float32)


def _exact(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


# Each way to the same product, and its relative and absolute error.
WAYS = [
    (_gemm, np.float32, 1e-5),
    (_gemm, np.float64, 1e-12),
    (_loops, np.float32, 1e-5),
    (gemm, np.float64, 1e-12),
]


@pytest.mark.parametrize(("product", "dtype", "error"), WAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_numpy_and_zeros_are_put_into_them(product, dtype, error, shape):
    rows, columns, _ = shape
    a, b, start = (array.astype(dtype) for array in _case(6, *shape))
    start[-1] = np.nan
    gate = np.random.default_rng(7).normal(size=shape[:2]).astype(dtype)
    gate[0, 0] = np.nan
    out = np.full((rows + 1, columns + 4), 7.0, dtype)
    product(out, a, b, start, out, PLAIN, *shape)
    plain = out[:rows, :columns].copy()
    np.testing.assert_allclose(plain, start + _exact(a, b), rtol=error, atol=error)
    assert np.isnan(plain[:, -1]).all()  # a diverged member remains visible
    assert (out[rows:] == 7.0).all()  # nothing outside is touched
    assert (out[:, columns:] == 7.0).all()
    other = np.zeros(shape[:2], dtype)
    product(other, a, b, start, other, RECTIFIED, *shape)
    np.testing.assert_array_equal(other, np.where(plain < 0.0, dtype(0.0), plain))
    product(other, a, b, start, gate, GATED, *shape)
    np.testing.assert_array_equal(other, np.where(gate > 0.0, plain, dtype(0.0)))
    # Added to what is there, from a transposed view.
    added = np.ones(shape[:2], dtype)
    product(added, np.ascontiguousarray(a.T).T, b, added, added, PLAIN, *shape)
    np.testing.assert_allclose(added, 1.0 + _exact(a, b), rtol=error, atol=error)


@pytest.mark.parametrize("shape", [(11, 76, 33), (50, 148, 150)], ids=["few", "in blocks"])
def test_a_row_does_not_depend_on_its_companions(shape):
    rows, columns, depth = shape
    a, b, start = _case(3, *shape)
    together, alone = np.zeros((rows, columns), np.float32), np.zeros((1, columns), np.float32)
    _gemm(together, a, b, start, together, PLAIN, *shape)
    for row in range(rows):
        _gemm(alone, a[row : row + 1].copy(), b, start, alone, PLAIN, 1, columns, depth)
        assert np.array_equal(alone[0], together[row])


def test_blocks_of_a_wide_matrix_give_the_same_bits():
    rows, columns, depth = 50, 128, 150
    a, b, start = _case(5, rows, columns, depth)
    blocked, added = np.zeros((2, rows, columns), np.float32)
    added[:] = start
    assert rows >= module.BLOCKED_ROWS
    assert depth > 2 * module.BLOCK_DEPTH
    _gemm(blocked, a, b, start, blocked, PLAIN, rows, columns, depth)
    _gemm(added, np.ascontiguousarray(a.T).T, b, added, added, PLAIN, rows, columns, depth)
    # A matrix that is no wider than a panel is read where it is.
    for first in range(0, columns, module.WIDE):
        part = slice(first, first + module.WIDE)
        narrow = np.zeros((rows, module.WIDE), np.float32)
        of_part = (b[:, part].copy(), start[part].copy())
        _gemm(narrow, a, *of_part, narrow, PLAIN, rows, module.WIDE, depth)
        assert np.array_equal(blocked[:, part], narrow)
        assert np.array_equal(added[:, part], narrow)


@pytest.mark.skipif(module.LANES == 0, reason="no fused multiply-add on this machine")
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_lane_count_gives_the_same_bits(lanes):
    panel = make_panel(2, lanes)
    columns, rows, depth = 2 * lanes, 6, 21

    @njit
    def run(out, a, b, start):
        places = (
            np.intp(out.ctypes.data),
            np.intp(start.ctypes.data),
            np.intp(a.ctypes.data),
            np.intp(b.ctypes.data),
            np.intp(0),
        )
        panel(places, (columns, 0, depth, 1, columns, 0), rows, depth)

    a, b, start = _case(4, rows, columns, depth)
    out, reference = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), np.float32)
    run(out, a, b, start)
    _gemm(reference, a, b, start, reference, PLAIN, rows, columns, depth)
    assert columns % PAD == 0
    assert np.array_equal(out, reference)
