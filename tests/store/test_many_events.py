"""Tables are the same whether they follow from events one by one or from many at once."""

import json
import random
import sqlite3

import pytest

from autorl.store import schema
from autorl.store.codec import UnknownEventError, dumps
from autorl.store.log import add_event
from autorl.store.tables import derived_tables


def proposed(number, parent=None, flags=()):
    return "proposed", {
        "id": number,
        "config": {"x": number % 3},
        "config_hash": f"hash {number % 3}",
        "origin": "test",
        "until": 100,
        "resume_from": parent,
        "member": None,
        "meta": {},
        "informed": bool(number % 2),
        **dict.fromkeys(flags, True),
    }


def ended(segment, run, reached, *, role="tuning", status="done", notes=(), seconds=0.1):
    proposal, _, seed = segment.partition("@")[0].partition(".")
    place = {
        "proposal": int(proposal),
        "seed": int(seed),
        "run_id": run,
        "role": role,
        "algorithm": "test",
        "environment": None,
        "parent_run": None,
        "start_step": 0,
        "member": None,
        "parent": None,
        "from_step": 0,
    }
    return "outcome", {
        "segment": segment,
        "status": status,
        "reached": reached,
        "reports": [[step, {"value": step / 7}] for step in range(50, reached + 1, 50)],
        "cost": {"environment_steps": reached / 3, "wall_seconds": seconds},
        "checkpoint": f"checkpoints/{segment}",
        "applied": {"x": 1},
        "notes": list(notes),
        "message": "",
        "run": place,
        "reductions": [["value", reached, 1.0, 2.0, 50, 1.5, 1.2]],
    }


def scored(number, seeds=(0,), value=1.0, **more):
    return "scored", {
        "proposal": number,
        "values": [value],
        "spread": [0.0],
        "n_seeds": len(seeds),
        "reached": 100,
        "constraints": [0.5],
        "resumable": True,
        "mean": [value],
        "seeds": list(seeds),
        "score": [value],
        **more,
    }


def failed(number, seeds=(0,)):
    body = {"kind": "crash", "message": "so", "score": [], "seeds": list(seeds), "values": []}
    return "failed", {"proposal": number, **body}


# Every pair of events that reads or changes the same row stands here in its order.
LIFE = [
    proposed(0),
    ("session", {}),
    proposed(1),
    ended("0.0", 10, 100, notes=["a", "b"]),
    ended("1.0", 20, 100, seconds=0.2),
    proposed(2, parent=0, flags=["anew"]),
    scored(0),
    ended("2.0", 10, 200, notes=["b"], seconds=0.7),  # goes on with the run of 0.0
    ("collected", {"segments": ["0.0", "1.0"]}),
    ("regained", {"segment": "1.0", "checkpoint": "checkpoints/again", "notes": ["c"]}),
    ("collected", {"segments": ["1.0", "2.0"]}),
    failed(1),
    scored(1, value=3.0),
    scored(1, (0, 1, 2), value=4.0),
    scored(0, (0, 1)),
    failed(0, (3,)),
    proposed(3, flags=["baseline", "provisional"]),
    ended("0.101@50", 11, 50, role="test", seconds=0.3),
    ended("0.101", 11, 100, role="test", seconds=0.5),  # what both trained counts once
    ended("1.101", 21, 100, role="test"),
    ended("1.101@50", 21, 50, role="test"),
    ended("1.101@70", 21, 70, role="test"),
    ended("3.0", 30, 100, status="crash"),
    scored(3, beyond=100),
    scored(3, (0, 1), beyond=7),
    ("frozen", {"candidates": [["best", 1, None, None]], "seeds": [101]}),
    ("tested", {"proposal": 1, "label": "best", "rows": [[0, 101, 0.5, "done"]]}),
    ("frozen", {"candidates": [["default", 0, None, None]], "seeds": [101]}),
    ("finished", {}),
]


def database(events):
    """A database whose log holds events, and no table anything yet."""
    connection = sqlite3.connect(":memory:")
    schema.create(connection)
    for seq, (kind, body) in enumerate(events, start=1):
        add_event(connection, seq, kind, dumps(body), 0.0, None)
    return connection


def tables(connection):
    return {
        name: connection.execute(f"SELECT * FROM {name}").fetchall()
        for name in derived_tables(connection)
    }


def applied(events, parts):
    """The tables of events that are applied in parts of the given lengths."""
    connection = database(events)
    numbered = [
        (seq, kind, json.loads(dumps(body))) for seq, (kind, body) in enumerate(events, start=1)
    ]
    for length in parts:
        schema.apply_all(connection, numbered[:length])
        del numbered[:length]
    assert not numbered
    return tables(connection)


def test_many_events_at_once_make_the_tables_of_one_after_another():
    alone = applied(LIFE, [1] * len(LIFE))
    assert all(alone.values()), "a table that no event of this test has filled"
    assert applied(LIFE, [len(LIFE)]) == alone
    for begin in range(1, len(LIFE)):
        assert applied(LIFE, [begin, len(LIFE) - begin]) == alone


def test_seconds_of_a_run_are_added_in_the_order_of_its_segments():
    """Floats do not add up to the same in any other."""
    seconds = [random.Random(0).uniform(0, 1) for _ in range(40)]
    events = [proposed(number) for number in range(40)]
    events += [ended(f"{number}.0", 7, 100, seconds=value) for number, value in enumerate(seconds)]
    alone = applied(events, [1] * len(events))
    assert applied(events, [len(events)])["runs"] == alone["runs"]
    total = 0.0
    for value in seconds:
        total += value
    assert alone["runs"][0][-1] == total


def test_an_unknown_kind_among_many_is_an_error():
    events = [*LIFE, ("pruned", {})]
    with pytest.raises(UnknownEventError, match="pruned"):
        applied(events, [len(events)])


def rows(events, query):
    """Rows of the tables that follow from events."""
    connection = database(events)
    numbered = [
        (seq, kind, json.loads(dumps(body))) for seq, (kind, body) in enumerate(events, start=1)
    ]
    schema.apply_all(connection, numbered)
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


def test_what_earlier_versions_did_not_record_is_taken_from_what_they_did():
    earlier = dict(proposed(0)[1])
    del earlier["informed"]
    score = scored(0, value=2.0, mean=[], spread=[], constraints=[-1.0, 0.25, 0.5])
    query = "SELECT informed, infeasible, value, mean, spread FROM standing"
    assert rows([("proposed", earlier), score], query) == [(None, 0.75, 2.0, 2.0, 0.0)]
    score = scored(0, value=2.0, mean=[1.5, 9.0], spread=[0.25, 9.0], constraints=[])
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
    """Of two segments with one beginning the longer one; one that is no longer counts for nothing."""
    whole = [proposed(0), ended("0.7", 1, 100, seconds=0.5)]
    query = "SELECT environment_steps, wall_seconds FROM runs"
    for segment, reached in (("0.7@100", 100), ("0.7@50", 50)):
        again = ended(segment, 1, reached, seconds=9.0)
        assert rows([*whole, again], query) == [(pytest.approx(100 / 3), 0.5)]
    longer = ended("0.7@150", 1, 150, seconds=0.75)
    assert rows([*whole, longer], query) == [(pytest.approx(50), 0.75)]
    free = ended("0.7", 1, 100)
    free[1]["cost"] = {}
    assert rows([proposed(0), free], query) == [(0.0, 0.0)]
    assert rows([proposed(0), free, longer], query) == [(pytest.approx(50), 0.75)]
