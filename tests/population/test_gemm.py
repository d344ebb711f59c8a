from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from autorl.population import gemm as module
from autorl.population.gemm import (
    PAD,
    gemm,
    gemm_add,
    gemm_add_loops,
    gemm_gated,
    gemm_loops,
    gemm_rectified,
    link,
    make_panel,
)

link()  # plain njit functions below call the product by name


@njit
def _gemm(out, a, b, start, rows, columns, depth):
    gemm(out, a, b, start, rows, columns, depth)


@njit
def _gemm_add(out, a, b, rows, columns, depth):
    gemm_add(out, a.T, b, rows, columns, depth)


@njit
def _gemm_rectified(out, a, b, start, rectified, rows, columns, depth):
    gemm_rectified(out, a, b, start, rectified, rows, columns, depth)


@njit
def _gemm_gated(out, a, b, start, gate, gated, rows, columns, depth):
    gemm_gated(out, a, b, start, gate, gated, rows, columns, depth)


@njit
def _loops(out, a, b, start, rows, columns, depth):
    gemm_loops(out, a, b, start, rows, columns, depth)


@njit
def _add_loops(out, a, b, rows, columns, depth):
    gemm_add_loops(out, a.T, b, rows, columns, depth)


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


@pytest.mark.parametrize("shape", SHAPES)
def test_gemm_is_the_product_plus_start(shape):
    a, b, start = _case(0, *shape)
    out = np.full((shape[0] + 1, shape[1] + 4), 7.0, np.float32)
    _gemm(out, a, b, start, *shape)
    np.testing.assert_allclose(
        out[: shape[0], : shape[1]], start + _exact(a, b), rtol=1e-5, atol=1e-5
    )
    assert (out[shape[0] :] == 7.0).all()  # nothing outside is touched
    assert (out[:, shape[1] :] == 7.0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_gemm_add_takes_a_transposed_view(shape):
    a, b, _ = _case(1, *shape)
    out = np.ones((shape[0], shape[1]), np.float32)
    _gemm_add(out, np.ascontiguousarray(a.T), b, *shape)
    np.testing.assert_allclose(out, 1.0 + _exact(a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_zeros_are_put_into_the_same_products(shape, dtype):
    a, b, start = (array.astype(dtype) for array in _case(6, *shape))
    start[-1] = np.nan
    gate = np.random.default_rng(7).normal(size=shape[:2]).astype(dtype)
    gate[0, 0] = np.nan
    plain, other = np.zeros(shape[:2], dtype), np.zeros(shape[:2], dtype)
    _gemm(plain, a, b, start, *shape)
    _gemm_rectified(other, a, b, start, True, *shape)
    assert np.isnan(other[:, -1]).all()  # a diverged member remains visible
    np.testing.assert_array_equal(other, np.where(plain < 0.0, dtype(0.0), plain))
    _gemm_rectified(other, a, b, start, False, *shape)
    np.testing.assert_array_equal(other, plain)
    _gemm_gated(other, a, b, start, gate, True, *shape)
    np.testing.assert_array_equal(other, np.where(gate > 0.0, plain, dtype(0.0)))
    _gemm_gated(other, a, b, start, gate, False, *shape)
    np.testing.assert_array_equal(other, plain)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plain_loops_do_the_same_in_both_precisions(shape):
    a, b, start = _case(2, *shape)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-12)):
        left, right, first = a.astype(dtype), b.astype(dtype), start.astype(dtype)
        out = np.zeros(shape[:2], dtype)
        _loops(out, left, right, first, *shape)
        expected = first.astype(np.float64) + _exact(left, right)
        np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
        _add_loops(out, np.ascontiguousarray(left.T), right, *shape)
        np.testing.assert_allclose(
            out, expected + _exact(left, right), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("shape", [(11, 76, 33), (50, 148, 150)], ids=["few", "in blocks"])
def test_a_row_does_not_depend_on_its_companions(shape):
    rows, columns, depth = shape
    a, b, start = _case(3, *shape)
    together, alone = np.zeros((rows, columns), np.float32), np.zeros((1, columns), np.float32)
    _gemm(together, a, b, start, *shape)
    for row in range(rows):
        _gemm(alone, a[row : row + 1].copy(), b, start, 1, columns, depth)
        assert np.array_equal(alone[0], together[row])


def test_blocks_of_a_wide_matrix_give_the_same_bits():
    rows, columns, depth = 50, 128, 150
    a, b, start = _case(5, rows, columns, depth)
    blocked, added = np.zeros((2, rows, columns), np.float32)
    added[:] = start
    assert rows >= module.BLOCKED_ROWS
    assert depth > 2 * module.BLOCK_DEPTH
    _gemm(blocked, a, b, start, rows, columns, depth)
    _gemm_add(added, np.ascontiguousarray(a.T), b, rows, columns, depth)
    # A matrix that is no wider than a panel is read where it is.
    for first in range(0, columns, module.WIDE):
        part = slice(first, first + module.WIDE)
        narrow = np.zeros((rows, module.WIDE), np.float32)
        _gemm(narrow, a, b[:, part].copy(), start[part].copy(), rows, module.WIDE, depth)
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
    _gemm(reference, a, b, start, rows, columns, depth)
    assert columns % PAD == 0
    assert np.array_equal(out, reference)
