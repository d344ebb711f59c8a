"""What an optimizer observes, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autorl.store import codec
from autorl.store.events import ProposalFailed, ProposalMade, ProposalScored, StudyEvent
from autorl.types import Event, Proposed, Scored, freeze


def to_json(event: Event) -> dict[str, Any]:
    """Turn an event into plain JSON, as a study's log does."""
    stored: StudyEvent
    # What an optimizer does not observe is left empty.
    if isinstance(event, Proposed):
        stored = ProposalMade(event, config_hash="")
    elif isinstance(event, Scored):
        stored = ProposalScored(event, seeds=(), score=())
    else:
        stored = ProposalFailed(event, seeds=(), score=())
    return {"event": stored.kind, "body": json.loads(codec.dumps(codec.body_of(stored)))}


def from_json(fields: Mapping[str, Any]) -> Event:
    """The inverse of `to_json`.

    Raises:
        ValueError: it is no such event.
    """
    # Only bodies of earlier versions ask for the member of a proposal.
    match codec.read_event(fields["event"], freeze(fields["body"]), lambda proposal: None):
        case ProposalMade(proposed=proposed):
            return proposed
        case ProposalScored(scored=scored):
            return scored
        case ProposalFailed(failed=failed):
            return failed
    raise ValueError(f"an optimizer observes no event of kind {fields['event']!r}")
