"""Optimizers choose which configuration to train next, and how far.

They also say from which checkpoint. See `base.py` for the contract.
"""

from autorl.optimizers.base import BaseOptimizer, History, NoOptions, Problem, Record, option
from autorl.optimizers.registry import Description, OptionHelp, cuts, describe, find, make, names

__all__ = [
    "BaseOptimizer",
    "Description",
    "History",
    "NoOptions",
    "OptionHelp",
    "Problem",
    "Record",
    "cuts",
    "describe",
    "find",
    "make",
    "names",
    "option",
]
