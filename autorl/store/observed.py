"""Observations of an optimizer, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autorl.core.types import Event, Proposed, Scored
from autorl.store import codec
from autorl.store.events import ProposalFailed, ProposalMade, ProposalScored, StudyEvent


def to_json(event: Event) -> dict[str, Any]:
    """Turn an event into plain JSON, as a study's log does."""
    stored: StudyEvent
    # Fields that an optimizer does not observe are left empty.
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
        ValueError: the JSON is no such event.
    """
    match codec.read_event(fields["event"], fields["body"]):
        case ProposalMade(proposed=proposed):
            return proposed
        case ProposalScored(scored=scored):
            return scored
        case ProposalFailed(failed=failed):
            return failed
    raise ValueError(f"an optimizer observes no event of kind {fields['event']!r}")
