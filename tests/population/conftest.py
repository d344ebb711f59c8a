"""Fixtures of several tests of the engine."""

import numpy as np
import pytest

from autorl.population import gemm, kernels


def product_by_rows(out, a, b, start, rows, columns, depth):
    """`gemm.gemm`, each row by itself."""
    for row in range(rows):
        out[row, :columns] = start[:columns] + a[row, :depth] @ b[:depth, :columns]


@pytest.fixture
def plain_python(monkeypatch):
    """Programs run as plain Python: nothing is compiled.

    Products are made row by row: those of NumPy's BLAS depend on some processors on how many rows are computed together,
    which the engine's own never do.
    """
    monkeypatch.setattr(gemm, "gemm", product_by_rows)
    monkeypatch.setattr(kernels.Program, "prepared", lambda program, *arguments: program.py_func)
    monkeypatch.setattr(
        kernels.Program, "__call__", lambda program, *arguments: program.py_func(*arguments)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        yield
