"""Runs commands that cannot outlive the segment they work for.

Nor can what they start.
"""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from autorl.core.os_processes import die_with_parent, end_marked

# An environment variable by which all that a command starts is known, in any session.
MARK = "AUTORL_COMMAND"


class Command(NamedTuple):
    """A running command, and the thread that ends what it leaves behind."""

    process: subprocess.Popen[str]
    watch: threading.Thread


def start(arguments: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Command:
    """Start a command in `folder`, its output to be read.

    On Linux what it has started ends when it does.

    A process that it leaves behind would hold its output open, and whoever reads that would wait
    for it.

    Raises:
        FileNotFoundError: there is no such program.
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env={**variables, MARK: mark},
        # A script that asks for input fails at once: nobody is there to answer.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A byte that is no UTF-8 must not end the reading.
        errors="replace",
        preexec_fn=die_with_parent,
    )

    def end_what_it_leaves() -> None:
        process.wait()
        end_marked(MARK, mark)

    watch = threading.Thread(target=end_what_it_leaves, daemon=True)
    watch.start()
    return Command(process, watch)


@contextmanager
def stop(command: Command) -> Iterator[None]:
    """Kill a command if the block is left before it has ended.

    Waits until what it has started is gone.
    """
    try:
        yield
    finally:
        if command.process.poll() is None:
            command.process.kill()
        # Nothing holds the output open then: the copying thread comes to its end.
        command.watch.join()
