"""The value types: frozen, hashable, picklable, and errors of one line."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorl.core.types import AutorlError, Config, FrozenMap, InputError, Outcome, SegmentId, Status

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_frozen_maps_hash_pickle_and_compare_by_value(values):
    one, other = FrozenMap(values), FrozenMap(dict(reversed(values.items())))
    assert one == other
    assert hash(one) == hash(other)
    for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert again == one
        assert type(again) is FrozenMap


def test_a_configuration_cannot_be_changed_by_anyone_who_has_it():
    inner = {"layers": [64, 64], "options": {"a": [1]}}
    config = Config(inner)
    inner["layers"].append(128)
    inner["options"]["a"].append(2)
    assert config["layers"] == (64, 64)
    assert config["options"]["a"] == (1,)
    with pytest.raises(TypeError):
        config["x"] = 1
    with pytest.raises(AttributeError, match="immutable"):
        config.x = 1
    with pytest.raises(AttributeError, match="immutable"):
        config._values = {}
    with pytest.raises(TypeError):
        del config["layers"]


def test_a_configuration_equals_the_mapping_it_is_made_of():
    config = Config({"x": 1.0, "kind": "a"}, y=2)
    assert config == {"x": 1, "kind": "a", "y": 2}
    assert dict(config) == {"x": 1.0, "kind": "a", "y": 2}
    assert len(config) == 3
    assert repr(config) == "Config({'x': 1.0, 'kind': 'a', 'y': 2})"
    assert type(pickle.loads(pickle.dumps(config))) is Config
    assert config in {Config(kind="a", y=2, x=1.0)}


def test_status_says_what_is_scored():
    assert {status for status in Status if not status.failed} == {Status.DONE, Status.STOPPED}
    assert Status("out_of_memory") is Status.OUT_OF_MEMORY
    assert pickle.loads(pickle.dumps(Outcome("0.0", Status.LOST, 0))).status is Status.LOST


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "wrong"),
        ({"file": "a.yaml"}, "a.yaml: wrong"),
        ({"file": "a.yaml", "line": 3}, "a.yaml:3: wrong"),
        ({"line": 3}, "line 3: wrong"),
        ({"key": "seeds.test"}, "seeds.test: wrong"),
        ({"file": "a.yaml", "key": "seeds.test", "line": 3}, "a.yaml:3: seeds.test: wrong"),
    ],
)
def test_an_input_error_is_one_line_that_says_where(where, text):
    error = InputError("wrong", **where)
    assert str(error) == text
    assert isinstance(error, AutorlError)


@pytest.mark.parametrize(("parts", "text"), [((12, 3), "12.3"), ((12, 101, 500), "12.101@500")])
def test_a_segment_is_identified_by_its_parts_and_is_its_text(parts, text):
    segment = SegmentId(*parts)
    assert segment == text
    assert f"{segment} {segment!r}" == f"{text} {text!r}"
    assert {segment: 1}[text] == 1
    pickled = pickle.loads(pickle.dumps(segment))
    for same in (SegmentId.parse(text), pickled, copy.deepcopy(segment)):
        assert same == segment
        assert (same.proposal, same.seed, same.end) == (*parts, None)[:3]


@pytest.mark.parametrize("text", ["", "12", "a.3", "12.", "12.3@x", "12.3.4"])
def test_a_text_that_names_no_segment_is_refused(text):
    with pytest.raises(ValueError, match="invalid literal"):
        SegmentId.parse(text)
