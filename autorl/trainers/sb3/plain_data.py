"""Plain data as JSON and arrays: reading it back runs nothing.

Plain are numbers, text, bytes, None, lists, tuples, deques, mappings, NumPy arrays, scalars and
generators, and torch tensors; classes derived from them are not. What is reached twice while
writing is one object again when it is read.

    writer = Writer()
    document = writer.write({"a": np.zeros(3), "b": (1, 2.5)})      # for `json.dumps`
    Reader(writer.arrays).read(document)                            # arrays: for `np.savez`
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_LONG = 32  # items from which on a list of numbers is stored as an array
_TEXT_KINDS = "SU"  # NumPy's kinds of text
_MAPPINGS = {dict: "map", OrderedDict: "ordered"}


class NotPlainError(TypeError):
    """Raised for a value that is not plain data."""


class Writer:
    """Turns plain values into JSON documents and named arrays.

    Documents of one writer are read in the order they were written in.

    Args:
        prefix: what the names of its arrays begin with.

    Attributes:
        arrays: what the documents refer to, by name.
        seen: number of every object that can be reached twice, by its `id`.
    """

    def __init__(self, prefix: str = "a") -> None:
        self.prefix = prefix
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.seen: dict[int, int] = {}
        self._alive: list[Any] = []  # an `id` is unique among living objects only

    def write(self, value: Any) -> Any:
        """Return the document of a value.

        Raises:
            NotPlainError: it is not plain data.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            # JSON has no NaN and no infinity.
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic):
            return {"scalar": self._store(np.asarray(value))}
        if kind is bytes:
            return {"bytes": self._store(np.frombuffer(value, np.uint8))}
        if kind is tuple:
            return {"tuple": [self.write(item) for item in value]}
        return self._write_object(value)

    def has_views(self) -> bool:
        """Tell whether two of the arrays share memory.

        They would be two arrays when they are read.
        """
        pairs = itertools.combinations(self.arrays.values(), 2)
        return any(np.may_share_memory(first, second) for first, second in pairs)

    def _write_object(self, value: Any) -> Any:
        """Return the document of a value that has an identity."""
        kind = type(value)
        # By identity: two generators in the same state are still two.
        if id(value) in self.seen:
            return {"again": self.seen[id(value)]}
        self.seen[id(value)] = len(self.seen)
        self._alive.append(value)
        if kind is np.ndarray:
            return self._write_array("array", value)
        if kind is list:
            numbers = self._write_numbers(value)
            return [self.write(item) for item in value] if numbers is None else numbers
        if kind is deque:
            return {"deque": [self.write(item) for item in value], "maxlen": value.maxlen}
        if kind in _MAPPINGS:
            return {
                _MAPPINGS[kind]: [
                    [self.write(key), self.write(item)] for key, item in value.items()
                ]
            }
        if _is_tensor(value):
            return self._write_tensor(value.detach().cpu())
        if kind is np.random.Generator and type(value.bit_generator).__name__ in _GENERATORS:
            name = type(value.bit_generator).__name__
            return {"generator": name, "state": self.write(value.bit_generator.state)}
        raise NotPlainError(f"{kind.__module__}.{kind.__qualname__} is not plain data")

    def _write_numbers(self, values: list[Any]) -> Any:
        """Return the document of a long list of numbers, as one array.

        The numbers are floats, or integers; None for other lists.
        """
        # `True` is of another type than 1, and must come back as it was.
        kinds = set(map(type, values)) if len(values) >= _LONG else set()
        if kinds == {float}:
            return {"numbers": self._store(np.array(values, np.float64))}
        # Larger ones stay JSON, whose integers have no bound.
        if kinds == {int} and min(values) >= -(2**63) and max(values) < 2**63:
            return {"numbers": self._store(np.array(values, np.int64))}
        return None

    def _write_tensor(self, value: torch.Tensor) -> Any:
        # NumPy has no such type; a float32 holds its values exactly.
        if str(value.dtype) == "torch.bfloat16":
            return self._write_array("bfloat16", value.float().numpy())
        return self._write_array("tensor", value.numpy())

    def _write_array(self, tag: str, value: NDArray[np.generic]) -> Any:
        """Return the document of an array.

        It has the order of its axes in memory: torch rounds by that order in convolutions.
        """
        axes = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
        in_memory = value.transpose(axes)
        if value.flags.c_contiguous or not in_memory.flags.c_contiguous:
            return {tag: self._store(value)}
        return {tag: self._store(in_memory), "axes": axes}

    def _store(self, array: NDArray[np.generic]) -> str:
        # NumPy could only pickle them.
        if array.dtype.hasobject:
            raise NotPlainError("an array of objects is not plain data")
        name = f"{self.prefix}{len(self.arrays)}"
        self.arrays[name] = array
        return name


