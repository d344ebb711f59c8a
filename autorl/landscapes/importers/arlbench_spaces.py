"""The search spaces and tasks of ARLBench's landscapes.

They are as ARLBench's run scripts state them.

References:
    [Becktepe2024] Becktepe et al., "ARLBench: flexible and efficient benchmarking for
        hyperparameter optimization in reinforcement learning", EWRL 2024, arXiv 2409.18827.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autorl.space import Space, load_space


@dataclass(frozen=True)
class Task:
    """An ARLBench task.

    Attributes:
        environment: its id.
        domain: the family of environments it belongs to.
        bounds: the range of its returns.
        floor: values below are noise.
    """

    environment: str
    domain: str
    bounds: tuple[float | None, float | None] = (None, None)
    floor: float | None = None


@cache
def arlbench_tasks() -> dict[str, Task]:
    """Return the tasks by the names in ARLBench's files.

    One task has two.
    """
    stated = _stated("arlbench_tasks.yaml")
    return {name: Task(**task | {"bounds": tuple(task["bounds"])}) for name, task in stated.items()}


def arlbench_space(algorithm: str, domain: str) -> Space | None:
    """Return the space of ARLBench's landscapes of a domain, or None."""
    space = _stated("arlbench_spaces.yaml").get(algorithm, {}).get(domain)
    return None if space is None else load_space(space)


def _stated(name: str) -> dict[str, Any]:
    stated: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(name).read_text("utf-8"))
    return stated
