"""What happens around one segment wherever it runs: load the trainer, train, turn what goes wrong into an outcome."""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from autorl.forks import ends_forked_children, refuse_forked
from autorl.plain_text import encodable
from autorl.types import InputError, Outcome, Report, Segment, Status, Trainer, TrainerSpec

Load = Callable[[TrainerSpec], Trainer]
NO_SPACE = "no space left for a checkpoint"

# Variables that cap the threads of BLAS, OpenMP and numexpr; set before the libraries are imported.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def from_folder(load: Load, folder: str | None, spec: TrainerSpec) -> Trainer:
    """`load(spec)`, with the user's modules in `folder` importable (after everything installed)."""
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    return load(spec)


def run_segment(load: Load, segment: Segment, report: Callable[[Report], None], *, in_caller: bool = False) -> Outcome:
    """Train one segment. What the trainer raises becomes an outcome with its kind; the traceback goes to the log.

    Args:
        load: builds the trainer.
        segment: to be trained.
        report: receives its evaluations.
        in_caller: whether this is the process of the driver, where Ctrl-C is the user's and passes through.
    """
    begun, owner = time.monotonic(), os.getpid()

    def report_here(point: Report) -> None:
        refuse_forked(owner)
        report(point)

    try:
        with ends_forked_children():
            return load(segment.trainer).train(segment, report_here)
    except BaseException as error:  # any error of user code is an outcome with its reason, SystemExit too
        if in_caller and isinstance(error, KeyboardInterrupt):
            raise
        return _outcome_of(segment, error, begun)


def _outcome_of(segment: Segment, error: BaseException, begun: float) -> Outcome:
    """What a trainer raised, as an outcome."""
    if isinstance(error, MemoryError):
        return _failure(segment, Status.OUT_OF_MEMORY, "MemoryError", begun)
    if isinstance(error, FloatingPointError):
        return _failure(segment, Status.DIVERGED, _text(error), begun)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _failure(segment, Status.LOST, f"{NO_SPACE}: {_text(error)}", begun)
    return _failure(segment, Status.CRASH, _one_line(error), begun)


def failure(segment: Segment, kind: Status, message: str, seconds: float) -> Outcome:
    """The outcome of a segment that ended without a result of its own."""
    return Outcome(segment.id, kind, reached=segment.start, cost={"wall_seconds": seconds}, message=message)


def log_text(segment: Segment, text: str) -> None:
    """Append to the segment's log; to standard error when it has none."""
    if segment.log is None:
        sys.stderr.write(encodable(text))
        return
    path = Path(segment.log)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:  # a full disk, most likely: what is logged is the reason, and must still become an outcome
        sys.stderr.write(encodable(f"{text}{path}: {error}\n"))


def _failure(segment: Segment, kind: Status, message: str, begun: float) -> Outcome:
    log_text(segment, traceback.format_exc())  # within the `except` of `run_segment`
    return failure(segment, kind, message, time.monotonic() - begun)


def _text(error: BaseException) -> str:
    """The message of an error, whatever its class makes of `str`."""
    try:
        return encodable(str(error))
    except Exception as failed:  # noqa: BLE001 - user code again
        return f"a message that cannot be read ({type(failed).__name__})"


def _one_line(error: BaseException) -> str:
    text = _text(error).strip().splitlines()
    if isinstance(error, InputError):
        return _text(error)
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
