"""Commands that keep a study safe: verify, backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, print_json, say
from autorl.plain_text import counted
from autorl.study.backup import backup as copy_study
from autorl.study.verify import verify as verdict_on


def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Check that a study's folder is whole.

    The log with its chain of hashes, the study file, the tables against the events, the checkpoints
    against the log, and what no event names. Says what can be saved. Works while the study runs;
    writes nothing. Exit code 1 if damaged.
    """
    verdict = verdict_on(folder)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "whole": verdict.whole,
                "events": verdict.events,
                "hashed_from": verdict.first_hashed,
                "checkpoints": verdict.checkpoints,
                "problems": verdict.problems,
                "notes": verdict.notes,
                "advice": verdict.advice,
            }
        )
    else:
        condition = "whole" if verdict.whole else "damaged"
        hashed = f"chained from event {verdict.first_hashed} on"
        if verdict.first_hashed is None:
            hashed = "none of them hashed (an earlier version)"
        elif verdict.first_hashed == 1:
            hashed = "chained from the first"
        say(f"{folder}: {condition}")
        say(
            f"log: {counted(verdict.events, 'whole event')}, {hashed}; "
            f"{counted(verdict.checkpoints, 'checkpoint')}"
        )
        for problem in verdict.problems:
            say(f"damaged: {problem}")
        for note in verdict.notes:
            say(f"note: {note}")
        if verdict.advice:
            say(verdict.advice)
    if not verdict.whole:
        raise typer.Exit(1)


def backup(
    folder: Folder,
    target: Annotated[
        Path, typer.Argument(metavar="TO", help="The copy; must not exist.", show_default=False)
    ],
    until: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only the first N events, tables derived anew: of a damaged study."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a study, running or not, to a new folder.

    The log of this moment, the checkpoints it names, and the logs of segments that have ended. A
    study whose log is damaged is copied up to its last whole event with --until, which `autorl
    verify` names.
    """
    made = copy_study(folder, target, until)
    if as_json:
        print_json({"folder": str(target), **vars(made)})
        return
    for note in made.notes:
        say(f"note: {note}", err=True)
    say(
        f"{target}: {counted(made.events, 'event')}, {counted(made.checkpoints, 'checkpoint')}, "
        f"{counted(made.logs, 'log')}"
    )
