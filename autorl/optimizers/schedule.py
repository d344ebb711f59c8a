"""One given schedule: a run whose configuration changes at given steps.

`autorl test --write` writes such studies:

optimizer:
  name: schedule
  schedule: {0: {learning_rate: 1e-2}, 40_000: {learning_rate: 1e-3}}
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autorl.core.types import (
    Config,
    Continue,
    Done,
    FrozenMap,
    InputError,
    Proposal,
    ProposalId,
    Wait,
)
from autorl.optimizers.base import BaseOptimizer, Problem, option
from autorl.optimizers.hyperband import may_go_on

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ScheduleOptions:
    schedule: Mapping[str, Any] | None = option(
        None,
        "configurations by the step they start at, the first at 0; "
        "null: the default and the warm starts, unchanged",
    )


class Schedule(BaseOptimizer[ScheduleOptions]):
    """Trains one given schedule: configurations by the step they start at."""

    Options = ScheduleOptions
    partial = True
    lag_free = True
    search_kind = "schedule"
    reads_priors = False
    takes_enqueued = False

    def __init__(self, problem: Problem, options: ScheduleOptions) -> None:
        super().__init__(problem, options)
        self.parts = [(0, config) for config in problem.initial]
        if options.schedule:
            self.parts = _read(problem, options.schedule)

    def blind(self, number: int) -> bool:
        """A run that starts at step 0 continues no other run."""
        return number < len(self.parts) and self.parts[number][0] == 0

    def _ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        number = len(self.history)
        if number == len(self.parts):
            return Done()
        start, config = self.parts[number]
        until = self.problem.horizon
        # A part that starts at 0 is another run: without a schedule all of them do.
        if number + 1 < len(self.parts) and self.parts[number + 1][0]:
            until = self.parts[number + 1][0]
        parent = None
        member: str | None = str(number)
        if start == 0:
            named = "default" if config == self.problem.initial[0] else "schedule"
            origin = named if self.options.schedule or not number else "warm start"
        else:
            before = list(self.history)[-1]
            if before.result is None:
                return Wait()
            if not may_go_on(before):
                return Done()
            parent = Continue(before.id)
            member = before.proposal.member
            origin = f"from step {start}"
        meta = FrozenMap(part=number)
        return Proposal(config, until, parent, member=member, origin=origin, meta=meta, retain=True)

    def keeps(self) -> Collection[ProposalId]:
        """The last one, until its continuation is proposed."""
        number = len(self.history)
        continued = number < len(self.parts) and self.parts[number][0] > 0
        return [record.id for record in self.history][-1:] if continued else []


def _read(problem: Problem, schedule: Mapping[str, object]) -> list[tuple[int, Config]]:
    """The parts in the order of their steps, each a valid configuration.

    Raises:
        InputError: a step that is none, or a change of something that may not change.
    """
    parts: list[tuple[int, Config]] = []
    for text, values in schedule.items():
        key = f"optimizer.schedule.{text}"
        # A key is a number or, once frozen, a text; people write 40_000, and `int` reads it.
        if not str(text).replace("_", "").isdigit() or not int(text) < problem.horizon:
            raise InputError(f"expected a step below {problem.horizon}, got {text!r}", key=key)
        if not isinstance(values, Mapping):
            raise InputError(f"expected a configuration, got {values!r}", key=key)
        parts.append((int(text), problem.space.config(values)))
    parts.sort(key=lambda part: part[0])
    if parts[0][0] != 0:
        raise InputError(
            f"the first configuration starts at step 0, got {parts[0][0]}", key="optimizer.schedule"
        )
    for (_, before), (step, after) in itertools.pairwise(parts):
        for name in sorted({*before, *after} - problem.changeable):
            if before.get(name) != after.get(name):
                raise InputError(
                    f"{name} cannot change during training", key=f"optimizer.schedule.{step}"
                )
    return parts
