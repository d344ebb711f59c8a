"""The tasks by name."""

from autorl.trainers.language.tasks.registry import build, task, tasks

__all__ = ["build", "task", "tasks"]
