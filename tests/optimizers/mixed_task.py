"""Spaces of tasks, and a function of five hyperparameters of every kind, two of them conditional; its largest value is 0."""

import numpy as np

from autorl.core.types import Config
from autorl.space import load_space

LOG = {"type": "float", "scale": "log"}
MIXED = load_space(
    {
        "hyperparameters": {
            "rate": {**LOG, "lower": 1e-5, "upper": 1e-1, "default": 1e-2},
            "kind": {"type": "categorical", "choices": ["a", "b", "c"], "default": "c"},
            "layers": {"type": "int", "lower": 1, "upper": 8, "default": 6},
            "a.x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5},
            "b.y": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5},
        },
        "conditions": {"a.x": "kind == 'a'", "b.y": "kind == 'b'"},
    }
)
CUBE = load_space(
    {
        "hyperparameters": {
            f"x{i}": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.75}
            for i in range(4)
        }
    }
)


def mixed(config: Config) -> float:
    extra = {
        "a": lambda: (config["a.x"] - 0.2) ** 2,
        "b": lambda: 0.3 + config["b.y"],
        "c": lambda: 0.5,
    }
    return (
        -((np.log10(config["rate"]) + 3.5) ** 2) / 2
        - 0.05 * abs(config["layers"] - 3)
        - extra[config["kind"]]()
    )
