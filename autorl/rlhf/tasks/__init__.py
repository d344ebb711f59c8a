"""The tasks by name: those that come with the package, and `files` for a user's own."""

from autorl.rlhf.tasks.registry import build, task, tasks

__all__ = ["build", "task", "tasks"]
