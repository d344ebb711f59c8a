"""Shared parts of trainers of language models, and `rlhf/ppo`.

TRL's trainers are in `autorl.trainers.trl`. Importing this package switches the hub and its
telemetry off for the process (unless `HF_HUB_OFFLINE=0` is set) and loads no library.
"""

from __future__ import annotations

import os

# before any of these libraries is imported: they read their variables then
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
# tokenizers warns, and goes on with one thread, when a process that used several is forked
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
