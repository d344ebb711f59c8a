"""Search spaces: files, hyperparameters, conditions, constraints, the unit cube, schedules, algorithm choice."""

from autorl.space.algorithms import compile_algorithms, split_algorithm
from autorl.space.canonical import canonical_json
from autorl.space.document import Document, Dumper, parse_document, read_document, unknown_key
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.schedules import resolve_schedules, schedule_function
from autorl.space.space import Space
from autorl.space.yaml_format import find_space, load_space

__all__ = [
    "Document",
    "Dumper",
    "Hyperparameter",
    "Space",
    "canonical_json",
    "compile_algorithms",
    "find_space",
    "load_space",
    "parse_document",
    "read_document",
    "resolve_schedules",
    "schedule_function",
    "split_algorithm",
    "unknown_key",
]
