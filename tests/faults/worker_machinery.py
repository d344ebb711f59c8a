"""Kills and stops workers, nodes and drivers of studies, and judges what becomes of the studies.

A case is one study of one optimizer in one place. It gets one fault of each kind, in an order and
at moments drawn from (seed, number). Moments are counted in events, never in seconds, and a fault
strikes whoever trains a segment just then. `benchmarks/worker_faults.py` says how each end counts.

A worker is the process that holds segments for the driver: a process of a segment (`processes`), a
task of Ray (`ray`). A node is the worker with all that one machine runs: also the driver (`processes`),
also the raylet (`ray`), also the rest of the job (`slurm`).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import fault_files
import fault_machinery
import psutil
from fault_machinery import PATIENCE, Case, Library, Place, Verdict, events, members
from fault_studies import WORKERS, write_study

from autorl.core.os_processes import descendants
from autorl.study.folder.safety import verify

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "executors"))

from ray_processes import Nodes

# -- where segments are trained --------------------------------------------------------------------

WORKER, NODE, DRIVER, STOPPED = "worker", "node", "driver", "stopped worker"
FAULTS = (WORKER, NODE, DRIVER, STOPPED)
TRAINS = "ray::autorl"
# The working folder of a script of `command` lies in the scratch folder of its attempt.
_SCRATCH = re.compile(r"/\.tmp-(?P<segment>[^/]+)-(?P<epoch>\d+)-(?P<number>\d+)/")
# In command lines, which Ray's own processes do not hold.
_OURS = (TRAINS, "multiprocessing.forkserver", "train.py", "-m\0autorl")


@dataclass(frozen=True, order=True)
class Attempt:
    """An attempt at a segment that is being trained.

    Attributes:
        segment: its name.
        epoch, number: of its fence.
        script: process id of the program that trains.
    """

    segment: str
    epoch: int
    number: int
    script: int


def attempts(marker: str) -> list[Attempt]:
    """The attempts that processes of a case train just now."""
    running = []
    for pid in members(marker):
        with suppress(OSError):
            match = _SCRATCH.search(os.readlink(f"/proc/{pid}/cwd"))
            if match is not None:
                fence = int(match["epoch"]), int(match["number"])
                running.append(Attempt(match["segment"], *fence, pid))
    return sorted(running)


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on; empty once the process is gone."""
    with suppress(psutil.Error):
        return [above.pid for above in psutil.Process(pid).parents() if above.pid > 1]
    return []


def command_line(pid: int) -> str:
    """The words of a process's command line, each ended by a zero; empty once it is gone."""
    with suppress(psutil.Error):
        return "\0".join(psutil.Process(pid).cmdline())
    return ""


def send(number: signal.Signals, pids: Iterable[int]) -> bool:
    """Signal processes, and say whether the first of them was there."""
    reached = []
    for pid in pids:
        try:
            os.kill(pid, number)
            reached.append(True)
        except ProcessLookupError:
            reached.append(False)
    return reached[:1] == [True]


class OneMachine:
    """`processes`: workers are children of the driver's fork server.

    Attributes:
        executor: the section of the study file, once `begin` was called.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.executor: Mapping[str, Any] = {"name": "processes", "workers": 2}

    def begin(self) -> None:
        """Start what has to be there before the driver."""

    def tend(self) -> None:
        """Start anew what was killed or has left, while the driver runs."""

    def targets(self, fault: str, attempt: Attempt, rng: random.Random) -> list[int]:
        """The processes that a fault strikes, the worker's own first; empty once it has ended."""
        worker = self.worker_of(attempt)
        if worker is None:
            return []
        return self.machine_of(attempt, worker) if fault == NODE else [worker]

    def worker_of(self, attempt: Attempt) -> int | None:
        """The process that holds an attempt."""
        return next(iter(ancestors(attempt.script)), None)

    def machine_of(self, attempt: Attempt, worker: int) -> list[int]:
        """All processes of the worker's machine."""
        return [worker, *members(self.place.marker)]

    def left(self) -> list[int]:
        """Processes of an ended study that should be gone."""
        return list(members(self.place.marker))

    def close(self) -> None:
        """End what does not end with the study."""


