"""The example of the three ways in, as it stands; and the numbers of its three parts agree."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/landscapes.py"


def test_the_three_ways_in_agree(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    command = re.search(r"configuration (\d+), chosen by mean over tuning seeds", done.stdout)[1]
    python, value = re.search(r"tuning seeds: configuration (\d+), (\S+);", done.stdout).groups()
    (config_id, mean, seeds) = done.stdout.split("mean  seeds\n")[1].split()[:3]
    assert command == python == config_id
    assert seeds == "3"
    assert abs(float(value) - float(mean)) < 1e-3
    assert re.search(r"replayed landscape: test score -?\d", done.stdout)
