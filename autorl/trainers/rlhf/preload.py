"""Imports of the fork server for `rlhf/ppo`."""

from __future__ import annotations

import torch

from autorl.trainers.language.ppo import algorithm
from autorl.trainers.rlhf import silence

torch.set_num_threads(1)

__all__ = ["algorithm", "silence"]
