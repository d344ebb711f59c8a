"""One of our optimizers, asked one proposal at a time on a function of configurations; what came of its proposals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autorl.core.types import Proposal

Objective = Callable[[Mapping[str, Any], int, int], float | None]
"""configuration, first step, last step -> a score, larger is better; None when the budget is used up."""


def play(optimizer: Any, repeat: int, objective: Objective) -> list[Proposal]:
    """Ask and tell until the optimizer is done or the budget is; the scored proposals. `repeat` seeds every ask."""
    from autorl.core import seeds
    from autorl.core.types import Done, Proposal, Proposed, Scored

    made: list[Proposal] = []
    while not isinstance(answer := optimizer.ask(seeds.generator(repeat, "ask", len(made))), Done):
        assert isinstance(answer, Proposal), (
            f"{type(optimizer).__name__} waits with nothing in flight"
        )
        start = 0 if answer.resume_from is None else made[answer.resume_from].until
        value = objective(answer.config, start, answer.until)
        if value is None:
            return made
        number = len(made)
        made.append(answer)
        optimizer.observe(Proposed(number, answer))
        optimizer.observe(Scored(number, (value,), reached=answer.until))
    return made


def count(proposals: Iterable[Any]) -> dict[str, int]:
    """`informed` and `new` of one search, from its proposals in order; a promotion has no new configuration."""
    from autorl.optimizers.model_share import model_share

    counted = model_share(proposals)
    return {"informed": counted.modelled, "new": counted.new}
