"""The trainers: what runs a segment.

`load` builds one from its spec, `info` describes it. A new trainer of the package is a line in
`registry.py`; those of other packages register under the entry point group `autorl.trainers`, or
are named as `module:Class`. Importing this package imports no trainer: modules and their heavy
libraries are loaded by name, when first asked for.
"""

from autorl.trainers.contract import AnyChange, Trainer
from autorl.trainers.info import TrainerInfo
from autorl.trainers.registry import info, installed_info, load, names
from autorl.trainers.shared import Clock, check_continuation, check_start

__all__ = [
    "AnyChange",
    "Clock",
    "Trainer",
    "TrainerInfo",
    "check_continuation",
    "check_start",
    "info",
    "installed_info",
    "load",
    "names",
]
