"""Measures how much of a search is its model's.

New configurations are counted by who made them, and so are proposals that only go on.

A study under a model-based optimizer that is over before the start-up is, is random search under
another name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autorl.core.plain_text import counted
from autorl.core.types import Config, Proposal
from autorl.optimizers.priors.used import OPTIMIZER as TRANSFER


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
    blind = "no score chose a configuration" if optimizer == TRANSFER else "this is random search"
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
