"""Runs segments as jobs of a Slurm cluster.

`submitit` submits the jobs and reads their states. A job trains a batch of segments side by side
and pickles what they said, for the driver to read. The jobs share a folder with the driver, and
need neither a port nor a server.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any, Literal

import psutil

from autorl.core.plain_text import last_line
from autorl.core.signals import held
from autorl.core.types import (
    AttemptKey,
    FrozenMap,
    Outcome,
    Report,
    Segment,
    SegmentId,
    Status,
    StudyError,
)
from autorl.executors import machine
from autorl.executors.devices import Capacity
from autorl.executors.elsewhere import Code, Work
from autorl.executors.supervisor import ENDS_STOPPED
from autorl.executors.worker import failure

MOST_SEGMENTS = 100
"""Segments that are submitted at once, unless a study file says otherwise."""
_LOOK_SECONDS = 0.5
_VISIBLE_SECONDS = 15.0  # until a network file system shows a result that is there
_LONGEST_REASON = 300  # characters
_UNDER_WAY = (
    *("READY", "PENDING", "CONFIGURING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED"),
    *("COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "UNKNOWN"),
)
_BLAMELESS = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "CANCELLED", "REVOKED")


@dataclass(frozen=True)
class SlurmCluster:
    """Names the place jobs are submitted to, and their options.

    Attributes:
        folder: for the files of the jobs; the driver's machine and the jobs' see it.
        name: `slurm`, or `local` for processes of this machine.
        minutes: that a job may take.
        partition: of the cluster; None = its default.
        options: further ones of sbatch, by name.
    """

    folder: Path
    name: Literal["slurm", "local"] = "slurm"
    minutes: int = 60
    partition: str | None = None
    options: Mapping[str, Any] = field(default_factory=FrozenMap)

    def jobs(self, needs: Mapping[str, float]) -> Any:
        """Make what submits jobs that need so much."""
        submitit = importlib.import_module("submitit")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        jobs = submitit.AutoExecutor(self.folder, cluster=self.name)
        jobs.update_parameters(
            name="autorl",
            timeout_min=self.minutes,
            slurm_partition=self.partition,
            # The study submits what was preempted again, as another attempt.
            slurm_additional_parameters={"no-requeue": True, **self.options},
            **needs,
        )
        return jobs

    def clear(self) -> None:
        """Cancel the jobs of a killed driver and remove their files."""
        submitit = importlib.import_module("submitit")
        for file in self.folder.glob("*_submitted.pkl") if self.name == "slurm" else ():
            job = submitit.SlurmJob(self.folder, file.name.removesuffix("_submitted.pkl"))
            with suppress(OSError):
                job.cancel(check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(eq=False)
class _Job:
    """A submitted job and its segments that have not ended."""

    handle: Any
    segments: dict[AttemptKey, Segment]
    begun: float = field(default_factory=time.monotonic)
    gone: float | None = None  # when it was first seen to have ended without a result


class Slurm:
    """An executor whose workers are jobs.

    Args:
        work: how a job trains.
        cluster: that jobs are submitted to.
        workers: segments submitted at once.
        batch: the most segments of a job.
    """

    def __init__(
        self, work: Work, cluster: SlurmCluster, *, workers: int = MOST_SEGMENTS, batch: int = 1
    ) -> None:
        self.slots = workers
        self._cluster = cluster
        self._local = cluster.name == "local"
        self._work = work
        self._driver = os.getpid() if self._local else None
        self._batch = batch
        self._waiting: deque[Segment] = deque()
        self._running: list[_Job] = []
        self._alone: set[SegmentId] = set()  # which have lost a job that they shared
        cluster.clear()

    def submit(self, segments: Sequence[Segment]) -> None:
        """Take segments on, and submit jobs for them.

        Raises:
            StudyError: the cluster refuses a job.
        """
        self._waiting.extend(segments)
        self._fill()

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened, after at most `timeout` seconds if nothing has."""
        deadline = time.monotonic() + timeout
        while True:
            messages = [message for job in list(self._running) for message in self._take(job)]
            self._fill()
            remaining = deadline - time.monotonic()
            if messages or not self._running or remaining <= 0:
                return messages
            time.sleep(min(_LOOK_SECONDS, remaining))

    def cancel(self, segment: Segment) -> None:
        """Drop an attempt, and cancel a job that has no other."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != segment.key)
        for job in list(self._running):
            if job.segments.pop(segment.key, None) is not None and not job.segments:
                self._cancel(job)

    def close(self) -> None:
        """Cancel all jobs and remove their files.

        Idempotent.
        """
        self._waiting.clear()
        for job in list(self._running):
            self._cancel(job)
        shutil.rmtree(self._cluster.folder, ignore_errors=True)

    def _cancel(self, job: _Job) -> None:
        self._running.remove(job)
        with suppress(OSError):
            job.handle.cancel(check=False)

    def _fill(self) -> None:
        """Submit jobs for what waits, as arrays of equal needs."""
        for needs, alike in groupby(self._batches(), _needs):
            # A signal between a submission and its entry would leave jobs that nobody cancels.
            with held():
                self._submit(needs, list(alike))

    def _batches(self) -> list[list[Segment]]:
        """Divide what waits among jobs, as far as there are slots."""
        free = self.slots - sum(len(job.segments) for job in self._running)
        batches: list[list[Segment]] = []
        for segment in list(self._waiting)[: max(0, free)]:
            last = batches[-1] if batches else []
            joins = 0 < len(last) < self._batch and last[0].resources == segment.resources
            if joins and not self._alone & {last[0].id, segment.id}:
                last.append(segment)
            else:
                batches.append([segment])
        return batches

    def _submit(self, needs: Mapping[str, float], batches: Sequence[list[Segment]]) -> None:
        try:
            jobs = self._cluster.jobs(needs)
            with jobs.batch() if len(batches) > 1 else nullcontext():
                handles = [jobs.submit(train, self._work, batch, self._driver) for batch in batches]
        # Slurm's commands fail with errors of several classes.
        except Exception as error:
            reason = last_line(error, _LONGEST_REASON)
            raise StudyError(
                f"a job cannot be submitted ({reason}); what was recorded is kept"
            ) from error
        for handle, batch in zip(handles, batches, strict=True):
            self._running.append(_Job(handle, {segment.key: segment for segment in batch}))
            for _ in batch:
                self._waiting.popleft()

    def _take(self, job: _Job) -> Sequence[Report | Outcome]:
        """Return what a job has brought, or that it is lost."""
        result = job.handle.paths.result_pickle
        if not result.exists():
            state = str(job.handle.state).partition(" ")[0].rstrip("+").upper()
            if state in _UNDER_WAY:
                return []
            job.gone = job.gone or time.monotonic()
            wait = 0.0 if self._local else _VISIBLE_SECONDS
            if time.monotonic() < job.gone + wait:
                return []
            if not result.exists():
                return self._lose(job, state)
        ending, value = pickle.loads(result.read_bytes())
        if ending != "success":  # the traceback of the job's own process
            return self._lose(job, last_line(value, _LONGEST_REASON) or "no reason is known")
        self._running.remove(job)
        return [message for message in value if message.key in job.segments]

    def _lose(self, job: _Job, reason: str) -> list[Outcome]:
        """Give up a job that has ended without a result.

        The segments of a job of several are tried again alone: nobody knows which is at fault.
        """
        self._running.remove(job)
        shared = len(job.segments) > 1
        if shared:
            self._alone.update(segment.id for segment in job.segments.values())
        host = job.handle.get_info(mode="cache").get("NodeList") or socket.gethostname()
        message = f"job {job.handle.job_id} ended without a result: {reason}"
        facts = {"host": host, "preempted": shared or reason.startswith(_BLAMELESS)}
        seconds = time.monotonic() - job.begun
        return [
            failure(segment, Status.LOST, message, seconds, **facts)
            for segment in job.segments.values()
        ]


def train(
    work: Work, segments: Sequence[Segment], driver: int | None = None
) -> list[Report | Outcome]:
    """Train the segments of a job side by side.

    Args:
        work: how.
        segments: of the job.
        driver: process id of the driver, with which a job of this machine ends; None on a cluster.

    Returns:
        Their reports and outcomes.

    Raises:
        StudyError: the node has another autorl than the driver, or a job of this machine has lost
            its driver.
    """
    if problem := Code().difference(work.code):
        raise StudyError(f"the node cannot be used: {problem}")
    os.environ[ENDS_STOPPED] = "1"
    asks = any(segment.resources.gpu for segment in segments)
    capacity = Capacity(groups=machine.gpu_groups(()) if asks else ())
    host = socket.gethostname()
    messages: list[Report | Outcome] = []
    with closing(work.executor(len(segments), capacity)) as executor:
        executor.submit(segments)
        running = len(segments)
        while running:
            if driver is not None and not psutil.pid_exists(driver):
                raise StudyError("the driver has ended")
            for message in executor.poll(1.0):
                if isinstance(message, Outcome):
                    running -= 1
                    message = replace(message, host=host)
                messages.append(message)
    return messages


def _needs(batch: Sequence[Segment]) -> dict[str, float]:
    """Give what the segments of a job need together, by submitit's names."""
    resources = batch[0].resources
    needs: dict[str, float] = {"cpus_per_task": ceil(resources.cpu * len(batch))}
    if resources.gpu:
        needs["gpus_per_node"] = ceil(resources.gpu * len(batch))
    if resources.memory_gb is not None:
        needs["mem_gb"] = resources.memory_gb * len(batch)
    return needs
