"""Finds workers that a signal has stopped and nobody continues.

On Linux; elsewhere a stopped worker is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable

from autorl.core.os_processes import descendants, stat

STOPPED_SECONDS = 10.0  # so long a stopped worker may be continued by who has stopped it
MESSAGE = (
    "a process of the worker was stopped by a signal, "
    f"and not continued for {STOPPED_SECONDS:g} seconds"
)
_LOOK_SECONDS = 1.0
_IDLE = 0.01  # share of a core: what uses less waits for the process that is stopped


class StoppedWorkers:
    """Looks at the processes of workers, at most once a second.

    A worker counts as stopped by its state (`T`), never by the time it takes: a machine that is
    overloaded or suspended, or a long call in C, stops nobody. A process below a worker counts if
    nothing else there is at work: a program may stop one of its own for a while.
    """

    def __init__(self) -> None:
        self._looked: float | None = None
        self._cpu_seconds: dict[int, float] = {}
        self._stopped: dict[int, float] = {}  # seconds at a stretch that were looked at

    def among(self, workers: Iterable[int], now: float) -> set[int]:
        """Return which workers have been stopped for too long.

        Args:
            workers: process ids.
            now: the time in seconds, of a clock that never goes back.
        """
        elapsed = 0.0 if self._looked is None else now - self._looked
        if self._looked is not None and elapsed < _LOOK_SECONDS:
            return set()
        self._looked = now
        cpu_before = self._cpu_seconds
        stopped_before = self._stopped
        self._cpu_seconds = {}
        self._stopped = {}
        for worker in workers:
            states, cpu_seconds = _tree(worker)
            used = cpu_seconds - cpu_before.get(worker, 0.0)
            self._cpu_seconds[worker] = cpu_seconds
            if states[:1] == ["T"] or ("T" in states and used < _IDLE * elapsed):
                # Not the time the driver itself was stopped.
                credited = min(elapsed, 2 * _LOOK_SECONDS) if worker in cpu_before else 0.0
                self._stopped[worker] = stopped_before.get(worker, 0.0) + credited
        return {worker for worker, stretch in self._stopped.items() if stretch >= STOPPED_SECONDS}


def _tree(worker: int) -> tuple[list[str], float]:
    """Return states and CPU time of a worker and all below.

    The worker's own state comes first; the seconds are of all of them together.
    """
    root = stat(worker)
    if root is None:
        return [], 0.0
    below = descendants(worker).values()
    processes = [root, *below]
    return [process.state for process in processes], sum(p.cpu_seconds for p in processes)
