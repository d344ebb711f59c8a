"""Classes of other packages: registered as entry points, or named as `module:Class`.

Trainers and optimizers come in the same way: by an entry point of a group of their own, whose name
then stands in study files like those of this package, or without registration, by module and class.
Both are programs: naming one imports it (docs/security.md).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from autorl.core.plain_text import did_you_mean, shown
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
            folder: of the study file, where its module is looked for first.

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
            with module_path(folder) if folder else nullcontext():
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
def module_path(*folders: str) -> Iterator[None]:
    """Put `folders` first in the module search path for a block.

    The default is the working folder.
    """
    added = [str(Path(folder).resolve()) for folder in folders or (".",)]
    # In front: a module of the user may have the name of an installed one.
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            # The user's module may have taken it out.
            if folder in sys.path:
                sys.path.remove(folder)


def named_class(
    target: str, key: str, *, base: str = "", example: str = "", folders: Sequence[str] = ()
) -> Any:
    """Import the class that `module:Class` names.

    Args:
        target: its name.
        key: of the study file, for errors.
        base: the class it has to subclass, as `module:Class`; empty: any.
        example: of a name, for errors.
        folders: where modules are looked for first; none: in the working folder.

    Raises:
        InputError: it is no such name, cannot be imported, or is no such class.
    """
    module, _, name = target.partition(":")
    if not (module and name):
        such_as = f", such as {example}" if example else ""
        raise InputError(f"expected module:Class{such_as}, got {shown(target)}", key=key)
    try:
        with module_path(*folders):
            imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"module of {target!r} cannot be imported: {error}", key=key) from error
    except Exception as error:
        message = f"{target!r} cannot be imported: {type(error).__name__}: {error}"
        raise InputError(message, key=key) from error
    if not hasattr(imported, name):
        raise InputError(f"{module!r} has no {name!r}{did_you_mean(name, vars(imported))}", key=key)
    named = getattr(imported, name)
    if base:
        of_base, _, base_name = base.partition(":")
        expected = getattr(importlib.import_module(of_base), base_name)
        if not (isinstance(named, type) and issubclass(named, expected)):
            raise InputError(f"{target!r} is no subclass of {of_base}.{base_name}", key=key)
    return named
