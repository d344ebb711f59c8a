"""Runs one segment, wherever that is.

The trainer is loaded and trains, and what goes wrong is turned into an outcome.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autorl.core.forks import ends_forked_children, refuse_forked
from autorl.core.os_processes import ProcessLostError, ended_from_outside, exit_text
from autorl.core.plain_text import encodable
from autorl.core.shipped import cache_folder
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
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.store.cache import CheckpointCache, DamagedError
from autorl.store.checkpoints import (
    NOT_THERE,
    damage,
    disk_errors,
    file_hashes,
    folder_size,
    is_below,
    reading,
    scratch,
)
from autorl.store.log_files import open_log
from autorl.store.remote import RemoteFolder, is_url
from autorl.trainers.contract import Trainer

Load = Callable[[TrainerSpec], Trainer]
NO_STORAGE = "the storage failed"
_NO_MEMORY = re.compile("out of memory|can't allocate memory|RESOURCE_EXHAUSTED", re.IGNORECASE)

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
        report(replace(point, segment=segment.id, fence=segment.fence))

    try:
        with _at_hand(segment) as local:
            # Compared just before it is read: a segment waits for hours in which files may change.
            # A checkpoint from a storage was compared when it was fetched.
            for source in filter(segment.sources.__contains__, local.sources):
                if (difference := damage(Path(source.path), source.files)) is not None:
                    raise DamagedError(difference, source.segment)
            with ends_forked_children():
                trainer = load(segment.trainer)
                if local.second is not None:
                    trainer.check_mean(segment.config.keys())
                outcome = trainer.train(local, report_here)
            # From here on checkpoints fail, not the trainer.
            with reading(Path(local.folder)):
                return _stamped(local, _uploaded(outcome, local))
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
        return _damaged(segment, error, begun)
    elif isinstance(error, StorageError) or _is_of_our_disk(segment, error):
        text = f"{NO_STORAGE}: {text}"
        facts["preempted"] = True
    elif isinstance(error, CheckpointError) and segment.parent is not None:
        facts["damage"] = text  # a caller's own checkpoint has no hashes to compare
    elif not isinstance(error, ProcessLostError):
        kind = Status.OUT_OF_MEMORY if _is_out_of_memory(error) else Status.CRASH
        if isinstance(error, NotLoggedError):
            facts["unlogged"] = True
        if not isinstance(error, InputError):  # whose message is one line that says it all
            text = ": ".join([type(error).__name__, *text.strip().splitlines()[:1]])
    log_text(segment, traceback.format_exc())  # within the `except` of `run_segment`
    return failure(segment, kind, text, time.monotonic() - begun, **facts)


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is that a library had no memory.

    The error that caused it counts too. torch says so by the class, CUDA's libraries and JAX by the
    text of a RuntimeError.
    """
    named = "OutOfMemoryError" in (kind.__name__ for kind in type(error).__mro__)
    says = isinstance(error, RuntimeError) and _NO_MEMORY.search(_text(error)) is not None
    cause = error.__cause__
    return named or says or (cause is not None and _is_out_of_memory(cause))


