"""Schedules of a population, trained again as one run each.

A member that copied others ends with an agent that was picked again and again for being ahead, by
skill or by luck, and its score is that of the luckiest. The schedule of configurations behind it,
trained from step 0 by nobody but itself, is what a study reports, so that is what it should be
chosen by.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorl.core.types import (
    Config,
    Continue,
    Done,
    FrozenMap,
    Proposal,
    ProposalId,
    Proposed,
    Wait,
    schedule_of,
)
from autorl.optimizers.base import RETRAINS, History, Record
from autorl.optimizers.hyperband import may_go_on


class Retraining:
    """Proposes the parts of schedules, one after the other.

    It is a fold over events.
    """

    def __init__(self, history: History, horizon: int) -> None:
        self._history = history
        self._horizon = horizon
        self._proposed: dict[ProposalId, list[ProposalId]] = {}

    def observe(self, event: Proposed) -> bool:
        """Note an event, and tell whether it is a schedule's part."""
        of = event.proposal.meta.get(RETRAINS)
        if of is not None:
            self._proposed.setdefault(of, []).append(event.id)
        return of is not None

    def ask(self, chosen: Sequence[Record]) -> Proposal | Wait | Done:
        """Propose the next part of the schedules that lead to proposals.

        The proposals `chosen` must be the same at every call.
        """
        answer: Wait | Done = Done()
        # The first that can go on: a schedule waits for its own last part, never for another's.
        for record in chosen:
            parts = self._parts(record)
            proposed = self._proposed.get(record.id, [])
            if len(proposed) == len(parts):
                continue
            before = self._history[proposed[-1]] if proposed else None
            if before is None or may_go_on(before):
                start, config = parts[len(proposed)]
                later = [*parts[len(proposed) + 1 :], (self._horizon, config)]
                parent = None if before is None else Continue(before.id)
                return Proposal(
                    config,
                    later[0][0],  # where the next part starts, or the horizon
                    parent=parent,
                    member=f"schedule of {record.id}",
                    origin=f"schedule of proposal {record.id} from step {start}",
                    meta=FrozenMap({RETRAINS: record.id}),
                    informed=True,
                    retain=True,
                )
            # One that failed ends where it is, and is not waited for.
            if before.result is None:
                answer = Wait()
        return answer

    def keeps(self) -> list[ProposalId]:
        """The last part of each schedule that is not at its end."""
        records = (self._history[numbers[-1]] for numbers in self._proposed.values())
        return [record.id for record in records if record.proposal.until < self._horizon]

    def _parts(self, record: Record) -> tuple[tuple[int, Config], ...]:
        # Backwards through continuations and copies alike: whose agent it was does not matter here.
        links = [record]
        while (before := links[-1].proposal.resume_from) is not None:
            links.append(self._history[before])
        return schedule_of((link.proposal.config, link.proposal.until) for link in reversed(links))
