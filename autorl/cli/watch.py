"""The command watch: the state of a study, once or live."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autorl.cli.options import AsJson, print_json, say
from autorl.core.signals import EndedBySignal
from autorl.core.types import InputError
from autorl.report.live import LiveStudy, Watched, block, screen, watched
from autorl.report.reading import open_view
from autorl.report.status import status_dict, status_text

if TYPE_CHECKING:
    from rich.text import Text

_SLICE = 0.25
"""Seconds between two looks at the keyboard and at the size of the terminal."""
_SHARE = 0.1
"""Of the time, so much at most is spent reading the study: a large one is read less often."""
_LONGEST_PAUSE = 60.0


def watch(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR")],
    once: bool = False,
    web: bool = False,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8420,
    interval: Annotated[float, typer.Option(min=0.1, max=3600.0, metavar="SECONDS")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show where a study stands, once or live.

    Its runs, incumbent, budget, workers, failures and cautions, while it runs, after a kill and
    when it is over. `q` or Ctrl-C leaves; the study goes on. If output is not a terminal, a block
    of text for each change, until no driver works on the study. --json prints once, like --once.
    Writes nothing.

    `--web` shows studies as a web page, also those that begin later. Only this machine can open it,
    unless `--host` says otherwise: then the address printed has a token that every request needs
    ($AUTORL_WEB_TOKEN, else a new one), and what is sent is not encrypted.

    Options:
        folders: Folder of a study; for --web also several, or folders with studies in them.
        once: Print where the study stands, and leave.
        web: Show a web page instead.
        host: Address of the web page.
        port: Port of the web page; 0: a free one.
        interval: Between two looks.
    """
    if not web and len(folders) > 1:
        raise InputError(f"one study at a time, or --web for all; got {len(folders)}", key="DIR")
    if web and (once or as_json):
        raise InputError("a web page is live: leave out --once and --json", key="--web")
    try:
        if web:
            from autorl.cli.web import show_on_the_web  # a server and templates

            show_on_the_web(folders, host, port, interval)
        elif once or as_json:
            with closing(open_view(folders[0])) as view:
                if as_json:
                    print_json(status_dict(view))
                else:
                    say(status_text(view))
        elif sys.stdout.isatty():
            _on_terminal(LiveStudy(folders[0], watched), interval)
        else:
            _as_blocks(LiveStudy(folders[0], watched), interval)
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