def _peak_memory_mb() -> float:
    """Return the most memory this process has had, in MiB.

    It is that of a GPU where torch has used CUDA, else of the largest process of this one and
    those it started.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        count = torch.cuda.device_count()
        return float(max(map(torch.cuda.max_memory_allocated, range(count))) / 2**20)
    of_system = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    largest = max(resource.getrusage(who).ru_maxrss for who in of_system)
    # Bytes on macOS, KiB elsewhere.
    return largest / (2**20 if sys.platform == "darwin" else 2**10)


def _is_of_our_disk(segment: Segment, error: BaseException) -> bool:
    """Tell whether an error names a file of our checkpoints."""
    read = [source.path for source in segment.sources]
    places = [Path(place) for place in (segment.folder, segment.scratch, *read) if place]
    return any(
        any(is_below(cause.filename, place) for place in places)
        for cause in disk_errors(error)
        if not isinstance(cause, NOT_THERE)
    )


def _damaged(segment: Segment, error: DamagedError, begun: float) -> Outcome:
    """Return the outcome of a segment that begins with a damaged checkpoint.

    The status is `LOST`, never a failure of the configuration, which has nothing to do with it.
    """
    difference, source = error.args
    message = f"checkpoint {source} is damaged: {difference}"
    seconds = time.monotonic() - begun
    return failure(segment, Status.LOST, message, seconds, damage=difference, damaged=source)


def _stamped(segment: Segment, outcome: Outcome) -> Outcome:
    """Add whose outcome it is, its memory, and hashes of its files.

    Hashes are taken here, so that the driver reads no large file.
    """
    saved = outcome.checkpoint
    if saved is not None and saved.path == segment.folder:  # not a reference of the trainer's own
        saved = replace(saved, files=FrozenMap(file_hashes(Path(saved.path))))
    # A script knows what it had of a GPU, which is not this process's.
    reported = outcome.reports[-1].metrics if outcome.reports else {}
    cost = {PEAK_MEMORY: reported.get(PEAK_MEMORY, _peak_memory_mb()), **outcome.cost}
    return replace(outcome, segment=segment.id, checkpoint=saved, fence=segment.fence, cost=cost)


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


# -- checkpoints that lie in a storage -------------------------------------------------------------


@contextmanager
def _at_hand(segment: Segment) -> Iterator[Segment]:
    """Give the segment with folders of this machine while the block runs.

    Checkpoints it begins with come from the read cache, and what is saved is uploaded when the
    training has ended.

    Raises:
        DamagedError: a checkpoint in the storage is not what was saved; says of which segment.
        StorageError: the storage does not answer, or cannot be used here.
    """
    # A reference of the trainer's own may be a URL too: of that no hashes are known.
    remote = [source for source in segment.sources if is_url(source.path) and source.files]
    if not segment.storage and not remote:
        yield segment
        return
    with ExitStack() as held:
        for source in remote:
            storage = _remote_folder(source.path)
            try:
                with _cache_told():
                    folder = held.enter_context(CheckpointCache().reading(source.files, storage))
            except DamagedError as error:
                raise DamagedError(str(error), source.segment) from error
            local = replace(source, path=str(folder))
            name = "second" if source is segment.second else "parent"
            segment = replace(segment, **{name: local})  # type: ignore[arg-type]
        if segment.storage:
            if segment.scratch and not Path(segment.scratch).parent.parent.is_dir():
                # The driver's study is on another machine.
                with _cache_told():
                    place = held.enter_context(CheckpointCache().temporary())
                segment = replace(segment, scratch=str(place))
            folder = held.enter_context(scratch(segment))
            name = segment.storage.rpartition("/")[2]
            segment = replace(segment, folder=str(folder / name))
        yield segment


def _uploaded(outcome: Outcome, local: Segment) -> Outcome:
    """Upload what a segment saved, and name it by its URL.

    `local` is the segment as `_at_hand` gave it. The read cache takes the files over: whoever
    continues on this machine needs no download.

    Raises:
        StorageError: it cannot be uploaded: there is no checkpoint then.
    """
    saved = outcome.checkpoint
    if saved is None or not local.storage:
        return outcome
    # A trainer may name a folder within its own; anything else is a reference of its own.
    if not Path(saved.path).is_relative_to(local.folder):
        return outcome
    files = FrozenMap(_remote_folder(local.storage).upload(Path(saved.path)))
    checkpoint = replace(saved, path=local.storage, files=files, size=folder_size(Path(saved.path)))
    # It is safe in the storage: without a copy here it is fetched from there.
    with suppress(OSError):
        CheckpointCache().adopt(Path(saved.path), files)
    return replace(outcome, checkpoint=checkpoint)


@contextmanager
def _cache_told() -> Iterator[None]:
    """Tell an unusable cache from a failure of the training."""
    try:
        yield
    except (OSError, InputError) as error:
        place = cache_folder("checkpoints")
        raise StorageError(f"the read cache {place} cannot be used ({error})") from error


def _remote_folder(url: str) -> RemoteFolder:
    """Return a folder of the study's storage for a worker.

    Raises:
        StorageError: what it needs is not installed here, which is no fault of a configuration.
    """
    try:
        return RemoteFolder(url)
    except InputError as error:
        raise StorageError(str(error)) from error
