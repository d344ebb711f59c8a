"""The part of a prior in a study, for its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_text import counted, listed

OPTIMIZER = "transfer"
"""The optimizer that begins with a prior."""
PORTFOLIO = f"{OPTIMIZER}, portfolio"
"""How the origin of a prior's proposal begins."""
_MOST_NAMED = 8  # sources in a line


@dataclass(frozen=True)
class PriorUse:
    """The prior of a study and its part in the proposals.

    Attributes:
        sources: its prior files, landscapes and studies in a line.
        tasks: how many tables they are.
        sha256: hash of the prior, as the study file has it.
        new: configurations that the study has proposed.
        proposed: of these, those that the prior chose.
    """

    sources: str
    tasks: int
    sha256: str
    new: int
    proposed: int


def prior_use(content: Mapping[str, Any], new: int, proposed: int) -> PriorUse:
    """Describe the prior that stands in a study file.

    Args:
        content: `prior_data` of the study file.
        new: configurations that the study has proposed.
        proposed: of these, those that the prior chose.
    """
    tasks = content["tasks"]
    sources = sources_text((task.get("prior", ""), task["source"]) for task in tasks)
    return PriorUse(sources, len(tasks), content["sha256"], new, proposed)


def prior_text(use: PriorUse) -> str:
    """Word it.

    For example `prior: arlbench-ppo (6 tasks), hash 0123456789ab: 14 of 24 new configurations`.
    """
    if not use.tasks:
        return "prior: none of a landscape"
    part = f"{use.proposed} of {use.new} new configurations"
    return f"prior: {use.sources}, hash {use.sha256[:12]}: {part}"


def sources_text(sources: Iterable[tuple[str, str]]) -> str:
    """Name prior files with their tasks, and other sources by their ids.

    Args:
        sources: of each task the name of its prior file, "" without, and its own.
    """
    tasks: dict[str, int] = {}
    for prior, source in sources:
        name = prior or source
        tasks[name] = tasks.get(name, 0) + bool(prior)
    texts = [
        f"{name} ({counted(count, 'task')})" if count else name for name, count in tasks.items()
    ]
    return listed(texts, _MOST_NAMED)
