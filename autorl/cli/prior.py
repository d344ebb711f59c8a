"""The command group `autorl prior`: its commands, and their places."""

from __future__ import annotations

import typer

from autorl.cli.lazy import group
from autorl.cli.options import say

COMMANDS = {
    "list": "autorl.cli.prior_files:list_all",
    "show": "autorl.cli.prior_files:show",
    "build": "autorl.cli.prior_files:build",
    "use": "autorl.cli.prior_use:use",
    "suggest": "autorl.cli.prior_files:suggest",
}
app = group(COMMANDS)


@app.callback(invoke_without_command=True)
def start(ctx: typer.Context) -> None:
    """Priors: what landscapes of an algorithm say, in a file."""
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
