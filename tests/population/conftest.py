"""Fixtures of several tests of the engine."""

import numpy as np
import pytest

from autorl.population import kernels


@pytest.fixture
def plain_python(monkeypatch):
    """Programs run as plain Python: nothing is compiled."""
    monkeypatch.setattr(kernels.Program, "prepared", lambda program, *arguments: program.py_func)
    monkeypatch.setattr(
        kernels.Program, "__call__", lambda program, *arguments: program.py_func(*arguments)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        yield
