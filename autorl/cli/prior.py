"""The command group `autorl prior`: its commands, and their places."""

from __future__ import annotations

from types import MappingProxyType

import typer

from autorl.cli.lazy import LazyGroup, Source
from autorl.cli.options import say

# Summaries as in `autorl.cli.app`: the commands behind them import NumPy and DuckDB.
COMMANDS = MappingProxyType(
    {
        "list": Source(
            "autorl.cli.prior_files:list_all",
            "The prior files below ./priors and in the package.",
        ),
        "show": Source(
            "autorl.cli.prior_files:show",
            "What a prior file is made of: tasks, licences, portfolio, hash.",
        ),
        "build": Source(
            "autorl.cli.prior_files:build",
            "Make a prior file of landscapes and studies of one algorithm.",
        ),
        "use": Source(
            "autorl.cli.prior_use:use",
            "Let a study file begin with a prior.",
        ),
    }
)


class _Commands(LazyGroup):
    table = COMMANDS


app = typer.Typer(cls=_Commands, add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def start(ctx: typer.Context) -> None:
    """Priors: what landscapes of an algorithm say, in a file."""
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
