"""Data for the tests of this folder: a small synthetic landscape, and ARLBench's raw files as arrays."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autorl.landscapes import Landscape, Objective, write_landscape
from autorl.space import load_space

sys.path.append(str(Path(__file__).parents[1]))
from landscape_samples import frames, manifest

DATA = Path(__file__).parents[4] / "shared" / "data" / "arlbench" / "landscapes"
with_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="ARLBench's raw files are not beside the checkout"
)
LOG = {"type": "float", "scale": "log"}
SPACE = load_space(
    {
        "hyperparameters": {
            "learning_rate": {**LOG, "lower": 1e-5, "upper": 1e-1, "default": 1e-3},
            "width": {"type": "int", "lower": 8, "upper": 64, "default": 32},
            "activation": {
                "type": "categorical",
                "choices": ["tanh", "relu", "silu"],
                "default": "tanh",
            },
            "target": {"type": "categorical", "choices": [True, False], "default": True},
            "interval": {"type": "int", "lower": 1, "upper": 100, "default": 10},
            "version": {"type": "constant", "value": 1},
        },
        "conditions": {"interval": "target == true"},
    }
)
STEPS = (100, 200, 300)
NO_BOUNDS = (None, None)


def write_sample(
    folder,
    level,
    *,
    environment="Sample-v0",
    configs=48,
    first=0,
    direction="maximize",
    noise=1.0,
    sampler=0,
):
    """A landscape whose final score is level(config) plus seed noise; a third and two thirds of it before.

    Configuration ids start at `first`; another `sampler` gives them other configurations. The last evaluation of
    the first run is missing.
    """
    numbers = range(first, first + configs)
    chosen = {
        number: SPACE.sample(np.random.default_rng(number + 10_000 * sampler)) for number in numbers
    }
    rng = np.random.default_rng(0)

    def score(number, place):
        return level(chosen[number]) * (place + 1) / len(STEPS) + noise * rng.normal()

    tables = frames(SPACE, chosen, STEPS, environment, score)
    first_run = tables.runs.run_id[0]
    lost = (tables.evals.run_id == first_run) & (tables.evals.step == STEPS[-1])
    described = manifest(
        environment, steps=STEPS, objective=Objective(direction=direction), return_bounds=NO_BOUNDS
    )
    write_landscape(folder, replace(tables, evals=tables.evals[~lost]), described, SPACE)
    return Landscape(folder)


@cache
def arlbench(algorithm, clipped=True):
    """{task: array (256 configurations, 10 seeds, 10 checkpoints)}; Box2D is clipped at -200."""
    found = {}
    for path in sorted(DATA.glob(f"*_{algorithm}.csv*")):
        frame = pd.read_csv(path)
        frame = frame.sort_values(["run_id", "seed", "budget"])
        values = frame.performance.to_numpy().reshape(256, 10, 10)
        task = path.name.split(f"_{algorithm}.csv")[0]
        found[task] = np.maximum(values, -200.0) if clipped and task.startswith("box2d") else values
    return found


def means(algorithm, clipped=True):
    """Task names and the table (256 configurations, m tasks) of mean final scores."""
    tasks = arlbench(algorithm, clipped)
    return list(tasks), np.stack(
        [values[:, :, -1].mean(axis=1) for values in tasks.values()], axis=1
    )
