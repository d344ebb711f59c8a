"""Events to and from plain JSON, for the log.

Tuples become lists and come back as tuples; floats keep every bit (`repr`); NaN and infinities are
written as Python's `json` writes them, and only this module reads them. The names in a body are
stored: they are never changed, and hashes of the log are taken over them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from autorl.plain_values import python_scalar
from autorl.store.events import (
    Body,
    BudgetExtended,
    Candidate,
    CandidatesFrozen,
    CandidateTested,
    CheckpointRegained,
    CheckpointsCollected,
    ConfigEnqueued,
    ModelsNamed,
    OutcomeIgnored,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SearchGivenUp,
    SeedsGranted,
    SegmentEnded,
    SegmentLost,
    SegmentPlace,
    SessionBegun,
    StudyBegun,
    StudyEvent,
    StudyFinished,
    TestScore,
    TestSeedsAdded,
)
from autorl.store.origin import origin_text
from autorl.store.upgrade import MemberOf, upgraded
from autorl.types import (
    Change,
    Checkpoint,
    Config,
    Continue,
    Exploit,
    Failed,
    Fence,
    FrozenMap,
    Outcome,
    Proposal,
    Proposed,
    Report,
    Scored,
    SearchEnd,
    SegmentId,
    Status,
    freeze,
)

KINDS = frozenset(event.kind for event in get_args(StudyEvent))


class UnknownEventError(ValueError):
    """An event is of a kind that this version does not have.

    Nothing may be left out of a fold.
    """

    def __init__(self, kind: object) -> None:
        super().__init__(f"event of unknown kind {kind!r}: written by a newer autorl?")


def body_of(event: StudyEvent) -> dict[str, Any]:
    """Return what is stored of an event beside its kind."""
    match event:
        case SessionBegun():
            return dict(event.facts)
        case ProposalMade():
            return _proposed_body(event)
        case SegmentEnded():
            return _outcome_body(event)
        case ProposalScored() | ProposalFailed():
            return _settled_body(event)
        case CheckpointRegained():
            return {
                "segment": event.segment,
                "checkpoint": event.checkpoint.path,
                "checkpoint_files": event.checkpoint.files,
                "cost": event.cost,
                "notes": event.notes,
                **_size_body(event.checkpoint),
            }
        case CandidatesFrozen():
            return {
                "candidates": _candidate_rows(event),
                "seeds": event.seeds,
                "search_end": event.search_end.value,
            }
        case CandidateTested():
            rows = [
                [score.objective, score.seed, score.value, score.status.value]
                for score in event.scores
            ]
            return {"proposal": event.proposal, "label": event.label, "rows": rows}
        case ModelsNamed():
            return {
                "candidates": _candidate_rows(event),
                "search_end": event.search_end.value,
            }
        case StudyFinished():
            return {"search_end": event.search_end.value}
        case _:
            return _fields_of(event)


def read_event(kind: str, body: Body, member_of: MemberOf) -> StudyEvent:
    """Read an event from its stored body, of this version or earlier.

    Args:
        kind: as the log names it.
        body: what is stored beside it. It may be changed afterwards: the event has copies.
        member_of: the member of an earlier proposal, which bodies of earlier versions rely on.

    Raises:
        UnknownEventError: there is no such kind.
        ValueError: the body is not one of this kind.
    """
    read = _READERS.get(kind)
    if read is None:
        raise UnknownEventError(kind)
    try:
        return read(upgraded(kind, body, member_of))
    # All that a reader raises at a body of another shape.
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"event of kind {kind!r} cannot be read ({problem})") from error


# -- JSON --------------------------------------------------------------------------------------


def dumps(body: object) -> str:
    """Write one line of canonical JSON: sorted keys, no spaces."""
    # Scores and seeds, more than half of all texts in the tables: to begin costs the encoder more
    # than to write one of these lengths.
    if isinstance(body, list | tuple) and _NUMBERS.issuperset(map(type, body)):
        text = ",".join(map(repr, body))
        if "n" not in text:  # `nan` and `inf`, which JSON calls `NaN` and `Infinity`
            return f"[{text}]"
    return _ENCODER.encode(body)


def loads(text: str) -> dict[str, Any]:
    """Read the body of one line of JSON, frozen."""
    return {
        name: freeze(value) if type(value) in _CONTAINERS else value
        for name, value in json.loads(text).items()
    }


def _unfrozen(value: object) -> object:
    # Not `plain`: json calls this for the few values it does not know and walks the rest in C.
    if isinstance(value, Mapping):
        return dict(value)
    number = python_scalar(value)  # one of NumPy that slipped through a trainer's metrics
    if number is not value:
        return number
    raise TypeError(
        f"{type(value).__name__} {value!r} cannot be stored: use numbers, strings, lists and "
        "mappings"
    )


_CONTAINERS = (dict, list)  # all that JSON has; the rest cannot be changed
_NUMBERS = frozenset({float, int})  # not `bool`, which JSON writes in another way than Python

# Made once: `json.dumps` makes one at every call that asks for anything of its own.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_unfrozen)


def _fields_of(value: StudyEvent | Scored | Failed | SegmentPlace) -> dict[str, Any]:
    """Return the fields of a dataclass by name.

    Unlike those of `asdict`, their values stay what they are.
    """
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


# -- proposals ---------------------------------------------------------------------------------


def _proposed_body(event: ProposalMade) -> dict[str, Any]:
    proposal = event.proposed.proposal
    body = {
        "id": event.proposed.id,
        "config": proposal.config,
        "config_hash": event.config_hash,
        "until": proposal.until,
        **_parent_body(proposal.parent),
        "member": proposal.member,
        "origin": origin_text(proposal),
        "meta": proposal.meta,
        "informed": proposal.informed,
    }
    if proposal.changes is not None:
        # `origin` is a sentence made of both, for people: these are what is read back.
        body["reason"] = proposal.origin
        body["changes"] = [[change.name, change.old, change.new] for change in proposal.changes]
    flags = {
        "provisional": proposal.provisional,
        "baseline": proposal.baseline,
        "retain": proposal.retain,
        "anew": event.anew,
    }
    if event.cost is not None:
        body["cost"] = event.cost
    # Only those that are set: most proposals have none.
    return body | {name: True for name, is_set in flags.items() if is_set}


def _parent_body(parent: Continue | Exploit | None) -> dict[str, Any]:
    match parent:
        case None:
            return {"resume_from": None, "parent": None}
        case Continue(proposal):
            return {"resume_from": proposal, "parent": "continue"}
        case Exploit(proposal, stream):
            return {"resume_from": proposal, "parent": "exploit", "stream": stream}


def _read_parent(body: Body) -> Continue | Exploit | None:
    match body["parent"]:
        case None:
            return None
        case "continue":
            return Continue(body["resume_from"])
        case "exploit":
            return Exploit(body["resume_from"], body["stream"])
        case other:
            raise ValueError(f"a parent of kind {other!r}")


def _read_proposed(body: Body) -> ProposalMade:
    changes = None
    if "changes" in body:
        changes = tuple(Change(*freeze(row)) for row in body["changes"])
    proposal = Proposal(
        config=Config(body["config"]),
        until=body["until"],
        parent=_read_parent(body),
        member=body["member"],
        origin=body.get("reason", body["origin"]),
        meta=FrozenMap(body["meta"]),
        informed=body["informed"],
        provisional=body.get("provisional", False),
        baseline=body.get("baseline", False),
        retain=body.get("retain", False),
        changes=changes,
    )
    return ProposalMade(
        Proposed(body["id"], proposal),
        body["config_hash"],
        anew=body.get("anew", False),
        cost=body.get("cost"),
    )


def _settled_body(event: ProposalScored | ProposalFailed) -> dict[str, Any]:
    if isinstance(event, ProposalScored):
        body = _fields_of(event.scored)
    else:
        body = _fields_of(event.failed) | {"kind": event.failed.kind.value}
    body |= {"seeds": event.seeds, "score": event.score}
    return body if event.beyond is None else {**body, "beyond": event.beyond}


def _read_scored(body: Body) -> ProposalScored:
    scored = Scored(**{name: freeze(body[name]) for name in _SCORED})
    return ProposalScored(scored, freeze(body["seeds"]), freeze(body["score"]), body.get("beyond"))


_SCORED = tuple(field.name for field in dataclasses.fields(Scored))


def _read_failed(body: Body) -> ProposalFailed:
    values = freeze(body["values"])
    failed = Failed(body["proposal"], Status(body["kind"]), values, body["message"])
    return ProposalFailed(failed, freeze(body["seeds"]), freeze(body["score"]), body.get("beyond"))


# -- segments ----------------------------------------------------------------------------------


def _outcome_body(event: SegmentEnded) -> dict[str, Any]:
    outcome = event.outcome
    checkpoint = outcome.checkpoint
    place = _fields_of(event.place)
    segment = place.pop("segment")  # the outcome names it
    body: dict[str, Any] = {
        "segment": outcome.segment,
        "status": outcome.status.value,
        "reached": outcome.reached,
        "reports": [[report.step, report.metrics] for report in outcome.reports],
        "cost": outcome.cost,
        "checkpoint": None if checkpoint is None else checkpoint.path,
        "applied": outcome.applied,
        "notes": outcome.notes,
        "message": outcome.message,
        "run": place | {"proposal": segment.proposal, "seed": segment.seed},
    }
    if checkpoint is not None and checkpoint.files:
        body["checkpoint_files"] = checkpoint.files
        body |= _size_body(checkpoint)
    if event.reductions is not None:
        body["reductions"] = event.reductions
    if outcome.fence != Fence():
        body["fence"] = [outcome.fence.epoch, outcome.fence.attempt]
    if outcome.host:
        body["host"] = outcome.host
    return body


def _size_body(checkpoint: Checkpoint) -> dict[str, int]:
    return {"checkpoint_size": checkpoint.size} if checkpoint.size else {}


def _read_place(segment: SegmentId, body: Body) -> SegmentPlace:
    parent = None
    if body["parent"] is not None:
        parent = SegmentId.parse(body["parent"])
    return SegmentPlace(
        segment=segment,
        run_id=body["run_id"],
        role=body["role"],
        algorithm=body["algorithm"],
        environment=body["environment"],
        parent_run=body["parent_run"],
        start_step=body["start_step"],
        member=body["member"],
        parent=parent,
        from_step=body["from_step"],
    )


def _read_outcome(body: Body) -> SegmentEnded:
    segment = SegmentId.parse(body["segment"])
    path = body["checkpoint"]
    checkpoint = None
    if path is not None:
        files = FrozenMap(body["checkpoint_files"])
        checkpoint = Checkpoint(segment, path, files, body.get("checkpoint_size", 0))
    outcome = Outcome(
        segment=segment,
        status=Status(body["status"]),
        reached=body["reached"],
        reports=tuple(
            [Report(segment, step, freeze(metrics)) for step, metrics in body["reports"]]
        ),
        cost=freeze(body["cost"]),
        checkpoint=checkpoint,
        applied=freeze(body["applied"]),
        notes=freeze(body["notes"]),
        message=body["message"],
        fence=Fence(*body.get("fence", ())),
        host=body.get("host", ""),
    )
    place = _read_place(segment, body["run"])
    return SegmentEnded(outcome, place, freeze(body.get("reductions")))


def _read_regained(body: Body) -> CheckpointRegained:
    files = FrozenMap(body["checkpoint_files"])
    segment = SegmentId.parse(body["segment"])
    checkpoint = Checkpoint(segment, body["checkpoint"], files, body.get("checkpoint_size", 0))
    return CheckpointRegained(segment, checkpoint, freeze(body["cost"]), freeze(body["notes"]))


# -- the test phase ----------------------------------------------------------------------------


def _candidate_rows(event: CandidatesFrozen | ModelsNamed) -> list[list[object]]:
    return [
        [candidate.label, candidate.proposal, candidate.step, candidate.end]
        for candidate in event.candidates
    ]


def _read_candidates(body: Body) -> tuple[Candidate, ...]:
    return tuple(Candidate(*row) for row in body["candidates"])


def _read_tested(body: Body) -> CandidateTested:
    rows = body["rows"]
    scores = [TestScore(number, seed, value, Status(how)) for number, seed, value, how in rows]
    return CandidateTested(body["proposal"], body["label"], tuple(scores))


# -- every kind --------------------------------------------------------------------------------

_READERS: dict[str, Callable[[Body], StudyEvent]] = {
    StudyBegun.kind: lambda body: StudyBegun(**body),
    SessionBegun.kind: lambda body: SessionBegun(FrozenMap(body)),
    ProposalMade.kind: _read_proposed,
    ConfigEnqueued.kind: lambda body: ConfigEnqueued(Config(body["config"])),
    SegmentLost.kind: lambda body: SegmentLost(
        SegmentId.parse(body["segment"]), body["message"], body["host"], body["preempted"]
    ),
    OutcomeIgnored.kind: lambda body: OutcomeIgnored(**body),
    SegmentEnded.kind: _read_outcome,
    ProposalScored.kind: _read_scored,
    ProposalFailed.kind: _read_failed,
    SeedsGranted.kind: lambda body: SeedsGranted(**freeze(body)),
    SearchGivenUp.kind: lambda body: SearchGivenUp(**body),
    CheckpointsCollected.kind: lambda body: CheckpointsCollected(
        tuple(map(SegmentId.parse, body["segments"]))
    ),
    CheckpointRegained.kind: _read_regained,
    BudgetExtended.kind: lambda body: BudgetExtended(body["runs"]),
    CandidatesFrozen.kind: lambda body: CandidatesFrozen(
        _read_candidates(body), freeze(body["seeds"]), SearchEnd(body["search_end"])
    ),
    CandidateTested.kind: _read_tested,
    TestSeedsAdded.kind: lambda body: TestSeedsAdded(freeze(body["seeds"])),
    ModelsNamed.kind: lambda body: ModelsNamed(
        _read_candidates(body), SearchEnd(body["search_end"])
    ),
    StudyFinished.kind: lambda body: StudyFinished(SearchEnd(body["search_end"])),
}