class SlurmJobs(OneMachine):
    """`slurm`: jobs are processes of this machine, which submitit starts."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.executor = {"name": "slurm", "cluster": "local", "batch": 2}

    def machine_of(self, attempt: Attempt, worker: int) -> list[int]:
        above = ancestors(worker)
        jobs = [pid for pid in above if "submitit.local._local" in command_line(pid)]
        return [pid for job in jobs for pid in (worker, job, *descendants(job))]


class RayNodes(OneMachine):
    """`ray`: a head and two nodes as processes of their own; a node that is gone is replaced."""

    most = 2

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.folder = Path(
            tempfile.mkdtemp(prefix="art-", dir="/tmp")
        )  # Ray's sockets: short paths
        self.cluster: Nodes | None = None
        self.nodes: list[Any] = []

    def begin(self) -> None:
        home = self.place.folder / "home"
        home.mkdir()
        variables = self.place.variables | {
            "HOME": str(home),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that is stopped counts as dead after some 20 s; by default after a minute.
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "3",
        }
        self.cluster = Nodes(variables, self.place.folder, self.folder)
        self.place.variables = self.cluster.variables
        self.executor = {"name": "ray", "address": self.cluster.address}
        self.tend()

    def tend(self) -> None:
        assert self.cluster is not None
        self.nodes = [node for node in self.nodes if node.poll() is None]
        while len(self.nodes) < self.most:
            self.nodes.append(self.cluster.add())

    def targets(self, fault: str, attempt: Attempt, rng: random.Random) -> list[int]:
        # A stopped process is ended by its node; a machine that was stopped as a whole comes back.
        whole = fault == NODE or (fault == STOPPED and rng.random() < 0.5)
        return super().targets(NODE if whole else WORKER, attempt, rng)

    def worker_of(self, attempt: Attempt) -> int | None:
        above = ancestors(attempt.script)
        return next((pid for pid in above if command_line(pid).startswith(TRAINS)), None)

    def machine_of(self, attempt: Attempt, worker: int) -> list[int]:
        above = ancestors(worker)
        return [
            pid
            for node in self.nodes
            if node.pid in above
            for pid in (worker, node.pid, *descendants(node.pid))
        ]

    def left(self) -> list[int]:
        # Ray writes the titles of its workers over their environment.
        below = [pid for node in self.nodes for pid in descendants(node.pid)]
        pids = {*members(self.place.marker), *below}
        return [pid for pid in pids if any(part in command_line(pid) for part in _OURS)]

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)


HOSTS: dict[str, type[OneMachine]] = {"ray": RayNodes, "processes": OneMachine, "slurm": SlurmJobs}


GROUP = "workers"
OPTIMIZERS = [kind.rpartition("/")[2] for kind in WORKERS]
KINDS = [f"{where}/{optimizer}" for optimizer in OPTIMIZERS for where in HOSTS]
_PAUSE = 0.02
_NOT_COMPARED = ("session", "attempt", "ignored")  # kinds of event that faults add
_Seen = TypeVar("_Seen")


def cases(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Case]:
    """The cases of a seed, without end: kinds take turns, and have the numbers they have among all."""
    for number, kind in enumerate(itertools.cycle(KINDS)):
        if kind in kinds:
            yield Case(seed, GROUP, number, kind)


# -- what a study has recorded ---------------------------------------------------------------------


class Recorded:
    """Facts seen of a study on the way, which have to be there at its end."""

    def __init__(self, study: Path) -> None:
        self._study = study
        self._links: list[tuple[int, str]] = []
        self._files: dict[str, tuple[str, int, int]] = {}

    def note(self) -> None:
        """Look at the log and at the checkpoints that it names."""
        if not (self._study / "study.yaml").exists():
            return
        self._links = self._read_links()
        self._files |= self._read_files()

    def problems(self) -> list[str]:
        """List facts that are lost, doubled or replaced in a study that has ended."""
        problems = []
        if self._read_links()[: len(self._links)] != self._links:
            problems.append("events that had been recorded are lost or changed")
        bodies = _bodies(self._study, "outcome")
        doubled = [
            name
            for name, count in Counter(b["outcome"]["segment"] for b in bodies).items()
            if count > 1
        ]
        if doubled:
            problems.append(f"{len(doubled)} segments have two outcomes: {doubled[:3]}")
        files = self._read_files()
        replaced = [name for name, seen in self._files.items() if files.get(name) != seen]
        if replaced:
            problems.append(f"checkpoints that had been recorded are replaced: {replaced[:3]}")
        found = fault_files.checkpoint_hashes(self._study)
        named = {name: content for name, (content, *_) in files.items()}
        if found != named:
            differing = sorted(name for name in found | named if found.get(name) != named.get(name))
            problems.append(f"checkpoints are not those of the log: {differing[:3]}")
        return problems

    def _read_links(self) -> list[tuple[int, str]]:
        with closing(_log(self._study)) as log:
            return log.execute("SELECT seq, hash FROM event ORDER BY seq").fetchall()

    def _read_files(self) -> dict[str, tuple[str, int, int]]:
        """Hash in the log, inode and time of every file of a recorded checkpoint, by its path."""
        files = {}
        for body in _bodies(self._study, "outcome"):
            saved = body["outcome"].get("checkpoint", {})
            for name, content in saved.get("files", {}).items():
                path = f"{saved['path']}/{name}"
                inode, modified = 0, 0
                with suppress(FileNotFoundError):  # which is found by its hash
                    status = (self._study / path).stat()
                    inode, modified = status.st_ino, status.st_mtime_ns
                files[path] = (content, inode, modified)
        return files


def _log(study: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{study / 'study.sqlite'}?mode=ro", uri=True)


def _bodies(study: Path, kind: str) -> list[dict[str, Any]]:
    with closing(_log(study)) as log:
        rows = log.execute("SELECT body FROM event WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
    return [json.loads(body) for (body,) in rows]


def _kinds(study: Path) -> dict[str, int]:
    with closing(_log(study)) as log:
        counts = dict(log.execute("SELECT kind, count(*) FROM event GROUP BY kind"))
    return {kind: count for kind, count in counts.items() if kind not in _NOT_COMPARED}


def _losses(study: Path, segment: str) -> int:
    return sum(body["segment"] == segment for body in _bodies(study, "attempt"))


def _given_away(study: Path, attempt: Attempt, losses: int) -> str:
    """`yes` once another attempt has its segment, `no` if it ended itself; empty as long as neither."""
    for body in _bodies(study, "outcome"):
        outcome = body["outcome"]
        if outcome["segment"] == attempt.segment:
            fence = outcome.get("fence", {})
            own = (fence.get("epoch"), fence.get("attempt", 0)) == (attempt.epoch, attempt.number)
            return "no" if own else "yes"
    return "yes" if _losses(study, attempt.segment) > losses else ""


# -- faults ----------------------------------------------------------------------------------------


class Disturbed:
    """A study that is disturbed while it runs.

    Args:
        place: its folder, where `hosts` have begun.
        hosts: that train its segments.
        verdict: to be filled in.
    """

    def __init__(self, place: Place, hosts: OneMachine, verdict: Verdict) -> None:
        self.place = place
        self.hosts = hosts
        self.verdict = verdict
        self.recorded = Recorded(place.study)
        self.driver = place.begin()

    def wait_for(self, look: Callable[[], _Seen]) -> _Seen | None:
        """Return `look()` once it is true; None if the driver ends before."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.driver.over:
                return None
            self.hosts.tend()
            if seen := look():
                return seen
            time.sleep(_PAUSE)
        raise TimeoutError(f"nothing happened in {PATIENCE:g} seconds")

    def run(self, whole: int) -> int:
        """Deliver the faults of the case, and return the exit code of the last session.

        Args:
            whole: events of the study that nothing happened to.
        """
        rng = self.verdict.case.rng
        # Waiting takes half of the events at most, as more are recorded while a fault strikes.
        longest = max(1, whole // (2 * len(FAULTS)))
        for fault in rng.sample(FAULTS, len(FAULTS)):
            moment = events(self.place.study) + rng.randint(1, longest)
            if self.wait_for(lambda moment=moment: events(self.place.study) >= moment) is None:
                self.verdict.missed.append(f"{fault}: the study ended before")
                continue
            reason = self._deliver(fault, rng)
            if reason:
                self.verdict.missed.append(f"{fault}: {reason}")
            else:
                self.verdict.delivered.append(fault)
            self.recorded.note()
        self.wait_for(lambda: False)
        return self.driver.end()

    def _deliver(self, fault: str, rng: Any) -> str:
        """Deliver a fault, and say why it was not; empty if it was."""
        if fault == DRIVER:
            return self._kill([self.driver.process.pid])

        def struck() -> tuple[Attempt, list[int]] | None:
            running = attempts(self.place.marker)
            attempt = rng.choice(running) if running else None
            pids = self.hosts.targets(fault, attempt, rng) if attempt is not None else []
            return (attempt, pids) if attempt is not None and pids else None

        target = self.wait_for(struck)
        if target is None:
            return "the study ended before"
        attempt, pids = target
        return self._stop(attempt, pids) if fault == STOPPED else self._kill(pids)

    def _kill(self, pids: Sequence[int]) -> str:
        reached = send(signal.SIGKILL, pids)
        if self.driver.process.pid in pids:
            code = self.driver.process.wait()
            reached = code == -signal.SIGKILL
            if reached:
                self.recorded.note()
                self.driver = self.place.begin()
        return "" if reached else "it had ended"

    def _stop(self, attempt: Attempt, pids: Sequence[int]) -> str:
        """Stop a worker, and continue it once its segment was given away."""
        study = self.place.study
        losses = _losses(study, attempt.segment)
        try:
            if not send(signal.SIGSTOP, pids):
                return "it had ended"
            given = self.wait_for(lambda: _given_away(study, attempt, losses))
        finally:
            send(signal.SIGCONT, pids)
        return "" if given == "yes" else "its segment was not given away"


# -- judging ---------------------------------------------------------------------------------------


def study_problems(study: Path, whole: Path, recorded: Recorded) -> list[str]:
    """List what beside its tables differs in a study that has ended from an undisturbed one."""
    problems = []
    if _kinds(study) != _kinds(whole):
        problems.append(f"other numbers of events: {_kinds(study)}, {_kinds(whole)} expected")
    problems += recorded.problems()
    checked = verify(study)
    return problems + [f"verify: {line}" for line in (*checked.problems, *checked.notes)]


def run_workers(case: Case, place: Place, library: Library, verdict: Verdict) -> None:
    """Deliver one fault of each kind to a study."""
    where = case.kind.partition("/")[0]
    whole = library.whole(case.study)
    hosts = HOSTS[where](place)
    try:
        hosts.begin()
        write_study(case.study, place.file.parent, executor=dict(hosts.executor))
        disturbed = Disturbed(place, hosts, verdict)
        code = disturbed.run(events(whole))
        fault_machinery.judge(
            place,
            verdict,
            library.reference(case.study),
            code,
            left=hosts.left,
            checks=lambda: study_problems(place.study, whole, disturbed.recorded),
        )
    finally:
        hosts.close()


fault_machinery.RUNS[GROUP] = run_workers
