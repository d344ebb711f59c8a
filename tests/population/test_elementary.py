from __future__ import annotations

import math

import numpy as np
import pytest
from numba import njit

from autorl.population.elementary import exp, log, tanh


@njit
def _all_exp(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


@njit
def _all_log(x, out):
    for i in range(len(x)):
        out[i] = log(x[i])


@njit
def _all_tanh(x, out):
    for i in range(len(x)):
        out[i] = tanh(x[i])


def _applied(function, x):
    out = np.zeros_like(x)
    function(x, out)
    return out


def test_exp_is_the_librarys_to_the_last_places():
    x = np.concatenate([np.linspace(-700, 709, 100_001), np.linspace(-1, 1, 100_001)])
    np.testing.assert_allclose(_applied(_all_exp, x), np.exp(x), rtol=1e-15)


def test_exp_overflows_underflows_and_keeps_nan():
    found = _applied(_all_exp, np.array([710.0, np.inf, -1e9, -np.inf, np.nan, 0.0]))
    assert found[0] == found[1] == math.inf
    assert 0.0 <= found[2] < 1e-307
    assert 0.0 <= found[3] < 1e-307
    assert math.isnan(found[4])
    assert found[5] == 1.0


def test_log_is_the_librarys_to_the_last_places():
    x = np.concatenate([np.exp(np.linspace(-700, 700, 100_001)), np.linspace(0.5, 2.0, 100_001)])
    np.testing.assert_allclose(_applied(_all_log, x), np.log(x), rtol=1e-15, atol=2.3e-16)


def test_tanh_in_float32_is_within_35e_8_and_never_beyond_one():
    x = np.linspace(-12, 12, 400_001).astype(np.float32)
    out = _applied(_all_tanh, x)
    assert np.abs(out - np.tanh(x.astype(np.float64))).max() < 3.5e-7
    assert np.abs(out).max() <= 1.0


def test_tanh_in_float64_is_exact():
    x = np.linspace(-3, 3, 101)
    np.testing.assert_allclose(_applied(_all_tanh, x), np.tanh(x), rtol=1e-15)


@pytest.mark.parametrize(("own", "library"), [(exp, math.exp), (log, math.log), (tanh, math.tanh)])
def test_in_plain_python_they_are_the_librarys(own, library):
    assert own(0.7) == pytest.approx(library(0.7), rel=1e-15)
