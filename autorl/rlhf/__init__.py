"""Reinforcement learning from human feedback without a network: tasks with a known gold reward, rewards and measures.

Nothing here knows a trainer. Importing this module imports neither torch nor transformers.
"""

from __future__ import annotations

from autorl.rlhf.task import Built, Task, task, tasks

__all__ = ["Built", "Task", "task", "tasks"]
