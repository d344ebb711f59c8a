"""Data for the tests of this folder: a small synthetic landscape, and ARLBench's raw files as arrays."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autorl.core.types import FrozenMap
from autorl.landscapes import Landscape, Manifest, Objective, Tables, config_rows, write_landscape
from autorl.space import load_space

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
SEEDS = {"tuning": (0, 1, 2), "test": (100, 101)}


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

    Configuration ids start at `first`; another `sampler` gives them other configurations. The last evaluation of run 0
    is missing.
    """
    numbers = range(first, first + configs)
    chosen = {
        number: SPACE.sample(np.random.default_rng(number + 10_000 * sampler)) for number in numbers
    }
    rng = np.random.default_rng(0)
    runs, evals = [], []
    for number, config in chosen.items():
        for role, seed in ((role, seed) for role, seeds in SEEDS.items() for seed in seeds):
            run = {
                "run_id": len(runs),
                "config_id": number,
                "seed": seed,
                "seed_role": role,
                "algorithm": "dqn",
            }
            run |= {
                "environment": environment,
                "parent_run": None,
                "start_step": 0,
                "member": None,
                "status": "done",
            }
            runs.append(run | {"environment_steps": STEPS[-1], "wall_seconds": 1.0})
            for place, step in enumerate(STEPS, 1):
                score = level(config) * place / len(STEPS) + noise * rng.normal()
                if run["run_id"] or step < STEPS[-1]:
                    evals.append({"run_id": run["run_id"], "step": step, "eval_return": score})
    frame = pd.DataFrame(runs)
    segments = pd.DataFrame(
        {"segment": [f"s{each}" for each in frame.run_id], "run_id": frame.run_id}
    )
    segments = segments.assign(
        seed=frame.seed, parent=None, member=None, from_step=0, to_step=STEPS[-1]
    )
    segments = segments.assign(config_id=frame.config_id)
    manifest = Manifest(
        id=f"sample/dqn/{environment}",
        description="A synthetic landscape.",
        algorithm="dqn",
        environment=environment,
        steps=STEPS,
        seeds=FrozenMap(SEEDS),
        licence="https://opensource.org/license/apache-2-0",
        objective=Objective(direction=direction),
    )
    tables = Tables(config_rows(SPACE, chosen, "sobol"), frame, pd.DataFrame(evals), segments)
    write_landscape(folder, tables, manifest, SPACE)
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
