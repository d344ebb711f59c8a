"""Conformance kits for trainers and optimizers, those of other packages included.

    from autorl.testing import Case, OptimizerConformance, TrainerConformance

A subclass that says what is tested inherits the tests, and pytest collects it (docs/extending.md).
Names are imported when first used: `simulate`, `VirtualWorkers` and their kin need no pytest.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autorl.testing.optimizers import OptimizerConformance
    from autorl.testing.segments import Case
    from autorl.testing.simulation import MovingOptimum, Simulation, replayed, simulate
    from autorl.testing.trainers import TrainerConformance
    from autorl.testing.virtual import VirtualWorkers

__all__ = [
    "Case",
    "MovingOptimum",
    "OptimizerConformance",
    "Simulation",
    "TrainerConformance",
    "VirtualWorkers",
    "replayed",
    "simulate",
]

_HOME = {name: "simulation" for name in ("MovingOptimum", "Simulation", "replayed", "simulate")}
_HOME |= {"Case": "segments", "TrainerConformance": "trainers"}
_HOME |= {"OptimizerConformance": "optimizers", "VirtualWorkers": "virtual"}

if sys.modules.get("pytest") is not None:
    # A failed assertion of a kit shows its values, as one of a test module does.
    sys.modules["pytest"].register_assert_rewrite(
        "autorl.testing.optimizers", "autorl.testing.segments", "autorl.testing.trainers"
    )


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'autorl.testing' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"autorl.testing.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ImportError(f"autorl.testing.{name} needs pytest: pip install pytest") from error
