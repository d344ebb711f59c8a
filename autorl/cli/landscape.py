"""The command group `autorl landscape`: its commands, and their places."""

from __future__ import annotations

from types import MappingProxyType

import typer

from autorl.cli.lazy import LazyGroup, Source
from autorl.cli.options import say

# Summaries as in `autorl.cli.app`: the commands behind them import pandas and DuckDB.
COMMANDS = MappingProxyType(
    {
        "list": Source(
            "autorl.cli.landscape_query:list_all",
            "The landscapes there are: local ones, and those shipped with the package.",
        ),
        "info": Source(
            "autorl.cli.landscape_query:info",
            "What a landscape is, how it was made, and how its runs ended.",
        ),
        "query": Source(
            "autorl.cli.landscape_query:query",
            "Ask a landscape in SQL (DuckDB's dialect). "
            "A query reads the landscape and nothing else.",
        ),
        "best": Source(
            "autorl.cli.landscape_query:best",
            "The best configuration over the seeds of a role, and what it scores on the others.",
        ),
        "curve": Source(
            "autorl.cli.landscape_query:curve",
            "The learning curves of one configuration, seed by seed.",
        ),
        "top": Source(
            "autorl.cli.landscape_query:top",
            "The best configurations, best first, ranked as `best` does.",
        ),
        "validate": Source(
            "autorl.cli.landscape_files:validate",
            "Check integrity: files, keys, seeds, curves, bounds, copies. "
            "Exit code 1 if a rule is broken.",
        ),
        "import": Source(
            "autorl.cli.landscape_files:import_files",
            "Import data of others: ARLBench, DeepCAVE, HPO-RL-Bench, Optuna, Ray Tune, "
            "or any CSV file.",
        ),
        "merge": Source(
            "autorl.cli.landscape_files:merge",
            "Merge landscapes of one algorithm, environment and space into one.",
        ),
        "delete": Source(
            "autorl.cli.landscape_files:delete",
            "Delete a landscape folder. A study's folder is never deleted, "
            "nor what comes with the package.",
        ),
        "export": Source(
            "autorl.cli.landscape_files:export",
            "Write a landscape for other tools: a flat table, an Optuna study, "
            "or a run folder of DeepCAVE.",
        ),
        "build": Source(
            "autorl.cli.landscape_build:build",
            "Train every configuration of a build file on all its seeds, and write the landscape.",
        ),
        "importance": Source(
            "autorl.cli.landscape_analysis:importance",
            "How much each hyperparameter matters "
            "(random forest over the configurations' mean scores).",
        ),
        "subset": Source(
            "autorl.cli.landscape_analysis:subset",
            "Which few environments represent all of them: ARLBench's method, "
            "and every subset that is nearly as good.",
        ),
        "analyse": Source(
            "autorl.cli.landscape_analysis:analyse",
            "Answer another question about landscapes; `plot` draws the same.",
        ),
        "plot": Source(
            "autorl.cli.landscape_analysis:plot",
            "Draw importance, subset, or any kind of `analyse` (see there) into a file.",
        ),
    }
)


class _Commands(LazyGroup):
    table = COMMANDS


app = typer.Typer(cls=_Commands, add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def start(ctx: typer.Context) -> None:
    """Landscape data sets: every run of many configurations,
    to be queried, replayed, imported and published.
    """
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
