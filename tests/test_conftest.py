"""The suite itself: limits in CPU time, numeric libraries with one thread, the same examples every time."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import settings

WRITTEN = """
import sys
import time

import pytest


@pytest.mark.cpu_seconds(0.5)
def test_that_computes_for_ever():
    while True:
        pass


@pytest.mark.cpu_seconds(0.5)
def test_that_waits_and_adds_a_folder():
    time.sleep(1.5)
    sys.path.append("added")


def test_after_it():
    assert "added" not in sys.path
"""


def test_a_limit_counts_cpu_time_and_not_waiting_and_the_module_path_is_restored(tmp_path):
    (tmp_path / "test_written.py").write_text(WRITTEN)
    options = f"-q -p conftest -p no:cacheprovider -c {os.devnull} --rootdir {tmp_path}".split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_written.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    printed = done.stdout + done.stderr
    assert "1 failed, 2 passed" in printed, printed
    assert "test_that_computes_for_ever" in printed
    assert "over 0.5 seconds of CPU time" in printed


def test_numeric_libraries_have_one_thread_here_and_in_children():
    code = "import os; print(*(os.environ[f'{name}_NUM_THREADS'] for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMBA')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"] * 4


def test_examples_are_the_same_every_time_unless_they_are_asked_to_be_new():
    assert settings().derandomize == (os.environ.get("AUTORL_HYPOTHESIS", "fixed") == "fixed")
    assert settings().deadline is None
