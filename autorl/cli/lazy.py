"""Commands that are imported when they run, not when they are listed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Source(NamedTuple):
    """The place of a command and its line in a list.

    Attributes:
        target: `module:function`, or `module:app` for a group of commands.
        summary: the first paragraph of its docstring.
    """

    target: str
    summary: str


class LazyCommand(TyperCommand):
    """Stand-in for a command in a list: making its context imports it."""

    def __init__(self, name: str, source: Source) -> None:
        super().__init__(name, help=source.summary)
        self._target = source.target

    def make_context(
        self, info_name: str | None, args: list[str], *others: Any, **more: Any
    ) -> Any:
        """Make the context of the command itself, which is then what runs."""
        return load(self.name, self._target).make_context(info_name, args, *others, **more)


class LazyGroup(TyperGroup):
    """Group whose commands come from `table`, in its order."""

    table: ClassVar[Mapping[str, Source]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, source in self.table.items():
            # Listed in this order: typer keeps it, where click sorts by name.
            self.add_command(LazyCommand(name, source), name)


def load(name: str | None, target: str) -> Any:
    """Import `module:function` and make it the command `name`.

    `module:app` is a group, which keeps its own commands.
    """
    module, _, attribute = target.partition(":")
    # Imported here and nowhere before: what one command needs takes a second to import.
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, typer.Typer):
        # typer makes commands of apps alone: an app with one function is that command.
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name)(command)
        command = app
    return typer.main.get_command(command)
