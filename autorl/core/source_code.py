"""A hash of code that comments, docstrings and layout do not change."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path


def code_hash(files: Iterable[Path], root: Path) -> str:
    """Hash Python files, without comments and docstrings, by their path below `root`."""
    total = hashlib.sha256()
    for path in sorted(files):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                and ast.get_docstring(node) is not None
            ):
                node.body = node.body[1:] or [ast.Pass()]
        total.update(
            path.relative_to(root).as_posix().encode() + b"\0" + ast.unparse(tree).encode()
        )
    return total.hexdigest()
