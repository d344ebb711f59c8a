"""Events to JSON and back, bit for bit."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorl.core.types import (
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
)
from autorl.store import codec
from autorl.store.events import (
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
from autorl.store.schema import origin_text

numbers = st.floats(allow_nan=False)
values = st.lists(numbers, max_size=3).map(tuple)


def through(body):
    return json.loads(codec.dumps(body))


def again(event):
    """The event as the log gives it back."""
    return codec.read_event(event.kind, through(codec.body_of(event)))


PROPOSAL = Proposal(
    Config(x=1.5, net=(64, 64)),
    100,
    Exploit(3, "a"),
    "a",
    "exploit member b",
    FrozenMap(rung=(1, 2)),
    informed=True,
    retain=True,
    changes=(Change("x", 0.5, 1.5), Change("net", None, (64, 64))),
)
FLAGGED = Proposal(Config(), 10, Continue(2), provisional=True, baseline=True, changes=())
CHECKPOINT = Checkpoint("3.1", "checkpoints/3.1", FrozenMap({"state.json": "ab12"}))
SEGMENT = SegmentId(3, 1)
PLACE = SegmentPlace(SEGMENT, 30_001, "tuning", "toy", None, 20_001, 50, "a", SegmentId(2, 1), 48)
OUTCOME = Outcome(
    "3.1",
    Status.DONE,
    64,
    (Report("3.1", 50, {"r": 0.1}), Report("3.1", 64, {"r": -0.0})),
    {"wall_seconds": 0.1},
    CHECKPOINT,
    {"lr": 1e-3, "net": (64, 64)},
    ("a note",),
    "a message",
)
CANDIDATES = (Candidate("incumbent", 3, 75, 75), Candidate("default", 0))
EVENTS = [
    StudyBegun("text", "5f", "ab"),
    StudyBegun("text", "5f", None),
    SessionBegun(FrozenMap(python="3.11", packages={"numpy": "2"})),
    ProposalMade(Proposed(7, PROPOSAL), "hash"),
    ProposalMade(Proposed(8, FLAGGED), "hash", anew=True),
    ConfigEnqueued(Config(x=0.25, net=(64, 64))),
    SegmentLost(SEGMENT, "a worker vanished"),
    SegmentEnded(OUTCOME, PLACE, (("r", 64, 0.1, 0.2, 50, 0.1, 0.15),)),
    SegmentEnded(Outcome("3.1", Status.CRASH, 0), PLACE),
    ProposalScored(Scored(3, (1.0,), (0.0,), 2, 64, (), False, (0.9,)), (0, 1), (-1.0,)),
    ProposalScored(Scored(3, (1.0, 2.0)), (0,), (1.0, -2.0), beyond=0),
    ProposalFailed(Failed(3, Status.DIVERGED, (), "NaN"), (0, 1), ()),
    SearchGivenUp("the last message"),
    SeedsGranted((3, 7), (0, 1), (2, 1)),
    SeedsGranted(),
    CheckpointsCollected((SEGMENT, SegmentId(3, 1, 50))),
    CheckpointRegained(SEGMENT, CHECKPOINT, {"wall_seconds": 0.1}, ("trained again",)),
    BudgetExtended(8.5),
    BudgetExtended(0.5, (3, 7)),
    CandidatesFrozen(CANDIDATES, (100, 101), SearchEnd.OPTIMIZER),
    CandidateTested(
        3, "incumbent", (TestScore(0, 100, 0.5, Status.DONE), TestScore(0, 101, None, Status.CRASH))
    ),
    TestSeedsAdded((102, 103)),
    ModelsNamed(CANDIDATES, SearchEnd.TEST),
    StudyFinished(SearchEnd.HOURS),
    SegmentLost(SEGMENT, "its host was taken away", "node7", preempted=True),
    OutcomeIgnored("3.1", 2, 1, "done"),
    SegmentEnded(Outcome("3.1", Status.DONE, 9, fence=Fence(2, 1), host="node7"), PLACE),
]


def mutable_parts(value):
    """The lists and dicts that a value holds, at any depth."""
    inner = []
    if dataclasses.is_dataclass(value):
        inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value)
    own = [value] if isinstance(value, list | dict) else []
    return own + [part for item in inner for part in mutable_parts(item)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_every_kind_comes_back_as_it_was_recorded_and_can_be_changed_by_nobody(event):
    assert again(event) == event
    assert codec.dumps(codec.body_of(again(event))) == codec.dumps(codec.body_of(event))
    assert mutable_parts(again(event)) == []


def test_no_kind_is_left_out():
    assert {type(event) for event in EVENTS} == set(get_args(StudyEvent))
    assert len(codec.KINDS) == len(get_args(StudyEvent)), "two events of one kind"


@pytest.mark.parametrize("body", [{}, {"runs": 1, "more": 2}, {"rows": [[1]]}, {"segments": 3}])
@pytest.mark.parametrize("kind", ["attempt", "proposed", "outcome", "tested", "frozen"])
def test_a_body_of_another_shape_is_refused(kind, body):
    with pytest.raises(ValueError, match=f"event of kind '{kind}' cannot be read"):
        codec.read_event(kind, body)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (None, "exploit member 3"),
        ((), "exploit member 3, nothing changed"),
        ((Change("lr", 0.5, 0.6),), "exploit member 3, explore lr x 1.2"),
        ((Change("lr", 0.0, 0.6),), "exploit member 3, explore lr = 0.6"),
        (
            (Change("n", 4, 5), Change("kind", None, "a"), Change("net", (1,), (2, 3))),
            "exploit member 3, explore n = 5, kind = a, net = (2, 3)",
        ),
    ],
)
def test_the_origin_that_is_stored_is_a_sentence_of_what_changed(changes, text):
    proposal = Proposal(Config(), 10, Exploit(1, "2"), "2", "exploit member 3", changes=changes)
    assert origin_text(proposal) == text


def test_a_body_says_only_what_is_not_the_usual():
    plain = codec.body_of(ProposalMade(Proposed(0, Proposal(Config(), 10)), "hash"))
    proposal = {"config": {}, "until": 10}
    assert plain == {"proposed": {"id": 0, "proposal": proposal}, "config_hash": "hash"}


@given(values, values, values, st.booleans())
def test_scores_keep_every_bit_and_sign(score, spread, constraints, resumable):
    scored = Scored(3, score, spread, 4, 100, constraints, resumable, score)
    read = again(ProposalScored(scored, (0,), score)).scored
    assert repr(read) == repr(scored)


@given(st.sampled_from(Status), st.dictionaries(st.text(max_size=3), numbers, max_size=3))
def test_outcomes_keep_every_metric(status, metrics):
    reports = (Report("3.1", 50, metrics), Report("3.1", 64, metrics))
    event = SegmentEnded(Outcome("3.1", status, 64, reports), PLACE)
    assert again(event) == event


def test_numpy_scalars_of_careless_trainers_are_stored_as_numbers():
    body = {"a": np.float32(0.5), "c": [np.bool_(True)], "d": FrozenMap(e=np.float64(0.1))}
    assert through(body) == {"a": 0.5, "c": [True], "d": {"e": 0.1}}


def test_text_is_canonical():
    text = codec.dumps({"b": 1, "a": {"d": (1, 2), "c": None}})
    assert text == '{"a":{"c":null,"d":[1,2]},"b":1}'
    assert json.loads(codec.dumps({"x": math.inf}))["x"] == math.inf


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, b"bytes"])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(TypeError, match="cannot be stored"):
        codec.dumps({"x": value})
