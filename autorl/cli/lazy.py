"""Commands that are imported when they run, not when they are listed."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from autorl.core.types import InputError


class LazyCommand(TyperCommand):
    """Stand-in for a command in a list, imported when it runs."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name)
        self._target = target

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first paragraph of the command's docstring, cut to `limit`."""
        self.help = self.help or summary(self._target)
        return super().get_short_help_str(limit)

    def make_context(
        self, info_name: str | None, args: list[str], *others: Any, **more: Any
    ) -> Any:
        """Make the context of the command itself, which then runs."""
        return load(self.name, self._target).make_context(info_name, args, *others, **more)


class OnceCommand(TyperCommand):
    """A command that takes each option once, unless it is a list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line, which names no value twice."""
        *_, named = self.make_parser(ctx).parse_args(list(args))
        for option in named:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and named.count(option) > 1:
                raise InputError(f"{option.opts[0]} is given twice")
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """Group whose commands come from `sections`, in their order.

    Attributes:
        sections: heading of a list of commands -> name -> `module:function`, or `module:app` for a
            group of commands, whose docstring is that of the module's `start`.
    """

    sections: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for commands in self.sections.values():
            for name, target in commands.items():
                # Listed in this order: typer keeps it, where click sorts by name.
                self.add_command(LazyCommand(name, target), name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of commands below each heading."""
        for heading, names in self.sections.items():
            limit = formatter.width - 6 - max(map(len, names))
            rows = [(name, self.commands[name].get_short_help_str(limit)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


def group(commands: Mapping[str, str]) -> typer.Typer:
    """Make an app of the commands of a table."""
    sections = type("Commands", (LazyGroup,), {"sections": {"Commands": commands}})
    return typer.Typer(cls=sections, add_completion=False, rich_markup_mode=None)


def summary(target: str) -> str:
    """Read the first paragraph of a command's docstring from its source.

    The commands behind a list import NumPy, pandas and DuckDB.
    """
    module, _, function = target.partition(":")
    spec = importlib.util.find_spec(module)
    source = getattr(spec and spec.loader, "get_source", lambda name: None)(module) or ""
    name = "start" if function == "app" else function
    match = re.search(rf'^def {name}\(.*?^    """(.*?)(?:\n\n|""")', source, re.M | re.S)
    return " ".join(match[1].split()) if match else ""


def load(name: str | None, target: str) -> Any:
    """Import `module:function` and make it the command `name`.

    `module:app` is a group, which keeps its own commands.
    """
    module, _, attribute = target.partition(":")
    # Imported here and nowhere before: what one command needs takes a second to import.
    # Imports leave no garbage behind: looking for it takes a tenth of the time of a command.
    gc.disable()
    try:
        command = getattr(importlib.import_module(module), attribute)
    finally:
        gc.enable()
    if not isinstance(command, typer.Typer):
        # typer makes commands of apps alone: an app with one function is that command.
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=OnceCommand)(command)
        command = app
    return typer.main.get_command(command)
