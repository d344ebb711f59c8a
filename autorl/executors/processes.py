"""Runs each segment in a process of its own.

The processes are forked from a server that has imported the heavy libraries once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from autorl.core.os_processes import ProcessLostError
from autorl.core.signals import held
from autorl.core.types import InputError, Outcome, Report, Segment, Status
from autorl.executors.children import adopt, exit_code, kill_group, start_connected
from autorl.executors.devices import (
    Allocator,
    Capacity,
    Placement,
    shortage,
    thread_count,
    variables,
)
from autorl.executors.queued import Limits, QueuedExecutor
from autorl.executors.stopped import MESSAGE
from autorl.executors.worker import Load, ended_worker, failure, run_segment
from autorl.store.log_files import CappedLog

_CHUNK = 2**16  # bytes, what a pipe holds
# Seconds: a process in a session of its own may hold the pipe longer than its segment lives.
_PATIENCE = 1.0


@dataclass
class _Running:
    segment: Segment
    process: BaseProcess
    connection: Connection
    placement: Placement
    output: threading.Thread | None
    begun: float = field(default_factory=time.monotonic)
    outcome: Outcome | None = None


class Processes(QueuedExecutor):
    """Runs up to `slots` segments at once, one to a process.

    A process dies with its group.

    Args:
        load: top-level function that builds a trainer from its spec in the child.
        slots: how many segments run at once.
        preload: modules the fork server imports once.
        limits: wall-clock seconds and resident memory of a segment (with its children).
        capacity: of this machine, of which segments have what they need.
    """

    def __init__(
        self,
        load: Load,
        slots: int,
        *,
        preload: Sequence[str] = (),
        limits: Limits | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        self._capacity = capacity or Capacity()
        self._allocator = Allocator(self._capacity)
        super().__init__(load, slots, preload=preload, limits=limits)
        self._running: list[_Running] = []

    def cancel(self, segment: Segment) -> None:
        self._drop_waiting(segment)
        for running in [entry for entry in self._running if entry.segment.key == segment.key]:
            self._end(running)

    def close(self) -> None:
        self._waiting.clear()
        for running in list(self._running):
            self._end(running)

    def _busy(self) -> bool:
        return bool(self._running)

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            chosen = self._allocator.next(segment.resources for segment in self._waiting)
            if chosen is None:
                lacking = shortage(self._capacity, self._waiting[0].resources)
                if lacking is not None:
                    raise InputError(lacking[1], key=f"resources.{lacking[0]}")
                return
            position, placement = chosen
            segment = self._waiting[position]
            del self._waiting[position]
            # A signal between a start and its entry left a process that nobody ended: the session
            # waited for it at its exit, for ever.
            with held():
                started = self._start(segment, placement)
            if not started:
                return

    def _start(self, segment: Segment, placement: Placement) -> bool:
        """Start the process of a segment, and say whether there is one."""
        environment = variables(placement, self._capacity)
        printed, prints = self._context.Pipe(duplex=False)
        arguments = (prints, self._load, segment, environment)
        try:
            process, connection = start_connected(self._context, _child, arguments, duplex=False)
        except ProcessLostError as error:
            printed.close()
            self._allocator.release(placement)
            self._not_started.append(failure(segment, Status.LOST, str(error), 0.0))
            return False
        finally:
            prints.close()
        output = None if segment.log is None else start_output(printed, segment.log)
        self._running.append(_Running(segment, process, connection, placement, output))
        return True

    def _collect(self, timeout: float) -> list[Report | Outcome]:
        results: list[Report | Outcome] = []
        ends = {running.process.sentinel for running in self._running}
        connections = [running.connection for running in self._running]
        ready = wait([*connections, *ends], timeout) if self._running else []
        now = time.monotonic()
        stopped = self._stopped.among([running.process.pid or 0 for running in self._running], now)
        for running in list(self._running):
            ended = running.process.sentinel in ready
            if ended or running.connection in ready:
                results.extend(self._read(running, ended=ended))
            if running in self._running and running.process.pid in stopped:
                self._end(running)
                results.append(failure(running.segment, Status.LOST, MESSAGE, now - running.begun))
            if running in self._running:
                seconds = time.monotonic() - running.begun
                if (late := self._over_limit(seconds, running.process)) is not None:
                    self._end(running)
                    results.append(failure(running.segment, *late, seconds))
        return results

    def _read(self, running: _Running, *, ended: bool) -> list[Report | Outcome]:
        """Receive everything a child has sent.

        A child that has ended, or whose pipe is at its end, without an outcome is gone. A process
        that the child has forked may hold the connection open.
        """
        results: list[Report | Outcome] = []
        try:
            while running.connection.poll():
                message = running.connection.recv()
                if isinstance(message, Outcome):
                    results.append(message)
                    self._end(running)
                    break
                results.append(message)
        except (EOFError, OSError):
            ended = True
        if ended and running in self._running:
            kind, message = ended_worker(exit_code(running.process))
            seconds = time.monotonic() - running.begun
            self._end(running)
            results.append(failure(running.segment, kind, message, seconds))
        return results

    def _end(self, running: _Running) -> None:
        self._running.remove(running)
        kill_group(running.process)
        self._allocator.release(running.placement)
        running.connection.close()
        if running.output is not None:
            running.output.join(_PATIENCE)


def _child(
    connection: Connection,
    prints: Connection,
    load: Load,
    segment: Segment,
    environment: dict[str, str],
) -> None:
    adopt(environment, prints, segment.log, threads=thread_count(segment.resources))
    connection.send(run_segment(load, segment, connection.send))
    connection.close()


def start_output(reader: Connection, log: str) -> threading.Thread:
    """Empty a pipe into a log until nobody has its other end.

    A worker prints through a pipe, not straight into a file: a trainer and its processes can print
    faster than the driver can look at the size. A full pipe stops the process that prints, and a
    pipe whose reader dies with the driver kills it.
    """
    thread = threading.Thread(target=_empty, args=(reader, Path(log)), daemon=True)
    thread.start()
    return thread


def _empty(reader: Connection, path: Path) -> None:
    log: CappedLog | None = None
    with reader:
        try:
            log = CappedLog(path)
            while chunk := os.read(reader.fileno(), _CHUNK):
                log.write(chunk)
        except (FileNotFoundError, FileExistsError):
            # The study's folder is removed while it runs: the driver ends with a line of its own.
            _drain(reader)
        except OSError as error:
            # A full disk, most likely: the worker must be able to go on printing.
            sys.stderr.write(f"autorl: {path} cannot be written ({error.strerror})\n")
            _drain(reader)
        finally:
            if log is not None:
                with suppress(OSError):
                    log.close()


def _drain(reader: Connection) -> None:
    while os.read(reader.fileno(), _CHUNK):
        pass
