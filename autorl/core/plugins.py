"""Classes of other packages: registered as entry points, or named as `module:Class`.

Trainers and optimizers come in the same way: by an entry point of a group of their own, whose name
then stands in study files like those of this package, or without registration, by module and class.
Both are programs: naming one imports it (docs/security.md).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Generic, TypeVar

from autorl.core.types import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """Finds the classes that other packages bring for one purpose.

    Attributes:
        group: of entry points, such as `autorl.trainers`.
        base: the class that all of them subclass.
        noun: what one is called in an error, with the path of `base` that a user imports.
        key: of the study file, named in errors.
        reserved: whether a name belongs to this package; nobody else can take it.
        flaw: what makes a class unusable, in a phrase after its name; empty where nothing does.
    """

    group: str
    base: type[T]
    noun: tuple[str, str]
    key: str
    reserved: Callable[[str], bool]
    flaw: Callable[[type[T]], str]

    def registered(self) -> dict[str, EntryPoint]:
        """List the entry points of other packages, by name."""
        points = _installed(self.group, tuple(sys.path))
        return {point.name: point for point in points if not self.reserved(point.name)}

    def find(self, name: str, folder: str | None = None) -> type[T] | None:
        """Look up the class of a name.

        Args:
            name: as in a study file.
            folder: of the study file, where its module may lie besides what is installed.

        Returns:
            The class; None if the name is neither registered nor of the form `module:Class`.

        Raises:
            InputError: it cannot be imported, or is not such a class.
        """
        named = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name) is not None
        # A name that says where its class lies is loaded as an entry point would be.
        point = EntryPoint(name, name, self.group) if named else self.registered().get(name)
        return None if point is None else self.load(point, folder)

    def load(self, point: EntryPoint, folder: str | None = None) -> type[T]:
        """Import the class of an entry point.

        Raises:
            InputError: it cannot be imported, or is not such a class.
        """
        try:
            with _importable(folder):
                loaded = point.load()
        except (Exception, SystemExit) as error:  # whatever a module of others does when imported
            message = f"{point.name!r} cannot be imported: {type(error).__name__}: {error}"
            raise InputError(message, key=self.key) from error
        return self._checked(loaded, point.name)

    def _checked(self, loaded: object, name: str) -> type[T]:
        noun, path = self.noun
        if not isinstance(loaded, type) or not issubclass(loaded, self.base):
            message = f"{name!r} is no {noun}: expected a subclass of {path}"
            raise InputError(message, key=self.key)
        if inspect.isabstract(loaded):
            missing = ", ".join(sorted(getattr(loaded, "__abstractmethods__", ())))
            raise InputError(f"{name!r} does not define {missing}", key=self.key)
        if flaw := self.flaw(loaded):
            raise InputError(f"{name!r} {flaw}", key=self.key)
        return loaded


# Reading the metadata of every installed package takes milliseconds, and a study asks what its
# trainer is like again and again: a quarter of the time of our tests went there.
@lru_cache(maxsize=16)
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Look up the entry points of a group, once for each `sys.path`."""
    return entry_points(group=group)


@contextmanager
def _importable(folder: str | None) -> Iterator[None]:
    """Look for modules in `folder`, after everything installed, while the block runs."""
    added = bool(folder) and folder not in sys.path
    if added:
        sys.path.append(str(folder))
    try:
        yield
    finally:
        if added and folder in sys.path:  # the module may have taken it out itself
            sys.path.remove(str(folder))
