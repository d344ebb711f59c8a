"""Imports all that a segment of Stable-Baselines3 would import.

The fork server does so once.

torch imports `torch._dynamo` at the first optimizer, and with it some 800 modules: seconds in every
segment, of which a fork of a process that has them pays nothing. Nothing is built here: a model or
an optimizer may start threads, and a process with threads cannot be forked safely.
"""

from __future__ import annotations

import encodings.cp437  # noqa: F401 - of the names in zip files
import gc
import importlib
import importlib.util

import gymnasium.envs.classic_control  # noqa: F401
import stable_baselines3
import torch
import torch._dynamo

from autorl.trainers.sb3 import trainer

# For saving and profiling.
OF_SOME_VERSIONS = ("torch.utils.serialization.config", "torch.profiler._cupti_monitor")
for name in OF_SOME_VERSIONS:
    if importlib.util.find_spec(name.rpartition(".")[0]) and importlib.util.find_spec(name):
        importlib.import_module(name)
torch.set_num_threads(1)
gc.freeze()  # a collection in a child would copy the pages of all that is imported here

__all__ = ["stable_baselines3", "trainer"]
