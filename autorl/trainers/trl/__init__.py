"""Trainers on TRL for RLHF tasks: `trl/rloo`, `trl/grpo`, `trl/dpo`, `trl/reward` and others.

See `autorl.trainers.trl.trainer`; what they share with `rlhf/ppo` is in `autorl.trainers.rlhf`.
Importing this package loads no library.
"""

from __future__ import annotations

import os

# before TRL is imported: `trl.experimental` warns as it is
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from autorl.trainers.trl.trainer import TRLTrainer

__all__ = ["TRLTrainer"]
