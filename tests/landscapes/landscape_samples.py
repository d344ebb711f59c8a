"""A small synthetic landscape with every kind of column, for the tests of this folder."""

import numpy as np
import pandas as pd

from autorl.core.types import FrozenMap
from autorl.landscapes import Landscape, Manifest, Tables, config_rows, write_landscape
from autorl.landscapes.importers import import_any
from autorl.landscapes.validate import validate
from autorl.space import load_space
from autorl.study import Study
from autorl.study.spec import load_spec

LOG = {"type": "float", "scale": "log"}
SPACE = load_space(
    {
        "hyperparameters": {
            "learning_rate": {**LOG, "lower": 1e-5, "upper": 1e-1, "default": 1e-3},
            "width": {"type": "int", "lower": 8, "upper": 64, "default": 32},
            "target": {"type": "categorical", "choices": [True, False], "default": True},
            "interval": {"type": "int", "lower": 1, "upper": 100, "default": 10},
            "activation": {"type": "categorical", "choices": ["tanh", "relu"], "default": "tanh"},
            "clip": {"type": "categorical", "choices": ["none", 0.1, 0.5], "default": "none"},
            "shape": {"type": "ordinal", "choices": [[16], [16, 16]], "default": [16]},
        },
        "conditions": {"interval": "target == true"},
    }
)
STEPS = (100, 200, 300, 400)
SEEDS = {"tuning": (0, 1, 2), "test": (100, 101)}
N = 12


def configs(count=N, first=0):
    """`count` configurations numbered from `first`; the same number is always the same configuration."""
    return {
        number: SPACE.sample(np.random.default_rng(number))
        for number in range(first, first + count)
    }


def manifest(environment="CartPole-v1", **changes):
    fields = {
        "id": f"sample/dqn/{environment}",
        "description": "A synthetic landscape.",
        "algorithm": "dqn",
        "environment": environment,
        "steps": STEPS,
        "seeds": FrozenMap(SEEDS),
        "licence": "https://opensource.org/license/apache-2-0",
        "return_bounds": (0.0, 500.0),
        "packages": FrozenMap(autorl={"version": "0.1.0", "commit": "abc"}),
        "created": "2026-01-01",
        "creator": "tests",
        "url": "https://example.org",
    }
    return Manifest(**{**fields, **changes})


def tables(first=0, count=N, environment="CartPole-v1", seed=0):
    """Frames of `count` configurations; each curve rises to a level of their own, with seed noise."""
    rng = np.random.default_rng(seed)
    chosen = configs(count, first)
    level = {number: 50 + 400 * rng.random() for number in chosen}

    def score(number, place):
        return float(np.clip(level[number] * (place + 2) / 5 + rng.normal(0, 3), 0, 500))

    return frames(SPACE, chosen, STEPS, environment, score)


def frames(space, chosen, steps, environment, score):
    """Frames of runs from scratch; `score(number, place)` is asked in the order of runs and steps."""
    runs, evals = [], []
    for number in chosen:
        pairs = [(role, seed) for role, seeds in SEEDS.items() for seed in seeds]
        for place, (role, seed) in enumerate(pairs):
            runs.append((10 * number + place, number, seed, role))
            evals += [(runs[-1][0], step, score(number, at)) for at, step in enumerate(steps)]
    frame = pd.DataFrame(runs, columns=["run_id", "config_id", "seed", "seed_role"]).assign(
        algorithm="dqn", environment=environment, parent_run=None, start_step=0, member=None
    )
    segments = frame[["run_id", "seed", "config_id", "member"]].assign(
        segment="s" + frame.run_id.astype(str), parent=None, from_step=0, to_step=steps[-1]
    )
    frame = frame.assign(status="done", environment_steps=steps[-1], wall_seconds=1.5)
    scores = pd.DataFrame(evals, columns=["run_id", "step", "eval_return"])
    return Tables(config_rows(space, chosen, "sobol"), frame, scores, segments)


def write(root, environment="CartPole-v1", algorithm="dqn", seed=0, **changes):
    """The folder of a landscape of 12 configurations below `root`."""
    id = f"sample/{algorithm}/{environment}"
    described = manifest(environment, id=id, algorithm=algorithm, **changes)
    folder = root / algorithm / environment
    write_landscape(folder, tables(environment=environment, seed=seed), described, SPACE)
    return folder


def run_study(folder, document):
    """The folder of a finished study."""
    study = Study.create(load_spec(document), folder)
    try:
        study.run()
    finally:
        study.close()
    return folder


def imported(source, out, **options):
    """The one landscape that is imported from `source`; every rule accepts it."""
    (done,) = import_any(source, out, **options)
    data = Landscape(out / done.id)
    assert validate(data.path) == []
    return data
