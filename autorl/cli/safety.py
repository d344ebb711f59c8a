"""The command backup, and the check of `autorl doctor DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, print_json, say
from autorl.core.plain_text import counted
from autorl.study.folder.backup import backup as copy_study
from autorl.study.folder.verify import verify as verdict_on


def verify(folder: Path, *, as_json: bool) -> bool:
    """Print whether a study's folder is whole, and return it."""
    verdict = verdict_on(folder)
    if as_json:
        print_json({"folder": str(folder), "whole": verdict.whole, **vars(verdict)})
    else:
        lines = [
            f"{folder}: {'whole' if verdict.whole else 'damaged'}",
            f"log: {counted(verdict.events, 'whole event')}, chained from the first; "
            f"{counted(verdict.checkpoints, 'checkpoint')}",
            *(f"damaged: {problem}" for problem in verdict.problems),
            *(f"note: {note}" for note in verdict.notes),
            *filter(None, [verdict.advice]),
        ]
        say("\n".join(lines))
    return verdict.whole


def backup(
    folder: Folder,
    target: Annotated[Path, typer.Argument(metavar="TO")],
    until: Annotated[int | None, typer.Option(min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a study, running or not, to a new folder.

    The log of this moment, the checkpoints it names, and the logs of segments that have ended. A
    study whose log is damaged is copied up to its last whole event with --until, which `autorl
    doctor DIR` names.

    Options:
        target: The copy; must not exist.
        until: Only the first N events, tables derived anew: of a damaged study.
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
