"""The tables that follow from a life of events, by hand."""

import sqlite3

import pytest

from autorl.core.types import (
    Checkpoint,
    Config,
    Continue,
    Failed,
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
from autorl.store import schema
from autorl.store.codec import body_of, dumps
from autorl.store.events import (
    Candidate,
    CandidatesFrozen,
    CandidateTested,
    CheckpointRegained,
    CheckpointsCollected,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SegmentEnded,
    SegmentPlace,
    SessionBegun,
    StudyFinished,
    TestScore,
)
from autorl.store.log import add_event


def proposed(number, parent=None, *, anew=False, **flags):
    proposal = Proposal(
        Config(x=number % 3),
        100,
        None if parent is None else Continue(parent),
        origin="test",
        informed=bool(number % 2),
        **flags,
    )
    return ProposalMade(Proposed(number, proposal), f"hash {number % 3}", anew=anew)


def ended(text, run, reached, *, role="tuning", status=Status.DONE, notes=(), seconds=0.1, **cost):
    segment = SegmentId.parse(text)
    place = SegmentPlace(segment, run, role, "test", None, None, 0, None, None, 0)
    cost = {"environment_steps": reached / 3, "wall_seconds": seconds, **cost}
    outcome = Outcome(
        segment,
        status,
        reached,
        tuple(Report(segment, step, {"value": step / 7}) for step in range(50, reached + 1, 50)),
        cost,
        Checkpoint(segment, f"checkpoints/{segment}"),
        {"x": 1},
        tuple(notes),
    )
    return SegmentEnded(outcome, place, (("value", reached, 1.0, 2.0, 50, 1.5, 1.2),))


def scored(number, seeds=(0,), value=1.0, beyond=None, **more):
    facts = {"spread": (0.0,), "constraints": (0.5,), "mean": (value,), **more}
    result = Scored(number, (value,), n_seeds=len(seeds), reached=100, **facts)
    return ProposalScored(result, seeds, (value,), beyond)


def failed(number, seeds=(0,)):
    return ProposalFailed(Failed(number, Status.CRASH, (), "so"), seeds, ())


def collected(*names):
    return CheckpointsCollected(tuple(map(SegmentId.parse, names)))


def regained(text, path, *notes):
    segment = SegmentId.parse(text)
    return CheckpointRegained(segment, Checkpoint(segment, path), notes=notes)


def frozen(label, proposal):
    return CandidatesFrozen((Candidate(label, proposal),), (101,), SearchEnd.BUDGET)


LIFE = [
    proposed(0),
    SessionBegun(FrozenMap()),
    proposed(1),
    ended("0.0", 10, 100, notes=["a", "b"]),
    ended("1.0", 20, 100, seconds=0.2),
    proposed(2, parent=0, anew=True),
    scored(0),
    ended("2.0", 10, 200, notes=["b"], seconds=0.7),  # goes on with the run of 0.0
    collected("0.0", "1.0"),
    regained("1.0", "checkpoints/again", "c"),
    collected("1.0", "2.0"),
    failed(1),
    scored(1, value=3.0),
    scored(1, (0, 1, 2), value=4.0),
    scored(0, (0, 1)),
    failed(0, (3,)),
    proposed(3, baseline=True, provisional=True),
    ended("0.101@50", 11, 50, role="test", seconds=0.3),
    ended("0.101", 11, 100, role="test", seconds=0.5),  # what both trained counts once
    ended("1.101", 21, 100, role="test"),
    ended("1.101@50", 21, 50, role="test"),
    ended("1.101@70", 21, 70, role="test"),
    ended("3.0", 30, 100, status=Status.CRASH),
    scored(3, beyond=100),
    scored(3, (0, 1), beyond=7),
    frozen("best", 1),
    CandidateTested(1, "best", (TestScore(0, 101, 0.5, Status.DONE),)),
    frozen("default", 0),
    StudyFinished(SearchEnd.BUDGET),
]


def database(events):
    """A database whose log holds events, and no table anything yet."""
    connection = sqlite3.connect(":memory:")
    schema.create(connection)
    for seq, event in enumerate(events, start=1):
        add_event(connection, seq, event.kind, dumps(body_of(event)), 0.0, None)
    return connection


def rows(events, query):
    """Rows of the tables that follow from events."""
    connection = database(events)
    for seq, event in enumerate(events, start=1):
        schema.apply(connection, seq, event)
    return connection.execute(query).fetchall()


def test_where_proposals_stand_by_hand():
    flags = "SELECT provisional, baseline, anew, informed FROM standing ORDER BY proposal"
    assert rows(LIFE, flags) == [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (1, 1, 0, 1)]
    results = "SELECT infeasible, reached, n_seeds, value, mean, spread, objectives FROM standing"
    assert rows(LIFE, f"{results} ORDER BY proposal") == [
        (0.5, 100, 2, 1.0, 1.0, 0.0, "[1.0]"),
        (0.5, 100, 3, 4.0, 4.0, 0.0, "[4.0]"),
        (None,) * 7,
        (0.5, 100, 2, 1.0, 1.0, 0.0, "[1.0]"),
    ]
    # A failure with another seed is charged too; what lies beyond the budget is not.
    charges = "SELECT seeds, charged, beyond FROM standing ORDER BY proposal"
    assert rows(LIFE, charges) == [
        ("[3]", "[0,1,3]", None),
        ("[0,1,2]", "[0,1,2]", None),
        (None, None, None),
        ("[0,1]", None, 107),
    ]


def test_a_score_is_ranked_by_its_first_values():
    score = scored(0, value=2.0, mean=(), spread=(), constraints=(-1.0, 0.25, 0.5))
    query = "SELECT informed, infeasible, value, mean, spread FROM standing"
    assert rows([proposed(0), score], query) == [(0, 0.75, 2.0, 2.0, 0.0)]
    score = scored(0, value=2.0, mean=(1.5, 9.0), spread=(0.25, 9.0), constraints=())
    assert rows([proposed(0), score], query) == [(0, 0, 2.0, 1.5, 0.25)]


def test_what_runs_cost_by_hand():
    query = "SELECT run_id, environment_steps, wall_seconds, status FROM runs ORDER BY run_id"
    assert rows(LIFE, query) == [
        (10, pytest.approx(100), pytest.approx(0.8), "done"),
        (11, pytest.approx(100 / 3), pytest.approx(0.5), "done"),
        (20, pytest.approx(100 / 3), 0.2, "done"),
        (21, pytest.approx(100 / 3), 0.1, "done"),
        (30, pytest.approx(100 / 3), 0.1, "crash"),
    ]


def test_what_was_trained_twice_counts_once():
    """The longer of two segments with one beginning counts; a segment that is not longer counts for
    nothing."""
    whole = [proposed(0), ended("0.7", 1, 100, seconds=0.5)]
    query = "SELECT environment_steps, wall_seconds FROM runs"
    for segment, reached in (("0.7@100", 100), ("0.7@50", 50)):
        again = ended(segment, 1, reached, seconds=9.0)
        assert rows([*whole, again], query) == [(pytest.approx(100 / 3), 0.5)]
    longer = ended("0.7@150", 1, 150, seconds=0.75)
    assert rows([*whole, longer], query) == [(pytest.approx(50), 0.75)]
    free = ended("0.7", 1, 100, seconds=0.0, environment_steps=0.0)
    assert rows([proposed(0), free], query) == [(0.0, 0.0)]
    assert rows([proposed(0), free, longer], query) == [(pytest.approx(50), 0.75)]


@pytest.mark.parametrize("order", [1, -1], ids=["short first", "long first"])
def test_two_lengths_of_one_run_have_each_evaluation_once(order):
    parts = [ended("0.100@50", 7, 50, role="test"), ended("0.100", 7, 100, role="test")][::order]
    points = rows([proposed(0), *parts], "SELECT step, value FROM reports ORDER BY step")
    assert points == [(50, 50 / 7), (100, 100 / 7)]
    assert rows([proposed(0), *parts], "SELECT COUNT(*) FROM segments") == [(2,)]
