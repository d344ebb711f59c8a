"""What goes through JSON and arrays comes back the same, and what is no plain data does not go in."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from autorl.trainers.sb3.plain_data import NotPlainError, Reader, Writer, holds_text


def there_and_back(value: Any) -> Any:
    writer = Writer()
    document = json.loads(json.dumps(writer.write(value), allow_nan=False))
    return Reader(writer.arrays).read(document)


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            3,
            -(2**200),
            0.1,
            -0.0,
            float("inf"),
            "text",
            b"bytes",
            (1, (2,)),
            [1, [2.5]],
        ),
        *({"a": 1, 2: None, (3, 4): [5]}, OrderedDict(b=1, a=2), deque([1, 2], maxlen=2), deque()),
        *(np.float32(0.1), np.int64(3), np.bool_(True)),
        *([0.1] * 40, list(range(40)), [2**63] * 40, [True] * 40, [1, 2.0] * 20),
    ],
)
def test_values_come_back_with_their_types(value: Any) -> None:
    read = there_and_back(value)
    assert read == value
    assert repr(read) == repr(value)
    assert type(read) is type(value)


def test_nan_comes_back() -> None:
    assert np.isnan(there_and_back(float("nan")))


@pytest.mark.parametrize(
    "array",
    [
        *(
            np.arange(6.0).reshape(2, 3),
            np.zeros((0, 3)),
            np.array(2, np.uint8),
            np.array([b"S", b"F"]),
        ),
        *(
            np.asfortranarray(np.arange(6).reshape(2, 3)),
            np.arange(24).reshape(2, 3, 4).transpose(0, 2, 1),
        ),
        np.arange(10)[::2],
    ],
)
def test_arrays_come_back_to_the_bit(array: np.ndarray[Any, Any]) -> None:
    read = there_and_back(array)
    assert (read.shape, read.dtype, read.tobytes()) == (array.shape, array.dtype, array.tobytes())


def test_the_order_of_axes_in_memory_comes_back() -> None:
    """A convolution rounds by it."""
    array = np.zeros((2, 5, 4, 3), np.uint8).transpose(0, 3, 1, 2)
    assert there_and_back(array).strides == array.strides
    tensor = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert there_and_back(tensor).stride() == tensor.stride()


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_tensors_come_back_to_the_bit(kind: Any) -> None:
    tensor = torch.tensor([[0.0, 1.5], [-2.0, 1e3]]).to(kind)
    read = there_and_back(tensor)
    assert read.dtype is kind
    assert torch.equal(read, tensor)


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_generators_go_on_alike(kind: str) -> None:
    generator = np.random.Generator(getattr(np.random, kind)(5))
    generator.random(3)
    read = there_and_back(generator)
    assert read.random(4).tolist() == generator.random(4).tolist()


def test_what_was_one_object_is_one_again() -> None:
    shared, generator = np.zeros(2), np.random.default_rng(1)
    read = there_and_back({"a": shared, "b": [shared, generator], "c": generator})
    assert read["a"] is read["b"][0]
    assert read["c"] is read["b"][1]
    circle: list[Any] = []
    circle.append(circle)
    read = there_and_back(circle)
    assert read[0] is read


class _Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        len,
        _Text("x"),
        np.array([object()]),
        [lambda: 0],
        1j,
        np.ma.masked_array([1]),
    ],
)
def test_what_is_no_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        Writer().write(value)


@pytest.mark.parametrize(
    "document",
    [
        *(
            {},
            {"unknown": 1},
            {"array": "a7"},
            {"again": 3},
            {"again": -1},
            {"generator": "os", "state": {"map": []}},
        ),
        {"generator": "PCG64", "state": {"map": []}},
    ],
)
def test_what_is_no_document_is_an_error(document: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Reader({}).read(document)


@pytest.mark.parametrize("value", ["x", b"x", ["x"], {"a": ("x",)}, np.array(["x"])])
def test_text_is_found_and_can_be_refused(value: Any) -> None:
    writer = Writer()
    document = writer.write(value)
    assert holds_text(value)
    with pytest.raises(ValueError, match="text is not accepted"):
        Reader(writer.arrays, text=False).read(document)
    assert not holds_text({"key": 1.0})
