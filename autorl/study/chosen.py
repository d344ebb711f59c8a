"""The step a candidate's score is read at and the step its runs end at, from a study's tables.

With `reduce: best` the step is chosen on tuning seeds, and the runs whose models are kept end there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from autorl.store.query import Query


@dataclass(frozen=True)
class Chosen:
    """What was written down of a candidate before its models were trained.

    Attributes:
        step: its score is read at; None: by the study's reduction, of the whole run.
        end: its runs were trained to; None: as far as the proposal.
    """

    step: int | None = None
    end: int | None = None


def chosen(query: Query, proposal: int) -> Chosen:
    """What was written down of a proposal last; nothing of one that was no candidate."""
    for (text,) in query(
        "SELECT body FROM event WHERE kind IN ('frozen', 'models') ORDER BY seq DESC"
    ):
        for _, number, *steps in json.loads(text)["candidates"]:
            if number == proposal:
                return Chosen(*steps)
    return Chosen()


def link_at(query: Query, proposal: int, step: int | None) -> int:
    """The proposal of the chain that trains through `step`; None: the last one."""
    number = proposal
    while step is not None:
        ((before,),) = query("SELECT resume_from FROM proposals WHERE proposal = ?", (number,))
        if before is None or until(query, before) < step:
            break
        number = before
    return number


def until(query: Query, proposal: int) -> int:
    """The step a proposal ends at."""
    ((step,),) = query("SELECT until FROM proposals WHERE proposal = ?", (proposal,))
    return int(step)
