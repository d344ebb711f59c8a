"""Kills and stops workers, nodes and drivers of studies, and judges what becomes of the studies.

A case is one study of one optimizer in one place. It gets one fault of each kind, in an order and
at moments drawn from (seed, number). Moments are counted in events, never in seconds, and a fault
strikes whoever trains a segment just then. `COUNTS_AS` says how each end counts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import fault_files
import fault_machinery
from fault_machinery import PATIENCE, Case, Place, Reference, Verdict, events, kill_all, tables
from worker_hosts import DRIVER, FAULTS, HOSTS, STOPPED, Attempt, OneMachine, attempts, send
from worker_studies import OPTIMIZERS, write_study

from autorl.study.folder.verify import verify

GROUP = "workers"
KINDS = [f"{where}/{optimizer}" for optimizer in OPTIMIZERS for where in HOSTS]
GRACE = 300.0  # seconds a process of an ended study has to end as well
_PAUSE = 0.02
_NOT_COMPARED = ("session", "attempt", "ignored")  # kinds of event that faults add
_Seen = TypeVar("_Seen")
COUNTS_AS = """\
- A **worker** is the process that holds segments for the driver: a segment's own process (`processes`, `slurm`), an
  actor (`ray`). A **node** is all that runs on a machine: the driver with everything below it (`processes`), a job of
  submitit's local executor with everything below it (`slurm`), a raylet with everything below it (`ray`). Both and
  the **driver** get SIGKILL; what was killed is started anew, the driver by `autorl resume`. A **stopped worker** gets
  SIGSTOP and, once its segment was given away, SIGCONT; on Ray it is, by a draw, the actor or the whole node.
- A fault is **delivered** if it reached a process that held a segment just then (any driver that ran), a SIGSTOP if
  besides its segment was trained by another attempt before SIGCONT. What came too late, or ended by itself, is **not
  delivered**, and counts for nothing.
- **equal**: the last session of the driver ends with exit code 0 and without a traceback; every table is
  that of an undisturbed study under `in_process`, in every column but seconds, hosts and attempts; every event that could
  be read after a fault is still in its place, with its hash; no segment has two
  outcomes, and of every kind there are as many events as in the undisturbed study (but sessions, lost and ignored
  attempts); every recorded checkpoint lies there with the hashes of the log, the file the same (its inode and time)
  as after the faults before; `autorl doctor` has nothing to say; no process is left, no half-written checkpoint,
  and nothing in the temporary folder but Python's own `pymp-*` of processes that were killed.
