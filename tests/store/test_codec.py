"""Value types to JSON and back, bit for bit."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorl.store import codec
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
)

numbers = st.floats(allow_nan=False)
values = st.lists(numbers, max_size=3).map(tuple)
metas = st.dictionaries(
    st.text(max_size=3),
    numbers | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    max_size=3,
)


def through(body):
    return codec.loads(codec.dumps(body))


@given(
    st.dictionaries(
        st.text(max_size=4), numbers | st.integers() | st.text(max_size=4) | st.booleans()
    ),
    metas,
)
def test_proposed(config, meta):
    event = Proposed(7, Proposal(Config(config), 100, 3, "a", "explore lr", FrozenMap(meta)))
    assert codec.read_proposed(through(codec.proposed_body(event))) == event


@given(values, values, values, st.booleans())
def test_scored(score, spread, constraints, resumable):
    event = Scored(3, score, spread, 4, 100, constraints, resumable, score)
    again = codec.read_scored(through(codec.scored_body(event)))
    assert again == event
    assert [math.copysign(1, value) for value in again.values] == [
        math.copysign(1, value) for value in score
    ]


@given(values, st.sampled_from([status for status in Status if status.failed]), st.text())
def test_failed(penalty, kind, message):
    event = Failed(3, kind, penalty, message)
    assert codec.read_failed(through(codec.failed_body(event))) == event


@given(st.sampled_from(Status), st.dictionaries(st.text(max_size=3), numbers, max_size=3))
def test_outcome(status, metrics):
    outcome = Outcome(
        "3.1", status, 64, (Report("3.1", 50, metrics), Report("3.1", 64, metrics)), {"wall_seconds": 0.1},
        Checkpoint("3.1", "checkpoints/3.1"), {"lr": 1e-3, "net": (64, 64)}, ("a note",), "a message",
    )  # fmt: skip
    assert codec.read_outcome(through(codec.outcome_body(outcome))) == outcome


def test_an_outcome_without_a_checkpoint():
    outcome = Outcome("3.1", Status.LOST, 0)
    assert codec.read_outcome(through(codec.outcome_body(outcome))) == outcome


def test_numpy_scalars_of_careless_trainers_are_stored_as_numbers():
    body = {
        "a": np.float32(0.5),
        "b": np.int64(3),
        "c": [np.bool_(True)],
        "d": FrozenMap(e=np.float64(0.1)),
    }
    assert through(body) == {"a": 0.5, "b": 3, "c": (True,), "d": {"e": 0.1}}


def test_text_is_canonical():
    assert (
        codec.dumps({"b": 1, "a": {"d": (1, 2), "c": None}}) == '{"a":{"c":null,"d":[1,2]},"b":1}'
    )
    assert json.loads(codec.dumps({"x": math.inf}))["x"] == math.inf


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, b"bytes"])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(TypeError, match="cannot be stored"):
        codec.dumps({"x": value})
