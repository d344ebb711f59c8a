"""Stable-Baselines3 trainers for any Gymnasium environment.

See `autorl.trainers.sb3.trainer`.
"""

from autorl.trainers.sb3.trainer import SB3Trainer, make

__all__ = ["SB3Trainer", "make"]
