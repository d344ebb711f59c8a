"""Every registered optimizer passes the conformance kit. A new one is tested as soon as it is registered."""

import importlib.util
from typing import Any

import pytest

from autorl.optimizers import names
from autorl.testing.optimizers import OptimizerConformance

NEEDS_SMAC = pytest.mark.skipif(
    importlib.util.find_spec("smac") is None, reason="the extra `smac` is not installed"
)
SMAC_MARKS = [pytest.mark.slow, pytest.mark.cpu_seconds(600), NEEDS_SMAC]

# Small enough that 24 proposals reach the model, and several generations.
SETTINGS: dict[str, dict[str, Any]] = {
    "bohb": {"options": {"rungs": 2, "startup": 4}},
    "cmaes": {"options": {"population_size": 4}},
    "cost_aware": {"options": {"startup": 4, "candidates": 24}},
    "de": {"options": {"population_size": 5}},
    "dehb": {"options": {"rungs": 2}},
    "gp": {"options": {"startup": 3}},
    "mf_pbt": {"options": {"population": 8, "generations": 4, "frequencies": [1, 2]}},
    "nsga2": {"options": {"population_size": 4}},
    "asha": {"options": {"rungs": 3}},
    "optuna": {
        "options": {"sampler": "optuna.samplers:NSGAIIISampler", "kwargs": {"population_size": 4}}
    },
    "hyperband": {"options": {"rungs": 3}},
    "pb2": {"options": {"population": 4, "generations": 5}},
    "pbt": {"options": {"population": 4, "generations": 5}},
    "phases": {"options": {"phases": 4, "configurations": 6}},
    "rising_bandits": {"options": {"inner": "random", "window": 1.0}},
    "smac": {"options": {"startup": 4, "refit": 4}, "proposals": 12, "pytestmark": SMAC_MARKS},
    "sobol": {"options": {"seed": 3}},
    "successive_halving": {"options": {"rungs": 3}},
    "tpe": {"options": {"startup": 4}},
    "transfer": {"options": {"startup": 4}},
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "median": ("random", {"stop": "median", "rungs": 3, "peers": 2}),
    "median_tpe": ("tpe", {"startup": 4, "stop": "median", "rungs": 3, "peers": 2}),
    "tournament": ("pbt", {"population": 4, "generations": 5, "selection": "tournament"}),
    "asynchronous": ("pbt", {"population": 4, "generations": 5, "synchronous": False}),
    "asynchronous_pb2": (
        "pb2",
        {"population": 4, "generations": 5, "synchronous": False, "window": 8, "refit": 2},
    ),
    "split": ("rising_bandits", {"inner": "tpe", "inner_options": {"startup": 2}, "window": 2.0}),
    "brackets": (
        "rising_bandits",
        {"inner": "hyperband", "inner_options": {"rungs": 2}, "window": 1.0},
    ),
}

CASES = {name: SETTINGS.get(name, {}) | {"optimizer": name} for name in names()}
CASES |= {name: {"optimizer": of, "options": how} for name, (of, how) in VARIANTS.items()}
for name, settings in CASES.items():
    globals()[f"Test_{name}"] = type(f"Test_{name}", (OptimizerConformance,), settings)
