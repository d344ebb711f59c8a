"""One segment in several processes, its ranks, joined as torchrun joins them.

The segment's process is the launcher: it starts the ranks, passes on what rank 0 reports, and ends
all of them with the first that fails.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeAlias

import torch
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from autorl.core.os_processes import (
    ProcessLostError,
    die_with_parent,
    ended_from_outside,
    exit_text,
    without_main,
)
from autorl.core.types import Outcome, Report, Segment
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.store.checkpoints import scratch

Train: TypeAlias = Callable[[Segment, str, Callable[[Report], None]], Outcome]
_HOST = "127.0.0.1"
_LOOK_SECONDS = 0.5  # a process that a rank has forked may hold its pipe open
_PATIENCE = 1.0  # seconds: a rank that is killed closes its connections before it has ended
# an evaluation on rank 0 may take hours, and the launcher ends who waits for a rank that is gone
_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class Together:
    """Processes that train a segment.

    Attributes:
        count: of them.
        cuda: whether each has a GPU.
        train: what each does, given the segment, a folder of all and what hears its reports.
    """

    count: int
    cuda: bool
    train: Train


def train(together: Together, segment: Segment, report: Callable[[Report], None]) -> Outcome:
    """Train a segment in several processes.

    Raises:
        ProcessLostError: a signal from outside has ended one.
        RuntimeError: one ended otherwise, without an outcome.
        Exception: the first that one of them raised.
    """
    context = multiprocessing.get_context("spawn")
    # it listens before a rank starts, at a port that the system chooses: none clashes
    store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    ranks: dict[Connection, SpawnProcess] = {}
    try:
        with scratch(segment) as folder:
            for rank in range(together.count):
                reader, writer = context.Pipe(duplex=False)
                arguments = (writer, rank, store.port, together, segment, str(folder))
                process = context.Process(target=_rank, args=arguments)
                with without_main():
                    process.start()
                writer.close()
                ranks[reader] = process
            return _outcome(ranks, report)
    finally:
        for reader, process in ranks.items():
            process.kill()
            process.join()
            reader.close()


def _outcome(ranks: dict[Connection, SpawnProcess], report: Callable[[Report], None]) -> Outcome:
    """Pass on what rank 0 reports, and return its outcome."""
    processes = list(ranks.values())
    unread = list(ranks)
    while True:
        ready = wait(unread, _LOOK_SECONDS)
        _check(processes)
        for reader in unread.copy():
            if reader not in ready:
                continue
            try:
                message = reader.recv()
            except EOFError:
                unread.remove(reader)
                if ranks[reader] is processes[0]:
                    _check(processes, RuntimeError("rank 0 ended without an outcome"))
                continue
            if isinstance(message, Outcome):
                return message
            if isinstance(message, BaseException):
                _check(processes, message)
            report(message)


def _check(ranks: Sequence[SpawnProcess], error: BaseException | None = None) -> None:
    """Raise why the ranks are to end, if they are.

    A rank that raises because another is gone does so before or after that one's end is seen.
    """
    seen = [process.exitcode for process in ranks]
    if error is None and not any(seen):
        return
    time.sleep(_PATIENCE)
    codes = [process.exitcode or 0 for process in ranks]
    lost = next(filter(ended_from_outside, codes), None)
    code = lost or next(filter(None, seen), None)
    if code is None:
        assert error is not None
        raise error
    message = f"rank {codes.index(code)} of {len(ranks)} ended with {exit_text(code)}"
    raise ProcessLostError(message) if lost else RuntimeError(message)


def _rank(
    messages: Connection, rank: int, port: int, together: Together, segment: Segment, folder: str
) -> None:
    """Train the segment as one of several processes."""
    die_with_parent()
    count = together.count
    variables = {
        **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count},
        **{"MASTER_ADDR": _HOST, "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True},
        "OMP_NUM_THREADS": max(1, int(segment.resources.cpu) // count),
    }
    os.environ.update({name: str(value) for name, value in variables.items()})
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        if together.cuda:
            torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl" if together.cuda else "gloo"
        distributed.init_process_group(backend, timeout=_TIMEOUT)
        outcome = together.train(segment, folder, messages.send if rank == 0 else _unheard)
        if together.cuda:
            peak = torch.cuda.max_memory_allocated() / 2**20
            outcome = replace(outcome, cost={PEAK_MEMORY: peak, **outcome.cost})
        if rank == 0:
            messages.send(outcome)
        distributed.destroy_process_group()
    except BaseException as error:  # noqa: BLE001 - any is the segment's, raised by the launcher
        traceback.print_exc()
        try:
            messages.send(error)
        except (pickle.PicklingError, TypeError, AttributeError):
            messages.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _unheard(report: Report) -> None:
    """Rank 0 reports for all."""
