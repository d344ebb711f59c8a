"""Imports of the fork server for `trl/*`.

Otherwise each trial would wait 5 s for it.
"""

from __future__ import annotations

import torch

from autorl.trainers.trl import segment_trainer
from autorl.trainers.trl.methods import STABLE, find

torch.set_num_threads(1)
LOADED = [find(name).classes() for name in STABLE]  # loaded lazily

__all__ = ["LOADED", "segment_trainer"]
