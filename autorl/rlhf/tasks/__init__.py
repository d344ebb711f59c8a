"""The tasks by name."""

from autorl.rlhf.tasks.registry import build, task, tasks

__all__ = ["build", "task", "tasks"]
