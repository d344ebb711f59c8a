"""The command watch: a study in the terminal, live."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from autorl.cli.options import Folder, say
from autorl.report.live import LiveStudy
from autorl.report.watching import Watched, block, screen, watched
from autorl.signals import EndedBySignal

if TYPE_CHECKING:
    from rich.text import Text

_SLICE = 0.25
"""Seconds between two looks at the keyboard and at the size of the terminal."""
_SHARE = 0.1
"""Of the time, so much at most is spent reading the study: a large one is read less often."""
_LONGEST_PAUSE = 60.0


def watch(
    folder: Folder,
    interval: Annotated[
        float,
        typer.Option(min=0.1, max=3600.0, metavar="SECONDS", help="Between two looks."),
    ] = 2.0,
) -> None:
    """Look at a study in the terminal, live.

    Its runs, incumbent, budget, workers, failures and cautions, while it runs and afterwards. `q`
    or Ctrl-C leaves; the study goes on. Where output is no terminal, a block of text for each
    change, until nobody works on the study. Writes nothing.
    """
    study = LiveStudy(folder, watched)
    try:
        if sys.stdout.isatty():
            _on_terminal(study, interval)
        else:
            _as_blocks(study, interval)
    except EndedBySignal:
        raise
    except KeyboardInterrupt:  # Ctrl-C leaves the watch as `q` does
        return


def _as_blocks(study: LiveStudy[Watched], interval: float) -> None:
    printed = ""
    while True:
        look = study.look()
        text = block(look.value)
        if text != printed:
            say(f"-- {datetime.now().astimezone().isoformat(timespec='seconds')}\n{text}")
            sys.stdout.flush()
            printed = text
        if look.value.over:
            return
        time.sleep(_pause(interval, look.seconds))


def _on_terminal(study: LiveStudy[Watched], interval: float) -> None:
    # Only a terminal has a live view: elsewhere rich is never imported.
    from rich.console import Console
    from rich.live import Live

    look = study.look()  # what is no study is said before the screen is taken
    console = Console(highlight=False)
    with _single_keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            drawn = console.size
            live.update(_drawn(look.value, drawn.width, drawn.height), refresh=True)
            end = time.monotonic() + _pause(interval, look.seconds)
            while time.monotonic() < end and console.size == drawn:
                if _leaves(keys, min(_SLICE, max(0.0, end - time.monotonic()))):
                    return
            look = study.look()


def _drawn(study: Watched, width: int, height: int) -> Text:
    from rich.text import Text

    # Text, no markup: names in a study may look like it.
    drawn = Text(no_wrap=True, overflow="crop", end="")
    lines = screen(study, width, height)
    for index, line in enumerate(lines):
        drawn.append(line.text, style=line.style)
        if index + 1 < len(lines):
            drawn.append("\n")
    return drawn


def _pause(interval: float, reading_seconds: float) -> float:
    """Return the seconds to wait until the next look."""
    return max(interval, min(_LONGEST_PAUSE, reading_seconds / _SHARE))


@contextmanager
def _single_keys() -> Iterator[list[int]]:
    """Let single keys be read from the terminal, without Enter and unseen.

    Gives the descriptor to read from; the list is empty where standard input is no terminal.
    """
    if not sys.stdin.isatty():
        yield []
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield [descriptor]
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _leaves(keys: list[int], seconds: float) -> bool:
    """Wait for a key, and say whether it was `q`."""
    if not keys:
        time.sleep(seconds)
        return False
    readable, _, _ = select.select(keys, [], [], seconds)
    if not readable:
        return False
    pressed = os.read(keys[0], 64)
    if not pressed:  # the terminal is gone: nothing can be pressed any more
        keys.clear()
    return b"q" in pressed.lower()
