"""The door through which a study's database is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Query: TypeAlias = Callable[..., list[tuple[Any, ...]]]
"""Rows of a read-only SQL statement and its parameters, as `Store.query` answers."""
