"""Differences between the ways to plain Python, and reasons for each."""

import hashlib
import json

import numpy as np
import pytest

from autorl.core.plain_values import json_value, plain, python_scalar
from autorl.core.types import FrozenMap, InputError, freeze
from autorl.space.canonical import canonical_json, frozen, jsonable, sha256
from autorl.store import codec

NESTED = {"net_arch": (64, (32,)), "kwargs": {"decay": [0.5, None, True]}}


def test_plain_is_the_way_back_from_freeze():
    assert plain(freeze(NESTED)) == {"net_arch": [64, [32]], "kwargs": {"decay": [0.5, None, True]}}
    assert type(plain(FrozenMap(a=1))) is dict


def test_plain_leaves_names_and_numbers_of_numpy_alone():
    """Schedules have steps as names; what JSON refuses is refused where it is written."""
    number = np.float32(0.1)
    assert plain({1000: number}) == {1000: number}
    assert plain({1000: number})[1000] is number


def test_values_of_numpy_have_the_canonical_text_of_python_values():
    numpy_values = {
        "rate": np.float64(0.1),
        "layers": np.array([64, 32]),
        "mixed": np.array([np.float64(0.5), "x"], dtype=object),
        2: np.bool_(True),
    }
    python_values = {"rate": 0.1, "layers": (64, 32), "mixed": [0.5, "x"], "2": True}
    assert frozen(numpy_values) == FrozenMap(python_values)
    assert json.dumps(jsonable(numpy_values)) == json.dumps(jsonable(python_values))
    assert sha256(numpy_values) == sha256(python_values)


def test_canonical_text_is_what_it_always_was():
    """The hash of a search space is taken over this text and stored in studies and landscapes."""
    text = canonical_json({**NESTED, "b": 1e-7})
    assert text == '{"b":1e-07,"kwargs":{"decay":[0.5,null,true]},"net_arch":[64,[32]]}'
    assert sha256({**NESTED, "b": 1e-7}) == hashlib.sha256(text.encode()).hexdigest()


def test_a_number_that_is_not_finite_is_null_for_other_programs_only():
    """Hashes refuse it, the event log keeps it, and JSON output has no word for it."""
    assert json_value((float("nan"), np.float64("inf"), 1)) == [None, None, 1]
    with pytest.raises(InputError, match="not a JSON value"):
        canonical_json(float("nan"))
    assert codec.dumps({"score": float("inf")}) == '{"score":Infinity}'


def test_json_values_are_text_where_json_has_no_type():
    assert json_value({3: {1}, "none": None}) == {"3": "{1}", "none": None}
    with pytest.raises(TypeError, match="cannot be stored"):
        codec.dumps({"value": {1}})


def test_scalars_of_numpy_become_python_numbers():
    assert type(python_scalar(np.float32(0.5))) is float
    assert type(python_scalar(np.int64(3))) is int
    assert python_scalar("text") == "text"
