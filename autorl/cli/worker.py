"""The command worker: trains segments of a study that another machine drives."""

from __future__ import annotations

from typing import Annotated

import typer

from autorl.cli.options import Folder, Quiet, Trust, say
from autorl.cli.run import stopped
from autorl.study.worker import make_worker


def worker(
    folder: Folder,
    slots: Annotated[int, typer.Option(min=1, max=10_000, help="Segments trained at once.")] = 1,
    idle_minutes: Annotated[
        float, typer.Option(min=0.0, help="End after so long without a segment to train.")
    ] = 30.0,
    max_segments: Annotated[
        int | None, typer.Option(min=1, help="End after so many segments; default no limit.")
    ] = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Train segments of a study whose folder several machines share.

    For a study file with `executor: {name: folder}`. `autorl tune` or `autorl resume` drives the
    study on one machine; workers, on any machines that see its folder, may begin and end at any
    time, before the driver too. One that is told to end hands back what it has; what one that is
    killed had is trained elsewhere. No worker changes a result. It ends when the study has
    finished, exit code 0.
    """
    made = make_worker(
        folder,
        slots=slots,
        idle_seconds=60.0 * idle_minutes,
        most_segments=max_segments,
        trust=trust,
    )
    if not quiet:
        say(f"autorl: worker {made.name} of {folder}, {slots} at once", err=True)
    try:
        reason = made.run()
    except KeyboardInterrupt as error:
        raise stopped(error, "what it had is trained by others") from None
    if not quiet:
        say(f"autorl: worker {made.name} ends: {reason}; segments: {made.ended}", err=True)
