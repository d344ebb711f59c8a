"""Bodies of events that earlier versions wrote, as this version writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from autorl.store.events import (
    Body,
    CandidatesFrozen,
    ModelsNamed,
    ProposalMade,
    SegmentEnded,
    SegmentLost,
    StudyFinished,
)
from autorl.types import ProposalId, SearchEnd

MemberOf: TypeAlias = Callable[[ProposalId], str | None]
"""The member of an earlier proposal of the same log."""
_NO_REASON = {"search_end": SearchEnd.NOT_RECORDED.value}


def upgraded(kind: str, body: Body, member_of: MemberOf) -> Body:
    """Add to an event's body what its version meant without recording it.

    What is in the log stays as it is: hashes are taken over it. A body of this version comes back
    unchanged.
    """
    match kind:
        case ProposalMade.kind:
            return _proposed(body, member_of)
        case SegmentEnded.kind:
            if "checkpoint_files" in body:
                return body
            return {"checkpoint_files": {}, **body}  # none were recorded: they are not compared
        case SegmentLost.kind:
            return {"host": "", "preempted": False, **body}  # every worker was on the driver's own
        case CandidatesFrozen.kind | ModelsNamed.kind:
            # Candidates had no step and no end at first: test runs were whole.
            rows = [(*row, None, None)[:4] for row in body["candidates"]]
            return {**_NO_REASON, **body, "candidates": rows}
        case StudyFinished.kind:
            return {**_NO_REASON, **body}
        case _:
            return body


def _proposed(body: Body, member_of: MemberOf) -> Body:
    # Which proposals were informed was not recorded at first: nothing but counts depends on it,
    # and those ask the table `standing`, which knows that it is not known.
    if "informed" not in body:
        body = {"informed": False, **body}
    if "parent" in body:
        return body
    # `member` said three things more: whether the parent belongs to another member, so that the
    # agent is a copy, which random streams such a copy has, and that it is saved at the horizon.
    parent = body["resume_from"]
    member = body["member"]
    kind = None
    if parent is not None:
        kind = "continue" if member_of(parent) == member else "exploit"
    return {**body, "parent": kind, "stream": str(member), "retain": member is not None}
