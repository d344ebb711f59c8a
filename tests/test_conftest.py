"""The suite itself: limits in CPU time, numeric libraries with one thread, the same examples every time."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import settings

LIMITED = """
import time

import pytest


@pytest.mark.cpu_seconds(0.5)
def test_that_computes_for_ever():
    while True:
        pass


@pytest.mark.cpu_seconds(0.5)
def test_that_waits():
    time.sleep(1.5)
"""


def test_a_limit_counts_cpu_time_and_not_waiting(tmp_path):
    (tmp_path / "test_limited.py").write_text(LIMITED)
    options = [
        "-q",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_limited.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_that_computes_for_ever" in done.stdout
    assert "over 0.5 seconds of CPU time" in done.stdout


def test_numeric_libraries_have_one_thread_here_and_in_children():
    code = "import os; print(*(os.environ[f'{name}_NUM_THREADS'] for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMBA')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"] * 4


def test_examples_are_the_same_every_time_unless_they_are_asked_to_be_new():
    assert settings().derandomize == (os.environ.get("AUTORL_HYPOTHESIS", "fixed") == "fixed")
    assert settings().deadline is None
