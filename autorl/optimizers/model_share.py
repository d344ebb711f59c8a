"""Measures how much of a search is its model's, and its prior's.

New configurations are counted by who made them, and so are proposals that only go on.

A study under a model-based optimizer that is over before the start-up is, is random search under
another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_text import counted, listed
from autorl.core.types import Config, Proposal

OPTIMIZER = "transfer"
"""The optimizer that begins with a prior."""
PORTFOLIO = f"{OPTIMIZER}, portfolio"
"""How the origin of a prior's proposal begins."""
_MOST_NAMED = 8  # sources in a line


@dataclass(frozen=True)
class ModelShare:
    """Counted proposals of a study.

    Attributes:
        new: proposals of a configuration that no earlier one had.
        modelled: of these, those that observed scores had a part in (`Proposal.informed`); the
            others are the default, warm starts, and what a start-up designs or draws.
        continued: all other proposals: promotions, continuations, schedules trained again.
    """

    new: int
    modelled: int
    continued: int

    @property
    def share(self) -> float:
        """Part of the new configurations that is the model's, 0 without any."""
        return self.modelled / self.new if self.new else 0.0


NO_SHARE = ModelShare(0, 0, 0)


def model_share(proposals: Iterable[Proposal]) -> ModelShare:
    """Count the proposals of one study, given in their order.

    The driver's baseline is none of the search.
    """
    counted: set[Config] = set()
    new = modelled = total = 0
    for proposal in proposals:
        if proposal.baseline:
            continue
        total += 1
        if proposal.config not in counted:
            counted.add(proposal.config)
            new += 1
            modelled += proposal.informed
    return ModelShare(new, modelled, total - new)


def share_text(share: ModelShare, *, learns: bool, about: str = "") -> str:
    """Word the counts.

    For example `16 new configurations (12 by the model, 4 of the start-up), 8 promoted or
    continued`.

    `learns`: whether the optimizer has a model at all.
    """
    text = f"{about}{counted(share.new, 'new configuration')}"
    if learns:
        of_startup = share.new - share.modelled
        text += f" ({about}{share.modelled} by the model, {about}{of_startup} of the start-up)"
    return text + (f", {about}{share.continued} promoted or continued" if share.continued else "")


def share_caution(optimizer: str, share: ModelShare, *, learns: bool) -> str | None:
    """Warn where less than half of the new configurations is the model's.

    There must be meant to be a model.
    """
    if not learns or not share.new or share.share >= 0.5:
        return None
    if share.modelled:
        part = (
            f"only {share.modelled} of {share.new} new configurations "
            f"are by the model of {optimizer}"
        )
        return f"{part}: a larger budget, or a smaller `parallelism` or start-up, gives it more"
    # A start-up with a prior is more than random draws.
    blind = "no score chose a configuration" if optimizer == OPTIMIZER else "this is random search"
    return (
        f"{optimizer} never left its start-up: {blind} "
        "(a larger budget gives it scores to learn from)"
    )


def share_dict(share: ModelShare, *, learns: bool) -> dict[str, int | None]:
    """Return the counts as JSON types.

    `by_model` is null for an optimizer that has no model.
    """
    return {
        "total": share.new,
        "by_model": share.modelled if learns else None,
        "continued": share.continued,
    }


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
    tasks = content["tasks"].get("values", ())
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
