"""Reward functions of a user, importable while a test runs."""

import sys
from contextlib import contextmanager


@contextmanager
def importable(name, code, folder, monkeypatch):
    """The module `name` with this code, written to `folder`; forgotten at the end."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    try:
        yield
    finally:
        sys.modules.pop(name, None)
