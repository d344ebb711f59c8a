"""Runs one segment, wherever that is.

The trainer is loaded and trains, and what goes wrong is turned into an outcome.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autorl.core.forks import ends_forked_children, refuse_forked
from autorl.core.os_processes import ProcessLostError, ended_from_outside, exit_text
from autorl.core.plain_text import encodable
from autorl.core.types import (
    CheckpointError,
    FrozenMap,
    InputError,
    NotLoggedError,
    Outcome,
    Report,
    Segment,
    Status,
    StorageError,
    TrainerSpec,
)
from autorl.executors.remote_checkpoints import at_hand, uploaded
from autorl.store.cache import DamagedError
from autorl.store.checkpoints import NOT_THERE, damage, disk_errors, file_hashes, is_below, reading
from autorl.store.log_files import open_log
from autorl.trainers.contract import Trainer

Load = Callable[[TrainerSpec], Trainer]
NO_STORAGE = "the storage failed"

# Variables that cap the threads of BLAS, OpenMP and numexpr; set before the libraries are imported.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def from_folder(load: Load, folder: str | None, spec: TrainerSpec) -> Trainer:
    """Load a trainer with the user's modules in `folder` importable.

    Installed packages come before them.
    """
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    return load(spec)


def run_segment(
    load: Load, segment: Segment, report: Callable[[Report], None], *, in_caller: bool = False
) -> Outcome:
    """Train one segment.

    An exception of the trainer becomes an outcome with its kind; the traceback goes to the log.
    Reports and the outcome carry the fence of the segment, which trainers know nothing of.

    Args:
        load: builds the trainer.
        segment: to be trained.
        report: receives its evaluations.
        in_caller: whether this is the process of the driver, where Ctrl-C is the user's and passes
            through.
    """
    begun = time.monotonic()
    owner = os.getpid()  # a child that the trainer forks must not report as if it were this one

    def report_here(point: Report) -> None:
        refuse_forked(owner)
        report(dataclasses.replace(point, segment=segment.id, fence=segment.fence))

    try:
        with at_hand(segment) as local:
            parent = local.parent
            # Compared just before it is read: a segment waits for hours in which files may change.
            # A checkpoint from a storage was compared when it was fetched.
            if parent is not None and parent is segment.parent:
                difference = damage(Path(parent.path), parent.files)
                if difference is not None:
                    return _damaged(segment, difference, begun)
            with ends_forked_children():
                outcome = load(segment.trainer).train(local, report_here)
            # From here on checkpoints fail, not the trainer.
            with reading(Path(local.folder)):
                return _stamped(local, uploaded(outcome, local))
    except BaseException as error:
        # Any error of user code is an outcome with its reason, SystemExit too.
        if in_caller and isinstance(error, KeyboardInterrupt):
            raise
        return _outcome_of(segment, error, begun)


def _outcome_of(segment: Segment, error: BaseException, begun: float) -> Outcome:
    """Turn a trainer's exception into an outcome."""
    text = _text(error)
    facts: dict[str, object] = {}
    kind = Status.LOST
    if isinstance(error, MemoryError):
        kind = Status.OUT_OF_MEMORY
        text = "MemoryError"
    elif isinstance(error, FloatingPointError):
        kind = Status.DIVERGED
    elif isinstance(error, DamagedError):
        return _damaged(segment, text, begun)
    elif isinstance(error, StorageError) or _is_of_our_disk(segment, error):
        text = f"{NO_STORAGE}: {text}"
        facts["preempted"] = True
    elif isinstance(error, CheckpointError) and segment.parent is not None:
        facts["damage"] = text  # a caller's own checkpoint has no hashes to compare
    elif not isinstance(error, ProcessLostError):
        kind = Status.CRASH
        if isinstance(error, NotLoggedError):
            facts["unlogged"] = True
        if not isinstance(error, InputError):  # whose message is one line that says it all
            text = ": ".join([type(error).__name__, *text.strip().splitlines()[:1]])
    log_text(segment, traceback.format_exc())  # within the `except` of `run_segment`
    return failure(segment, kind, text, time.monotonic() - begun, **facts)


def _is_of_our_disk(segment: Segment, error: BaseException) -> bool:
    """Tell whether an error names a file of our checkpoints."""
    parent = segment.parent.path if segment.parent else ""
    places = [Path(place) for place in (segment.folder, segment.scratch, parent) if place]
    return any(
        any(is_below(cause.filename, place) for place in places)
        for cause in disk_errors(error)
        if not isinstance(cause, NOT_THERE)
    )


def _damaged(segment: Segment, difference: str, begun: float) -> Outcome:
    """Return the outcome of a segment whose parent checkpoint is damaged.

    The status is `LOST`, never a failure of the configuration, which has nothing to do with it.
    """
    assert segment.parent is not None
    message = f"checkpoint {segment.parent.segment} is damaged: {difference}"
    seconds = time.monotonic() - begun
    return failure(segment, Status.LOST, message, seconds, damage=difference)


def _stamped(segment: Segment, outcome: Outcome) -> Outcome:
    """Add whose outcome it is, and the hashes of what it saved.

    They are taken here, so that the driver reads no large file.
    """
    saved = outcome.checkpoint
    if saved is not None and saved.path == segment.folder:  # not a reference of the trainer's own
        saved = dataclasses.replace(saved, files=FrozenMap(file_hashes(Path(saved.path))))
    return dataclasses.replace(outcome, segment=segment.id, checkpoint=saved, fence=segment.fence)


def failure(segment: Segment, kind: Status, message: str, seconds: float, **facts: Any) -> Outcome:
    """Make the outcome of a failed segment, with `facts` as further fields."""
    return Outcome(
        segment.id,
        kind,
        reached=segment.start,
        cost={"wall_seconds": seconds},
        message=message,
        fence=segment.fence,
        **facts,
    )


def ended_worker(code: int | None, segments: int = 1) -> tuple[Status, str]:
    """Judge how the segments of a worker process that is gone ended.

    A fault of its own (SIGSEGV, SIGABRT, ...) is a crash of the segment that ran there; of several
    nobody knows whose. An end from outside, or without a known reason, is a lost worker.

    Args:
        code: its exit code, negative = a signal; None where nobody saw it.
        segments: how many it ran.

    Returns:
        The status, and a message for people.
    """
    text = "an exit code that nobody saw, as the fork server is gone"
    if code is not None:
        text = exit_text(code)
    own_fault = code is not None and code < 0 and not ended_from_outside(code)
    status = Status.CRASH if own_fault and segments == 1 else Status.LOST
    return status, f"worker process ended with {text}"


def log_text(segment: Segment, text: str) -> None:
    """Append to the segment's log, or to standard error without one."""
    if segment.log is None:
        sys.stderr.write(encodable(text))
        return
    try:
        with open_log(segment.log) as write:
            write(text)
    # A full disk, most likely: the outcome tells the reason as well.
    except OSError as error:
        sys.stderr.write(encodable(f"autorl: {segment.log} cannot be written ({error.strerror})\n"))


def _text(error: BaseException) -> str:
    """Return the message of an error, whatever its class makes of `str`."""
    try:
        return encodable(str(error))
    except Exception as failed:  # noqa: BLE001 - user code again
        return f"a message that cannot be read ({type(failed).__name__})"
