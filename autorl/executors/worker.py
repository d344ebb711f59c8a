"""What happens around one segment wherever it runs: load the trainer, train, turn what goes wrong into an outcome."""

from __future__ import annotations

import errno
import sys
import time
import traceback
from collections.abc import Callable

from autorl.store.log_files import open_log
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


def run_segment(load: Load, segment: Segment, report: Callable[[Report], None]) -> Outcome:
    """Train one segment. What the trainer raises becomes an outcome with its kind; the traceback goes to the log."""
    begun = time.monotonic()
    try:
        return load(segment.trainer).train(segment, report)
    except MemoryError:
        return _failure(segment, Status.OUT_OF_MEMORY, "MemoryError", begun)
    except FloatingPointError as error:
        return _failure(segment, Status.DIVERGED, str(error), begun)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _failure(segment, Status.LOST, f"{NO_SPACE}: {error}", begun)
        return _failure(segment, Status.CRASH, _one_line(error), begun)
    except Exception as error:  # noqa: BLE001 - the boundary: any error of user code is an outcome, never lost
        return _failure(segment, Status.CRASH, _one_line(error), begun)


def failure(segment: Segment, kind: Status, message: str, seconds: float) -> Outcome:
    """The outcome of a segment that ended without a result of its own."""
    return Outcome(segment.id, kind, reached=segment.start, cost={"wall_seconds": seconds}, message=message)


def log_text(segment: Segment, text: str) -> None:
    """Append to the segment's log; to standard error when it has none."""
    if segment.log is None:
        sys.stderr.write(text)
        return
    try:
        with open_log(segment.log) as log:
            log.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:  # a full disk, most likely: what is logged is the reason, and must still become an outcome
        sys.stderr.write(f"{text}{segment.log}: {error}\n")


def _failure(segment: Segment, kind: Status, message: str, begun: float) -> Outcome:
    log_text(segment, traceback.format_exc())
    return failure(segment, kind, message, time.monotonic() - begun)


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    if isinstance(error, InputError):
        return str(error)
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
