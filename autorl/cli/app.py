"""The application: its commands, and the exit codes of errors.

0 done · 1 the study ended without a usable result · 2 bad input · 130 interrupted · 143 ended by
SIGTERM · 129 ended by SIGHUP. Any other exception is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any

import typer

from autorl import __version__, signals
from autorl.cli.lazy import LazyGroup, Source
from autorl.cli.options import say
from autorl.plain_text import printable, shortened, shown
from autorl.types import InputError, StudyError

_LONGEST_LINE = 300
"""Characters of an error."""
# What is wrong with a path somebody gave: too long, a loop of links, no folder, a folder, not
# allowed, read-only.
_OF_A_PATH = {
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENODEV,
}
# Typer brings its own copy of click in some versions and the package in others.
_USAGE_ERROR: type[typer.BadParameter] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class _StoppedError(Exception):
    """A signal, its cause, as an exception that click passes on."""


# Summaries stand here again, so that a list imports no command: a test compares both.
COMMANDS = MappingProxyType(
    {
        "tune": Source(
            "autorl.cli.run:tune", "Search on tuning seeds, then test on held-out seeds."
        ),
        "resume": Source(
            "autorl.cli.run:resume", "Go on with an interrupted study, or extend one that is over."
        ),
        "worker": Source(
            "autorl.cli.worker:worker",
            "Train segments of a study whose folder several machines share.",
        ),
        "status": Source("autorl.cli.inspect:status", "Where a study stands."),
        "watch": Source("autorl.cli.watch:watch", "Look at a study in the terminal, live."),
        "best": Source("autorl.cli.inspect:best", "The best configurations, to use elsewhere."),
        "test": Source(
            "autorl.cli.run:on_test_seeds", "Train the incumbent so far on held-out seeds."
        ),
        "replay": Source(
            "autorl.cli.replay:replay", "Retrain the incumbent's schedule on the test seeds."
        ),
        "export": Source("autorl.cli.export:export", "Write a trained model for other programs."),
        "report": Source("autorl.cli.report:report", "Write a report: one HTML file."),
        "serve": Source("autorl.cli.serve:serve", "Show studies as a web page, live."),
        "verify": Source("autorl.cli.safety:verify", "Check that a study's folder is whole."),
        "backup": Source(
            "autorl.cli.safety:backup", "Copy a study, running or not, to a new folder."
        ),
        "compare": Source(
            "autorl.cli.compare:compare", "Compare studies or optimizers on held-out seeds."
        ),
        "suggest": Source(
            "autorl.cli.prior_files:suggest",
            "Configurations to try first, by what landscapes say.",
        ),
        "space": Source("autorl.cli.catalog:space", "Check a search space and print it."),
        "trainers": Source("autorl.cli.catalog:trainers", "The trainers and what they train."),
        "optimizers": Source("autorl.cli.catalog:optimizers", "The optimizers and their options."),
        "doctor": Source("autorl.cli.checkup:doctor", "Check this installation."),
        "landscape": Source(
            "autorl.cli.landscape:app",
            "Landscape data sets: query, build, import, validate.",
        ),
        "prior": Source(
            "autorl.cli.prior:app",
            "Priors: what landscapes of an algorithm say, in a file.",
        ),
    }
)


class Commands(LazyGroup):
    """The commands in the order of a study's life."""

    table = COMMANDS

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and tell the signals that end it apart.

        Click makes one exception of all of them.
        """
        try:
            with signals.ending():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _StoppedError from error

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
        except _StoppedError as error:
            code = _complain(signals.reason(error.__cause__), signals.exit_code(error.__cause__))
        except (KeyboardInterrupt, typer.Abort) as error:
            # Click takes any end of file for the user's; theirs come without a cause.
            if isinstance(error.__cause__, EOFError):
                raise error.__cause__ from None
            code = _complain(signals.reason(error), signals.exit_code(error))
        except OSError as error:
            # Not about a path that somebody gave: a defect of ours, which keeps its traceback.
            if error.filename is None or error.errno not in _OF_A_PATH:
                raise
            code = _complain(f"{shown(os.fsdecode(error.filename))}: {error.strerror}", 2)
        except _USAGE_ERROR as error:
            context: typer.Context | None = getattr(error, "ctx", None)
            where = "" if context is None else f" (see `{context.command_path} --help`)"
            code = _complain(f"{error.format_message()}{where}", 2)
        # `typer.Exit` comes back as its code, a command that just ends as None.
        code = code if isinstance(code, int) else 0
        if standalone:
            sys.exit(code)
        return code


def _complain(message: str, code: int) -> int:
    """Print an error as one line, cut, and return the exit code.

    A message may quote what a stranger wrote.
    """
    # A line feed of theirs would begin a line that looks like ours.
    line = printable("autorl: " + " ".join(message.split()), keep_lines=False)
    with suppress(OSError):  # the terminal is gone: that is what SIGHUP says
        say(shortened(line, _LONGEST_LINE), err=True)
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
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Tune reinforcement-learning and RLHF training:
    cheaply, honestly on held-out seeds, and keep every run.

    A study is a folder: it can be killed at any moment, looked at while it runs, resumed and
    extended.
    """
    if version:
        say(f"autorl {__version__}")
    elif ctx.invoked_subcommand is None:
        say(ctx.get_help())


def main() -> None:
    """Run the command line."""
    app(prog_name="autorl")
