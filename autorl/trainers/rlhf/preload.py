"""Imports of the fork server for `rlhf/ppo`."""

from __future__ import annotations

import torch

from autorl.trainers.rlhf import ppo_run

torch.set_num_threads(1)

__all__ = ["ppo_run"]
