"""Refuses studies whose own Python modules would be taken for each other's.

Studies that run together are checked in one process, which has one module of a name. Two folders
with a `train.py` each would give both studies the one that is imported first.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path

from autorl.spec import Spec
from autorl.trainers.options import search_folders
from autorl.types import InputError

PATH_AT_START = tuple(sys.path)
"""Where Python looked for modules before any folder of a study was added."""


def module_folders(spec: Spec) -> frozenset[str]:
    """List the folders that a study imports modules of its own from.

    Folders without any Python module are left out.
    """
    named = [spec.path] if spec.path else []
    for trainer in spec.trainers.values():
        named += search_folders(trainer.kwargs)
    folders = {Path(folder).resolve() for folder in named}
    return frozenset(str(folder) for folder in folders if _modules(folder))


def refuse_equal_modules(folders: Mapping[str, frozenset[str]]) -> None:
    """Check that no study could be given a module of another.

    Call it whenever the code of a study was imported.

    Args:
        folders: `module_folders` of each study, by the name that errors call it.

    Raises:
        InputError: two studies have different modules of one name in different folders, and
            something was imported from one of these folders.
    """
    for (first, of_first), (second, of_second) in itertools.combinations(folders.items(), 2):
        pairs = itertools.product(sorted(of_first - of_second), sorted(of_second - of_first))
        for left, right in pairs:
            name = _clash(Path(left), Path(right))
            if name is not None:
                raise InputError(
                    f"{first} and {second} have different Python modules called {name!r}, in "
                    f"{left} and {right}: rename one, or run the studies one after another"
                )


def _clash(left: Path, right: Path) -> str | None:
    """Name a module that differs between two folders.

    None where there is none, or nothing was imported from either.
    """
    in_left = _modules(left)
    in_right = _modules(right)
    if not _imported(in_left) and not _imported(in_right):
        return None
    for name in sorted(in_left.keys() & in_right.keys()):
        if _content(in_left[name]) != _content(in_right[name]):
            return name
    return None


def _modules(folder: Path) -> dict[str, Path]:
    """List the modules of a folder by name.

    They are files, or the folders of packages.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # it is gone: nothing can be imported
        return {}
    modules = {path.stem: path for path in entries if path.suffix == ".py"}
    packages = {path.parent.name: path.parent for path in folder.glob("*/__init__.py")}
    return {name: path for name, path in {**modules, **packages}.items() if name.isidentifier()}


def _imported(modules: Mapping[str, Path]) -> bool:
    """Say whether one of the modules is in memory."""
    for name, path in modules.items():
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).resolve() in (path, path / "__init__.py"):
            return True
    return False


def _content(module: Path) -> list[tuple[str, bytes]]:
    files = [module] if module.is_file() else sorted(module.rglob("*.py"))
    return [(str(file.relative_to(module.parent)), file.read_bytes()) for file in files]
