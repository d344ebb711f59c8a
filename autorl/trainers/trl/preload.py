"""Imports of the fork server for `trl/*`.

Otherwise each trial would wait 5 s for it.
"""

from __future__ import annotations

import torch
import trl

from autorl.trainers.trl import segment_trainer

torch.set_num_threads(1)
_TRAINERS = (
    "RLOOTrainer",
    "GRPOTrainer",
    "DPOTrainer",
    "KTOTrainer",
    "SFTTrainer",
    "RewardTrainer",
)
LOADED = [getattr(trl, name) for name in _TRAINERS]  # loaded lazily

__all__ = ["LOADED", "segment_trainer"]
