"""The study file: its sections, and how it is checked and frozen."""

from autorl.study.spec.sections import (
    MOST_RUNS,
    EnvironmentSection,
    OptimizerSection,
    SeedsSection,
    TrainerSection,
)
from autorl.study.spec.spec import UNLIMITED, Spec
from autorl.study.spec.study_file import load_spec, parse_override, thaw

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
