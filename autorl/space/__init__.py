"""Search spaces: hyperparameters, conditions, rules, files, schedules, algorithm choice."""

from autorl.space.algorithms import compile_algorithms, split_algorithm
from autorl.space.canonical import canonical_json
from autorl.space.configspace_import import from_configspace
from autorl.space.define import define_space
from autorl.space.document import Document, Dumper, parse_document, read_document, unknown_key
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.schedules import resolve_schedules, schedule_function
from autorl.space.space import Space
from autorl.space.yaml_format import find_space, load_space, read_space, to_yaml

__all__ = [
    "Document",
    "Dumper",
    "Hyperparameter",
    "Space",
    "canonical_json",
    "compile_algorithms",
    "define_space",
    "find_space",
    "from_configspace",
    "load_space",
    "parse_document",
    "read_document",
    "read_space",
    "resolve_schedules",
    "schedule_function",
    "split_algorithm",
    "to_yaml",
    "unknown_key",
]
