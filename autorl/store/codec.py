"""Value types to and from plain JSON, for the event log.

Tuples become lists and come back as tuples; floats keep every bit (`repr`); NaN and infinities are written as Python's
`json` writes them, and only this module reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autorl.plain_values import python_scalar
from autorl.types import (
    Checkpoint,
    Config,
    Failed,
    FrozenMap,
    Outcome,
    Proposal,
    Proposed,
    Report,
    Scored,
    Status,
    freeze,
)

_FLAGS = ("provisional", "informed", "baseline")


def dumps(body: Any) -> str:
    """One line of canonical JSON: sorted keys, no spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), default=_unfrozen)


def loads(text: str) -> dict[str, Any]:
    return {name: freeze(value) for name, value in json.loads(text).items()}


def _unfrozen(value: Any) -> Any:
    # Not `plain`: json calls this for the few values it does not know and walks the rest in C.
    if isinstance(value, Mapping):
        return dict(value)
    number = python_scalar(value)  # one of NumPy that slipped through a trainer's metrics
    if number is not value:
        return number
    raise TypeError(
        f"{type(value).__name__} {value!r} cannot be stored: use numbers, strings, lists and mappings"
    )


def proposed_body(event: Proposed) -> dict[str, Any]:
    proposal = event.proposal
    flags = [name for name in ("provisional", "baseline") if getattr(proposal, name)]
    body = {
        "id": event.id,
        "config": proposal.config,
        "until": proposal.until,
        "resume_from": proposal.resume_from,
        "member": proposal.member,
        "origin": proposal.origin,
        "meta": proposal.meta,
        "informed": proposal.informed,  # written where it is False too: earlier versions did not record it
    }
    return body | dict.fromkeys(flags, True)


def read_proposed(body: Mapping[str, Any]) -> Proposed:
    proposal = Proposal(
        config=Config(body["config"]),
        until=body["until"],
        resume_from=body["resume_from"],
        member=body["member"],
        origin=body["origin"],
        meta=FrozenMap(body["meta"]),
        **{name: body.get(name, False) for name in _FLAGS},
    )
    return Proposed(body["id"], proposal)


def scored_body(event: Scored) -> dict[str, Any]:
    return {
        "proposal": event.proposal,
        "values": event.values,
        "spread": event.spread,
        "n_seeds": event.n_seeds,
        "reached": event.reached,
        "constraints": event.constraints,
        "resumable": event.resumable,
        "mean": event.mean,
    }


def read_scored(body: Mapping[str, Any]) -> Scored:
    names = (
        "proposal",
        "values",
        "spread",
        "n_seeds",
        "reached",
        "constraints",
        "resumable",
        "mean",
    )
    return Scored(**{name: body[name] for name in names})


def failed_body(event: Failed) -> dict[str, Any]:
    return {
        "proposal": event.proposal,
        "kind": event.kind.value,
        "values": event.values,
        "message": event.message,
    }


def read_failed(body: Mapping[str, Any]) -> Failed:
    return Failed(body["proposal"], Status(body["kind"]), body["values"], body["message"])


def outcome_body(outcome: Outcome) -> dict[str, Any]:
    files = outcome.checkpoint.files if outcome.checkpoint else None
    body = {
        "segment": outcome.segment,
        "status": outcome.status.value,
        "reached": outcome.reached,
        "reports": [[report.step, report.metrics] for report in outcome.reports],
        "cost": outcome.cost,
        "checkpoint": outcome.checkpoint.path if outcome.checkpoint else None,
        "applied": outcome.applied,
        "notes": outcome.notes,
        "message": outcome.message,
    }
    return body | ({"checkpoint_files": files} if files else {})


def read_outcome(body: Mapping[str, Any]) -> Outcome:
    segment = body["segment"]
    path = body["checkpoint"]
    files = FrozenMap(body.get("checkpoint_files", {}))  # earlier versions recorded none
    return Outcome(
        segment=segment,
        status=Status(body["status"]),
        reached=body["reached"],
        reports=tuple(Report(segment, step, metrics) for step, metrics in body["reports"]),
        cost=body["cost"],
        checkpoint=Checkpoint(segment, path, files) if path is not None else None,
        applied=body["applied"],
        notes=body["notes"],
        message=body["message"],
    )
