"""The application: its commands, and the exit codes of errors.

0 done · 1 the study ended without a usable result · 2 bad input · 130 interrupted · 143 ended by
SIGTERM · 129 ended by SIGHUP. Any other exception is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from autorl import __version__
from autorl.cli.lazy import ALONE, LazyGroup
from autorl.cli.options import say
from autorl.core import signals
from autorl.core.plain_text import printable, shortened, shown
from autorl.core.types import InputError, StudyError

# Faults of a given path are not here: too long, a loop of links, no folder, a folder, not
# allowed, read-only.
# A file that is missing or there already is a defect of ours; all else the disk or the path says.
_DEFECTS = {errno.ENOENT, errno.EEXIST, errno.EBADF, errno.EINVAL}
_LONGEST_WORD = 200  # characters; a path may have so many, a word of ours has not
# Typer brings its own copy of click in some versions and the package in others.
_USAGE_ERROR: type[typer.BadParameter] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def _of(module: str, *names: str) -> dict[str, str]:
    """Name the functions of a module that are called as their commands."""
    return {name: f"autorl.cli.{module}:{name}" for name in names}


LANDSCAPE = {
    "list": "autorl.cli.landscape_query:list_all",
    **_of("landscape_query", "info", "query", "best", "curve", "top"),
    **_of("landscape_files", "validate"),
    "import": "autorl.cli.landscape_files:import_files",
    **_of("landscape_files", "merge", "delete", "export", "upload", "download"),
    **_of("landscape_build", "build"),
    **_of("landscape_analysis", "importance", "subset", "analyse", "plot"),
}
PRIOR = {"list": "autorl.cli.prior:list_all", **_of("prior", "show", "build", "use", "suggest")}
LIST = _of("catalog", "trainers", "optimizers", "spaces")
OF_LANDSCAPES = """Landscape data sets: query, build, import, validate.

A landscape holds every run of many configurations.
"""
SECTIONS: dict[str, dict[str, Any]] = {
    "A study": {
        **_of("run", "tune", "resume"),
        "watch": "autorl.cli.watch:watch",
        "best": "autorl.cli.best:best",
        "export": "autorl.cli.export:export",
        "report": "autorl.cli.report:report",
    },
    "An edit": _of("judge", "judge", "ledger", "noise"),
    "More": {
        "play": "autorl.cli.play:play",
        "test": "autorl.cli.held_out:on_test_seeds",
        "compare": "autorl.cli.compare:compare",
        "forecast": "autorl.cli.forecast:forecast",
        "benchmark": "autorl.cli.benchmark:benchmark",
        **_of("card", "card", "verify"),
        "mcp": "autorl.cli.mcp:mcp",
        "backup": "autorl.cli.safety:backup",
        "list": ("The trainers, optimizers and search spaces there are.", LIST),
        "schema": "autorl.cli.schema:schema",
        "doctor": "autorl.cli.checkup:doctor",
        "landscape": (OF_LANDSCAPES, LANDSCAPE),
        "prior": ("Priors: what landscapes of an algorithm say, in a file.", PRIOR),
    },
}


class Commands(LazyGroup):
    """The commands in the order of a study's life."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(SECTIONS, **attributes)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and say which signal has ended it.

        Click makes one exception of all of them.
        """
        try:
            with signals.ending():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            return _complain(signals.reason(error), signals.exit_code(error))

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command, and exit or return the exit code.

        Like its base, it exits unless `standalone_mode=False`.
        """
        standalone = options.pop("standalone_mode", True)
        try:
            # Standalone, click would print errors in its own words and exit by itself.
            code = super().main(*args, **(options | {"standalone_mode": False}))
        except InputError as error:
            code = _complain(str(error), 2)
        except StudyError as error:
            code = _complain(str(error), 1)
        except (KeyboardInterrupt, typer.Abort) as error:
            # Click takes any end of file for the user's; theirs come without a cause.
            if isinstance(error.__cause__, EOFError):
                raise error.__cause__ from None
            code = _complain(signals.reason(error), signals.exit_code(error))
        except OSError as error:
            if error.filename is None or error.errno in _DEFECTS:
                raise
            code = _complain(f"{shown(os.fsdecode(error.filename))}: {error.strerror}", 2)
        except _USAGE_ERROR as error:
            context: typer.Context | None = getattr(error, "ctx", None)
            where = "" if context is None else f" (see `{context.command_path} --help`)"
            code = _complain(f"{_usage(error)}{where}", 2)
        # `typer.Exit` and a signal come back as a code, a command that just ends as None.
        code = code if isinstance(code, int) else 0
        if standalone:
            sys.exit(code)
        return code


def _usage(error: Any) -> str:
    """Name an option, what its value should be, and what it is."""
    problems = getattr(error.__cause__, "errors", None)
    # Typer checks values by pydantic, whose words are for programmers.
    if problems is None or error.param is None:
        return str(error.format_message())
    first = problems()[0]
    words = first["msg"].removeprefix("Input ").partition(", unable to parse")[0]
    plain = words.replace("a valid number", "a number").replace("a valid integer", "a whole number")
    return f"{error.param.opts[0]}: {plain}, got {shown(first['input'])}"


def _complain(message: str, code: int) -> int:
    """Print an error as one line and return the exit code.

    A message may quote a stranger's text.
    """
    # A line feed of theirs would begin a line that looks like ours. Our own words are never cut.
    words = [shortened(word, _LONGEST_WORD) for word in message.split()]
    line = printable("autorl: " + " ".join(words), keep_lines=False)
    with suppress(OSError):  # the terminal is gone: that is what SIGHUP says
        say(line, err=True)
    return code


app = typer.Typer(
    name="autorl",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: with markup typer imports rich to print it.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def start(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Tune reinforcement-learning and RLHF training:
    cheaply, honestly on held-out seeds, and keep every run.

    A study is a folder: it can be killed at any moment, looked at while it runs, resumed and
    extended.
    """
    if version:
        say(f"autorl {__version__}")


def main() -> None:
    """Run the command line."""
    ALONE.append(True)
    app(prog_name="autorl")
