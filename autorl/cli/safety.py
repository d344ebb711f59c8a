"""The command backup, and the check of `autorl doctor DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, print_answer, say
from autorl.core.plain_text import counted
from autorl.study.folder.safety import backup as copy_study
from autorl.study.folder.safety import verify as verdict_on


def verify(folder: Path, *, as_json: bool) -> bool:
    """Print whether a study's folder is whole, and return it."""
    verdict = verdict_on(folder)
    lines = [
        f"{folder}: {'whole' if verdict.whole else 'damaged'}",
        f"log: {counted(verdict.events, 'whole event')}, chained from the first; "
        f"{counted(verdict.checkpoints, 'checkpoint')}",
        *(f"damaged: {problem}" for problem in verdict.problems),
        *(f"note: {note}" for note in verdict.notes),
        *filter(None, [verdict.advice]),
    ]
    document = {"folder": str(folder), "whole": verdict.whole, **vars(verdict)}
    print_answer("\n".join(lines), document, as_json=as_json)
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
    for note in () if as_json else made.notes:
        say(f"note: {note}", err=True)
    parts = [counted(getattr(made, f"{part}s"), part) for part in ("event", "checkpoint", "log")]
    document = {"folder": str(target), **vars(made)}
    print_answer(f"{target}: {', '.join(parts)}", document, as_json=as_json)
