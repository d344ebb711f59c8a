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


ADDED = """
import sys


def test_that_adds_a_folder():
    sys.path.append("added")


def test_after_it():
    assert "added" not in sys.path
"""


def run_tests(folder: Path, text: str) -> str:
    """Run test cases in a process of their own under the conftest of this suite."""
    (folder / "test_written.py").write_text(text)
    options = [
        "-q",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder / "test_written.py")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_a_limit_counts_cpu_time_and_not_waiting(tmp_path):
    printed = run_tests(tmp_path, LIMITED)
    assert "1 failed, 1 passed" in printed, printed
    assert "test_that_computes_for_ever" in printed
    assert "over 0.5 seconds of CPU time" in printed


def test_a_folder_that_a_test_adds_to_the_module_path_is_gone_in_the_next(tmp_path):
    assert "2 passed" in run_tests(tmp_path, ADDED)


def test_numeric_libraries_have_one_thread_here_and_in_children():
    code = "import os; print(*(os.environ[f'{name}_NUM_THREADS'] for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMBA')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"] * 4


def test_examples_are_the_same_every_time_unless_they_are_asked_to_be_new():
    assert settings().derandomize == (os.environ.get("AUTORL_HYPOTHESIS", "fixed") == "fixed")
    assert settings().deadline is None
