"""The property tests once more, with examples nobody has seen; everywhere else they are the same every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)
def test_property_tests_hold_for_new_examples():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, "-m", "hypothesis and not slow", str(Path(__file__).parent)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "AUTORL_HYPOTHESIS": "random"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout
