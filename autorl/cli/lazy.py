"""Commands that are imported when they run, not when they are listed.

A command is a function. Its parameters are arguments and options: those with a default are
options, unless `Annotated` says otherwise. The help of each stands below `Options:` in the
docstring of the function, of its module, or of `autorl.cli.options`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from autorl.cli import options
from autorl.core.garbage import collection_paused
from autorl.core.types import InputError

ALONE: list[bool] = []
"""Not empty in a process that runs one command: what it imports is never looked at for garbage."""
_OPTIONS = re.compile(r"\n\nOptions:\n((?: {4}.*\n?)+)")


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
    """Group whose commands are listed below headings, in their order.

    Attributes:
        sections: heading of a list -> name -> `module:function`, or the help and the commands of a
            group.
    """

    def __init__(self, sections: Mapping[str, Mapping[str, Any]], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.sections = sections
        for name, target in (item for table in sections.values() for item in table.items()):
            # Listed in this order: typer keeps it, where click sorts by name.
            if isinstance(target, str):
                self.add_command(LazyCommand(name, target))
            else:
                text, commands = target
                inner = LazyGroup({"Commands": commands}, name=name, help=text)
                inner.rich_markup_mode = None
                self.add_command(inner)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line, where an empty one asks for help."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of commands below each heading."""
        for heading, names in self.sections.items():
            limit = formatter.width - 6 - max(map(len, names))
            rows = [(name, self.commands[name].get_short_help_str(limit)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


def summary(target: str) -> str:
    """Read the first paragraph of a command's docstring from its source.

    The commands behind a list import NumPy, pandas and DuckDB.
    """
    module, _, function = target.partition(":")
    spec = importlib.util.find_spec(module)
    source = getattr(spec and spec.loader, "get_source", lambda name: None)(module) or ""
    match = re.search(rf'^def {function}\(.*?^    """(.*?)(?:\n\n|""")', source, re.M | re.S)
    return " ".join(match[1].split()) if match else ""


def load(name: str | None, target: str) -> Any:
    """Import `module:function` and make it the command `name`."""
    module, _, function = target.partition(":")
    # Imported here and nowhere before: what one command needs takes a second to import.
    # Imports leave no garbage behind: looking for it takes a tenth of the time of a command.
    with collection_paused():
        command = getattr(importlib.import_module(module), function)
        # Once, in a process of its own: what an earlier command left would never be freed.
        if ALONE and not gc.get_freeze_count():
            gc.freeze()
            # DuckDB's types, frozen at exit, are called leaks in forty lines.
            atexit.register(gc.unfreeze)
    # typer makes commands of apps alone: an app with one function is that command.
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=OnceCommand, help=_OPTIONS.sub("", inspect.getdoc(command) or ""))(
        _declared(command)
    )
    return typer.main.get_command(app)


def _declared(function: Callable[..., None]) -> Callable[..., None]:
    """Declare each parameter of a function to typer, with its help."""
    modules = (options, sys.modules[function.__module__])
    helps = {
        name: text
        for documented in (*modules, function)
        for name, text in _entries(inspect.getdoc(documented) or "")
    }
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *stated = (
            get_args(hints[name]) if get_origin(hints[name]) is Annotated else [hints[name]]
        )
        required = parameter.default is parameter.empty
        about = stated[0] if stated else typer.Argument() if required else typer.Option()
        about.help = about.help or helps[name]
        if isinstance(about, typer.models.ArgumentInfo):
            about.show_default = bool(parameter.default) and not required
        elif kind is bool and not stated:
            about.param_decls = (f"--{name.replace('_', '-')}",)
        function.__annotations__[name] = Annotated[kind, about]
    return function


def _entries(text: str) -> Iterator[list[str]]:
    """Read names and texts below `Options:` in a docstring."""
    listed = _OPTIONS.search(text)
    for entry in re.split(r"^    (?=\w)", listed[1], flags=re.M)[1:] if listed else ():
        yield " ".join(entry.split()).split(": ", 1)