class Reader:
    """Turns documents of a `Writer` back into values.

    Args:
        arrays: the arrays they refer to.
        text: whether strings and bytes are accepted as values; they always are as keys.
    """

    def __init__(self, arrays: Mapping[str, NDArray[np.generic]], *, text: bool = True) -> None:
        self._arrays = arrays
        self._text = text
        self._objects: list[Any] = []

    def read(self, document: object) -> Any:
        """Return the value of a document.

        Raises:
            ValueError: it is not one, or refers to an array that is not there.
        """
        if document is None or isinstance(document, bool | int | float):
            return document
        if isinstance(document, str):
            return self._checked_text(document)
        if isinstance(document, list):
            return self._fill(list[Any](), document)
        if not isinstance(document, dict) or not document:
            raise ValueError(f"expected plain data, got {type(document).__name__}")
        tag, content = next(iter(document.items()))
        match tag:
            case "float":
                return float(content)
            case "tuple":
                return tuple(self.read(item) for item in content)
            case "scalar":
                return self._array(content)[()]
            case "bytes":
                return self._checked_text(self._array(content).tobytes())
            case "again":
                return self._objects[_index(content, len(self._objects))]
        return self._read_object(tag, content, document)

    def _read_object(self, tag: str, content: Any, document: Mapping[str, Any]) -> Any:
        match tag:
            case "array":
                return self._remember(self._ordered_array(document, content))
            case "tensor":
                return self._remember(_tensor(self._ordered_array(document, content)).clone())
            case "bfloat16":
                return self._remember(_tensor(self._ordered_array(document, content)).bfloat16())
            case "numbers":
                # `tolist` gives back Python's own numbers, of the same type.
                return self._remember(self._array(content).tolist())
            case "deque":
                return self._fill(deque[Any](maxlen=document["maxlen"]), content)
            case "map":
                return self._fill_mapping(dict[Any, Any](), content)
            case "ordered":
                return self._fill_mapping(OrderedDict[Any, Any](), content)
            case "generator" if content in _GENERATORS:
                generator = self._remember(np.random.Generator(getattr(np.random, content)()))
                generator.bit_generator.state = self._with_text().read(document["state"])
                return generator
        raise ValueError(f"unknown kind of data {tag!r}")

    def _remember(self, value: object) -> Any:
        self._objects.append(value)
        return value

    def _fill(self, sequence: MutableSequence[object], items: Iterable[object]) -> Any:
        # Before its items, which may refer to it.
        self._remember(sequence)
        for item in items:
            sequence.append(self.read(item))
        return sequence

    def _fill_mapping(
        self, mapping: MutableMapping[object, object], items: Iterable[Sequence[object]]
    ) -> Any:
        # Before its items, which may refer to it.
        self._remember(mapping)
        for key, value in items:
            mapping[key if isinstance(key, str) else self.read(key)] = self.read(value)
        return mapping

    def _ordered_array(self, document: Mapping[str, Any], name: str) -> np.ndarray[Any, Any]:
        array = self._array(name)
        return array.transpose(np.argsort(document["axes"])) if "axes" in document else array

    def _array(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._arrays:
            raise ValueError(f"array {name} is missing")
        array = self._arrays[name]
        if array.dtype.kind in _TEXT_KINDS:
            self._checked_text(array)
        return array

    def _checked_text(self, text: object) -> Any:
        if not self._text:
            raise ValueError("text is not accepted here")
        return text

    def _with_text(self) -> Reader:
        """Make a reader of the same objects that accepts text.

        A generator's state names its kind.
        """
        reader = Reader(self._arrays)
        reader._objects = self._objects
        return reader


def holds_text(value: object) -> bool:
    """Tell whether a value is, or contains, a string or bytes.

    Keys do not count.
    """
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in _TEXT_KINDS
    elif not isinstance(value, list | tuple | deque):
        return isinstance(value, str | bytes)
    if not set(map(type, value)) - {float, int, bool}:  # the many rewards of a monitor
        return False
    return any(holds_text(item) for item in value)


def _is_tensor(value: object) -> bool:
    # Who has a tensor has imported torch: the compiled trainers do without it.
    library = sys.modules.get("torch")
    return library is not None and isinstance(value, library.Tensor)


def _tensor(array: NDArray[np.generic]) -> torch.Tensor:
    import torch

    return torch.from_numpy(array)


def _index(number: object, length: int) -> int:
    if not isinstance(number, int) or not 0 <= number < length:
        raise ValueError(f"refers to object {number!r} of {length}")
    return number
