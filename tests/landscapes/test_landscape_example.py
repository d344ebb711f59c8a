"""The example of the three ways in, as it stands; and the numbers of its three parts agree."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from autorl.landscapes import load_landscape, shipped_root

EXAMPLE = Path(__file__).parents[2] / "examples/landscapes.py"
SHIPPED = "autorl/dqn/CartPole-v1"


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def agree(printed):
    """The best configuration and its score by each of the three ways; returns what they agree on."""
    command = re.search(r"configuration (\d+), chosen by mean over tuning seeds", printed)[1]
    python, value = re.search(r"tuning seeds: configuration (\d+), (\S+);", printed).groups()
    (config_id, mean, seeds) = printed.split("mean  seeds\n")[1].split()[:3]
    assert command == python == config_id
    assert abs(float(value) - float(mean)) < 1e-3
    return int(config_id), float(mean), int(seeds)


@pytest.mark.slow
def test_the_three_ways_in_agree_on_a_built_landscape(tmp_path):
    spec = importlib.util.spec_from_file_location("landscapes_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    folder = example.build(tmp_path)
    printed = run(tmp_path, str(folder))
    config_id, mean, seeds = agree(printed)
    assert (config_id, mean, seeds) == by_hand(load_landscape(folder))
    assert re.search(r"replayed landscape: test score -?\d", printed)
    if importlib.util.find_spec("sklearn"):
        assert re.search(
            r"out-of-bag R2 -?\d\.\d\d and rank correlation -?\d\.\d\d over 32 configurations",
            printed,
        )


def by_hand(data):
    """The same from the dense array: id, mean at the last step, and number of tuning seeds."""
    scores = data.grid.values[:, data.grid.seed_positions("tuning"), -1].astype(float).mean(axis=1)
    best = int(scores.argmax())
    return (
        int(data.grid.config_ids[best]),
        pytest.approx(scores[best], abs=1e-3),
        len(data.manifest.seeds["tuning"]),
    )


@pytest.mark.skipif(
    shipped_root() is None or not (shipped_root() / SHIPPED / "manifest.json").is_file(),
    reason=f"{SHIPPED} is not shipped with this checkout",
)
def test_the_three_ways_in_agree_on_the_shipped_landscape(tmp_path):
    printed = run(tmp_path)
    assert agree(printed) == by_hand(load_landscape(SHIPPED))
