from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from autorl.population import gemm as module
from autorl.population.gemm import PAD, gemm, gemm_add, gemm_add_loops, gemm_loops, link, make_panel

link()  # plain njit functions below call the product by name


@njit
def _gemm(out, a, b, start, rows, columns, depth):
    gemm(out, a, b, start, rows, columns, depth)


@njit
def _gemm_add(out, a, b, rows, columns, depth):
    gemm_add(out, a.T, b, rows, columns, depth)


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


def test_a_row_does_not_depend_on_its_companions():
    a, b, start = _case(3, 11, 76, 33)
    together, alone = np.zeros((11, 76), np.float32), np.zeros((1, 76), np.float32)
    _gemm(together, a, b, start, 11, 76, 33)
    for row in range(11):
        _gemm(alone, a[row : row + 1].copy(), b, start, 1, 76, 33)
        assert np.array_equal(alone[0], together[row])


@pytest.mark.skipif(module.LANES == 0, reason="no fused multiply-add on this machine")
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_lane_count_gives_the_same_bits(lanes):
    panel = make_panel(2, lanes)
    columns, rows, depth = 2 * lanes, 6, 21

    @njit
    def run(out, a, b, start):
        panel(
            out.ctypes.data,
            columns,
            start.ctypes.data,
            0,
            a.ctypes.data,
            depth,
            1,
            b.ctypes.data,
            columns,
            rows,
            depth,
        )

    a, b, start = _case(4, rows, columns, depth)
    out, reference = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), np.float32)
    run(out, a, b, start)
    _gemm(reference, a, b, start, rows, columns, depth)
    assert columns % PAD == 0
    assert np.array_equal(out, reference)
