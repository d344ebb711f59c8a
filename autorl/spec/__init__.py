"""The study file: its sections, and how it is checked and frozen."""

from autorl.spec.sections import (
    MOST_RUNS,
    EnvironmentSection,
    OptimizerSection,
    SeedsSection,
    TrainerSection,
)
from autorl.spec.spec import UNLIMITED, Spec
from autorl.spec.study_file import load_spec, parse_override, thaw

__all__ = [
    "MOST_RUNS",
    "UNLIMITED",
    "EnvironmentSection",
    "OptimizerSection",
    "SeedsSection",
    "Spec",
    "TrainerSection",
    "load_spec",
    "parse_override",
    "thaw",
]
