"""The command group `autorl landscape`: its commands, and their places."""

from __future__ import annotations

import typer

from autorl.cli.lazy import group
from autorl.cli.options import say

COMMANDS = {
    "list": "autorl.cli.landscape_query:list_all",
    "info": "autorl.cli.landscape_query:info",
    "query": "autorl.cli.landscape_query:query",
    "best": "autorl.cli.landscape_query:best",
    "curve": "autorl.cli.landscape_query:curve",
    "top": "autorl.cli.landscape_query:top",
    "validate": "autorl.cli.landscape_files:validate",
    "import": "autorl.cli.landscape_files:import_files",
    "merge": "autorl.cli.landscape_files:merge",
    "delete": "autorl.cli.landscape_files:delete",
    "export": "autorl.cli.landscape_files:export",
    "build": "autorl.cli.landscape_build:build",
    "importance": "autorl.cli.landscape_analysis:importance",
    "subset": "autorl.cli.landscape_analysis:subset",
    "analyse": "autorl.cli.landscape_analysis:analyse",
    "plot": "autorl.cli.landscape_analysis:plot",
}
app = group(COMMANDS)


@app.callback(invoke_without_command=True)
def start(ctx: typer.Context) -> None:
    """Landscape data sets: query, build, import, validate.

    A landscape holds every run of many configurations.
    """
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