- **bad**: anything else."""


@dataclass
class WorkerVerdict(Verdict):
    """Judgement of a case.

    Attributes:
        missed: faults that were not delivered, with the reason.
    """

    missed: list[str] = field(default_factory=list)


def cases(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Case]:
    """The cases of a seed, without end: kinds take turns, and have the numbers they have among all."""
    return (case for case in _all_cases(seed) if case.kind in kinds)


def _all_cases(seed: int) -> Iterator[Case]:
    number = 0
    while True:
        yield Case(seed, GROUP, number, KINDS[number % len(KINDS)])
        number += 1


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


# -- undisturbed studies ---------------------------------------------------------------------------


class Library:
    """Undisturbed studies under `in_process`, made once for each optimizer and kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock = threading.Lock()

    def whole(self, optimizer: str) -> Path:
        """The study of an optimizer that nothing happened to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            file = write_study(optimizer, {"name": "in_process"}, self.folder / f"{optimizer}-file")
            text = file.read_text() + (file.parent / "train.py").read_text()
            name = f"{optimizer}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
            folder = self.folder / name
            if not (folder / "done").exists():
                shutil.rmtree(folder, ignore_errors=True)
                place = Place(folder, Case(0, "whole", 0, optimizer), file)
                session = place.begin()
                if (code := session.end()) != 0:
                    raise RuntimeError(f"the undisturbed study ended with {code}: {session.lines}")
                (folder / "done").touch()
        return folder / "study"


# -- faults ----------------------------------------------------------------------------------------


class Disturbed:
    """A study that is disturbed while it runs.

    Args:
        place: its folder, where `hosts` have begun.
        hosts: that train its segments.
        verdict: to be filled in.
    """

    def __init__(self, place: Place, hosts: OneMachine, verdict: WorkerVerdict) -> None:
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


def judge(disturbed: Disturbed, whole: Path, code: int) -> None:
    """Fill in the verdict after the last session of the driver ended with `code`."""
    place, verdict = disturbed.place, disturbed.verdict
    problems = [] if code == 0 else [f"exit code {code}: {disturbed.driver.lines[-1:]}"]
    if code == 0:
        problems += disturbed.hosts.end()
    problems += _left(disturbed)
    problems += [
        f"session {number}: traceback"
        for number, session in enumerate(place.sessions)
        if session.has_traceback
    ]
    if code == 0:
        problems += study_problems(place.study, whole, disturbed.recorded)
    verdict.verdict = "bad" if problems else "equal"
    verdict.detail = "; ".join(problems)[:1000]


def study_problems(study: Path, whole: Path, recorded: Recorded) -> list[str]:
    """List differences between a study that has ended and an undisturbed one."""
    reference = Reference(events(whole), 0, tables(whole, strict=True), {}, None)
    problems = fault_machinery.differences(study, reference, strict=True)
    if problems and "cannot be read" in problems[0]:
        return problems
    if _kinds(study) != _kinds(whole):
        problems.append(f"other numbers of events: {_kinds(study)}, {_kinds(whole)} expected")
    problems += recorded.problems()
    checked = verify(study)
    return problems + [f"verify: {line}" for line in (*checked.problems, *checked.notes)]


def _left(disturbed: Disturbed) -> list[str]:
    """Processes and files that are still there; what ends by itself is given the time it takes."""
    place, hosts, verdict = disturbed.place, disturbed.hosts, disturbed.verdict
    end = time.monotonic() + GRACE
    while (left := hosts.left()) and time.monotonic() < end:
        time.sleep(_PAUSE)
    problems = [f"{len(left)} processes left"] if left else []
    entries = sorted(entry.name for entry in place.temporary.iterdir())
    own = [name for name in entries if name.startswith("pymp-")]
    verdict.own_folders = len(own)
    strangers = [name for name in entries if name not in own or not verdict.delivered]
    if strangers:
        problems.append(f"left in the temporary folder: {', '.join(strangers[:3])}")
    return problems


def run(case: Case, library: Library, *, keep_bad: bool = True) -> WorkerVerdict:
    """Disturb one study and judge it. The folder of what is bad is kept, and named in the detail."""
    verdict = WorkerVerdict(case)
    begun = time.monotonic()
    where, optimizer = case.kind.split("/")
    whole = library.whole(optimizer)
    folder = Path(tempfile.mkdtemp(prefix=f"fault-{case.group}-{case.number}-"))
    place = Place(folder, case, folder / "file" / "study.yaml")
    hosts = HOSTS[where](place)
    try:
        hosts.begin()
        write_study(optimizer, hosts.executor, place.file.parent)
        disturbed = Disturbed(place, hosts, verdict)
        judge(disturbed, whole, disturbed.run(events(whole)))
    except Exception as error:
        verdict.verdict, verdict.detail = "bad", f"the harness: {type(error).__name__}: {error}"
    finally:
        kill_all(place.marker)
        hosts.close()
        for session in place.sessions:
            session.process.wait()
    if verdict.verdict == "equal" and not verdict.delivered:
        verdict.verdict = "not delivered"
    if verdict.verdict == "bad" and keep_bad:
        kept = library.folder / "bad" / case.name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("pymp-*"))
        verdict.detail += f" (kept in {kept})"
    shutil.rmtree(folder, ignore_errors=True)
    verdict.seconds = round(time.monotonic() - begun, 1)
    return verdict
