"""One segment in several processes, its ranks, joined as torchrun joins them.

The segment's process is the launcher: it starts the ranks, passes on what rank 0 reports, and ends
all of them with the first that fails.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import distributed

from autorl.core.os_processes import (
    ProcessLostError,
    die_with_parent,
    ended_from_outside,
    exit_text,
    without_main,
)
from autorl.core.types import Outcome, Report, Segment
from autorl.statistics.evaluation import PEAK_MEMORY

Train: TypeAlias = Callable[[Segment, str, Callable[[Report], None]], Outcome]
_HOST = "127.0.0.1"
_LOOK_SECONDS = 0.5  # a process that a rank has forked may hold its pipe open
_PATIENCE = 1.0  # seconds: a rank that is killed closes its connections before it has ended
# an evaluation on rank 0 may take hours, and the launcher ends who waits for a rank that is gone
_TIMEOUT = timedelta(days=7)


def train(
    segment: Segment, folder: str, report: Callable[[Report], None], train_here: Train, count: int
) -> Outcome:
    """Train a segment in several processes.

    Args:
        segment: to be trained.
        folder: that TRL may write to.
        report: receives what rank 0 reports.
        train_here: what each does, given the segment, the folder and what hears it.
        count: of processes.

    Raises:
        ProcessLostError: a signal from outside has ended one.
        RuntimeError: one ended otherwise, without an outcome.
        Exception: the first that one of them raised.
    """
    context = multiprocessing.get_context("spawn")
    # it listens before a rank starts, at a port that the system chooses: none clashes
    tcp: Any = distributed
    store = tcp.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    ranks: dict[Connection, SpawnProcess] = {}
    try:
        for rank in range(count):
            reader, writer = context.Pipe(duplex=False)
            arguments = (writer, rank, count, store.port, (train_here, segment, folder))
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
    unread = set(ranks)
    first = next(iter(ranks))
    errors: list[tuple[float, BaseException]] = []
    seen: list[int] = []
    until = math.inf
    while time.monotonic() < until:
        ready = wait(unread, _LOOK_SECONDS)
        for reader in unread.intersection(ready):
            try:
                message = reader.recv()
            except EOFError:
                unread.remove(reader)
                continue
            if isinstance(message, Outcome):
                return message
            if isinstance(message, Report):
                report(message)
            else:
                errors.append(message)
        codes = [process.exitcode or 0 for process in ranks.values()]
        if until == math.inf and (errors or any(codes) or first not in unread):
            # a rank raises where another is gone, whose end or error may be seen after that
            seen = codes
            until = time.monotonic() + _PATIENCE
    lost = next(filter(ended_from_outside, codes), 0)
    code = lost or next(filter(None, seen if errors else codes), 0)
    if code:
        message = f"rank {codes.index(code)} of {len(ranks)} ended with {exit_text(code)}"
        raise ProcessLostError(message) if lost else RuntimeError(message)
    if errors:
        raise min(errors, key=itemgetter(0))[1]
    raise RuntimeError("rank 0 ended without an outcome")


def _rank(
    messages: Connection, rank: int, count: int, port: int, of: tuple[Train, Segment, str]
) -> None:
    """Train a segment as one of several processes."""
    die_with_parent()
    train_here, segment, folder = of
    variables = {
        **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count},
        **{"MASTER_ADDR": _HOST, "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True},
        "OMP_NUM_THREADS": max(1, int(segment.resources.cpu) // count),
    }
    os.environ.update({name: str(value) for name, value in variables.items()})
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        cuda = segment.trainer.kwargs.get("device") == "cuda"
        if cuda:
            torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        distributed.init_process_group(backend, timeout=_TIMEOUT)
        outcome = train_here(segment, folder, messages.send if rank == 0 else lambda report: None)
        if cuda:
            peak = torch.cuda.max_memory_allocated() / 2**20
            outcome = replace(outcome, cost={PEAK_MEMORY: peak, **outcome.cost})
        if rank == 0:
            messages.send(outcome)
        distributed.destroy_process_group()
    except BaseException as error:  # noqa: BLE001 - any is the segment's, raised by the launcher
        traceback.print_exc()
        said = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - of a class of the user's that cannot be pickled
            said = RuntimeError(f"{type(error).__name__}: {error}")
        messages.send((time.monotonic(), said))
