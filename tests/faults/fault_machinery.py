"""Harms small studies from a seed and judges what becomes of them. Used by the tests here and `benchmarks/faults.py`.

A case is one study. Its moments are counted in events seen in the database, never in seconds, and everything that is
drawn follows from (seed, group, number), so that a case can be repeated alone. `benchmarks/faults.py` says
how each end counts.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks import it, too

import fault_errnos
import fault_files
import psutil
from fault_studies import KINDS, WORKERS, write_study
from small_studies import RECORDED, recorded

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("kills", "faults", "errnos", "signals")
PATIENCE = 900.0  # seconds until a session counts as one that hangs
GRACE = 300.0  # seconds a process of an ended session has to end as well
KILLS_PER_STUDY = 4
STOPS = 20  # tries to kill a study on its way: on a loaded machine it may be over before
MARKER = (
    "AUTORL_FAULT_CASE"  # in the environment of every process of a case, however it was started
)
_RESULTS = {
    "configurations": "*",
    "proposals": "proposal, config_id, until, resume_from, member, origin, status, score, n_seeds",
    "reports": "*",
    "reductions": "*",
    "tests": "*",
}
Tables = dict[str, list[tuple[Any, ...]]]
_CODES = {
    signal.SIGINT: (130,),
    signal.SIGTERM: (143,),
    signal.SIGHUP: (129,),
    signal.SIGQUIT: (-3, 131),
}
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_STOPPED = "stopped"  # SIGSTOP, then SIGCONT


@dataclass(frozen=True)
class Case:
    """One study and what happens to it: `number` within `group` of the cases of `seed`."""

    seed: int
    group: str
    number: int
    kind: str

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.group}-{self.number}"

    @property
    def study(self) -> str:
        """The kind of its study; the kind of a case of workers is WHERE/OPTIMIZER."""
        of_workers = f"workers/{self.kind.rpartition('/')[2]}"
        return of_workers if self.group == "workers" else self.kind

    @property
    def rng(self) -> random.Random:
        return random.Random(self.name)


@dataclass
class Verdict:
    """Judgement of a case.

    Attributes:
        delivered: kills, faults or signals that reached the study, by what they were.
        verdict: `equal`, `refused`, `bad`, `not delivered` or `skipped`.
        detail: why, for what is bad or skipped; the line, for what is refused.
        own_folders: `pymp-*` and `tmp*` of processes that could not remove them.
        missed: faults of workers that were not delivered, with the reason.
    """

    case: Case
    delivered: list[str] = field(default_factory=list)
    verdict: str = ""
    detail: str = ""
    own_folders: int = 0
    seconds: float = 0.0
    missed: list[str] = field(default_factory=list)


@dataclass
class Session:
    """One run of the command line, in a session of its own, with its output in files."""

    process: subprocess.Popen[bytes]
    output: Path
    error: Path
    marker: str

    @property
    def over(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> int:
        """Wait for the driver to end; -1000 if it hangs, and then everything of it is killed."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            kill_all(self.marker)
            self.process.wait()
            return -1000

    @property
    def lines(self) -> list[str]:
        return self.error.read_text(errors="replace").splitlines()

    @property
    def has_traceback(self) -> bool:
        """A traceback in its output; not that of Python's fork server, whose driver was killed while they spoke."""
        text = self.error.read_text(errors="replace") + self.output.read_text(errors="replace")
        tracebacks = text.split("Traceback (most recent call last)")[1:]
        if self.process.returncode == -signal.SIGKILL:
            tracebacks = [
                each for each in tracebacks if "multiprocessing/forkserver.py" not in each
            ]
        return bool(tracebacks)


class Place:
    """The folder of one case: study, study file, temporary folder, output of its sessions.

    Args:
        folder: of the case, made here.
        case: what it is.
    """

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.marker = folder, f"{case.name}-{case.kind}-{os.getpid()}"
        self.study = folder / "study"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.file = write_study(case.study, folder / "file")
        self.sessions: list[Session] = []
        self.variables = {
            **os.environ,
            MARKER: self.marker,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TORCHINDUCTOR_CACHE_DIR": str(
                self.folder / "torch"
            ),  # else below TMPDIR, one for all studies of a user
        }

    def begin(self, study: Path | None = None, *, resume: bool = False) -> Session:
        """Start the study, or resume it if it has begun: its study file is the last thing a start writes."""
        study = study or self.study
        begun = resume or (study / "study.yaml").exists()
        if begun:
            return self.start("resume", study, "-q")
        return self.start("tune", self.file, "--out", study, "-q")

    def start(self, *arguments: object) -> Session:
        """Run the command line with these arguments."""
        number = len(self.sessions)
        output, error = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with output.open("wb") as out, error.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "autorl", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.variables,
                start_new_session=True,
                preexec_fn=_default_signals,
            )
        self.sessions.append(Session(process, output, error, self.marker))
        return self.sessions[-1]


def _default_signals() -> None:
    # A shell has the first two ignored in what it starts in the background, `nohup` the third.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


# -- looking at a study ------------------------------------------------------------------------------------------------


def events(study: Path) -> int:
    """How many events the study has recorded; 0 before there is a database."""
    try:
        with closing(
            sqlite3.connect(f"file:{study / 'study.sqlite'}?mode=ro", uri=True)
        ) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM event").fetchone()[0])
    except sqlite3.Error:
        return 0


def tables(study: Path, *, strict: bool) -> Tables:
    """The study's tables, sorted; `strict` compares what it cost and which segments trained it too."""
    with closing(sqlite3.connect(study / "study.sqlite")) as connection:
        return recorded(connection.execute, RECORDED if strict else _RESULTS)


def wait_for_events(session: Session, study: Path, count: int) -> bool:
    """Wait until the study has `count` events; False if the driver ended before."""
    end = time.monotonic() + PATIENCE
    while events(study) < count and time.monotonic() < end:
        if session.over:
            return False
        time.sleep(0.002)
    return not session.over


def members(marker: str) -> dict[int, int]:
    """Process ids with the marker in their environment, and their parents."""
    members = dict[int, int]()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARKER) == marker and process.status() not in _ENDED:
                members[process.pid] = process.ppid()
    return members


def role_of(pid: int, driver: int, parents: Mapping[int, int]) -> str | None:
    """Role of a study's process: `driver`, `fork server`, `worker`, `script`; None for Python's own
    helpers."""
    if pid == driver:
        return "driver"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    parent = parents.get(pid)
    if b"resource_tracker" in command:
        return None
    if b"forkserver" not in command:
        return "script"
    return "fork server" if parent == driver else "worker"


def find(session: Session, role: str) -> int | None:
    """A process of this role, waiting for one as long as the driver lives; None when it has ended."""
    end = time.monotonic() + PATIENCE
    while not session.over and time.monotonic() < end:
        parents = members(session.marker)
        for pid in sorted(parents):
            if role_of(pid, session.process.pid, parents) == role:
                return pid
        time.sleep(0.001)
    return None


def kill_all(marker: str) -> None:
    """Kill every process of a case, those that begin meanwhile too."""
    while pids := members(marker):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


# -- references --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """An uninterrupted study: number of events, size in bytes, its tables, and those a fault of a file leaves equal.

    `calls`: how often it asked the disk for what; None where nobody could count.
    `remarks`: lines on standard error.
    """

    events: int
    size: int
    every_table: Tables
    results: Tables
    calls: fault_errnos.Counts | None
    remarks: Sequence[str] = ()


class Library:
    """Uninterrupted studies, and studies stopped on the way, made once for each kind and copied for each case."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self._seed = folder.resolve(), seed
        self._locks = {kind: threading.Lock() for kind in KINDS | WORKERS}
        self._references: dict[str, Reference] = {}

    def whole(self, kind: str) -> Path:
        """The study of a kind that nothing happened to."""
        return self._made(kind, "whole", None)

    def reference(self, kind: str) -> Reference:
        """Return the record of an undisturbed study of a kind."""
        folder = self.whole(kind)
        with self._locks[kind]:
            if kind not in self._references:
                every, results = (tables(folder, strict=strict) for strict in (True, False))
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                counters = folder.parent / "counters"
                calls = fault_errnos.counted(counters) if counters.exists() else None
                remarks = (folder.parent / "0.err").read_text().splitlines()
                self._references[kind] = Reference(
                    events(folder), size, every, results, calls, remarks
                )
            return self._references[kind]

    def stopped(self, kind: str, quarter: int) -> Path:
        """A copy of the study that was killed after so many quarters of its events; 4 is the whole one."""
        if quarter == 4:
            return self.whole(kind)
        return self._made(kind, f"stopped-{quarter}", quarter * self.reference(kind).events // 4)

    def _made(self, kind: str, name: str, stop_at: int | None) -> Path:
        folder = self.folder / kind.replace("/", "-") / name
        with self._locks[kind]:
            if not (folder / "done").exists():
                for _ in range(STOPS):
                    shutil.rmtree(folder, ignore_errors=True)
                    place = Place(folder, Case(self._seed, name, 0, kind))
                    failing = fault_errnos.build(self.folder)
                    if stop_at is None and failing is not None:
                        plan, counters = fault_errnos.Plan(), folder / "counters"
                        place.variables |= plan.variables(failing, place.study, counters)
                    session = place.begin()
                    if stop_at is not None:
                        wait_for_events(session, place.study, stop_at)
                        kill_all(place.marker)
                    code = session.end()
                    if stop_at is None or events(place.study) < self._references[kind].events:
                        break
                else:
                    raise RuntimeError(
                        f"{kind}: the study was over before it was killed, each time"
                    )
                if stop_at is None and code != 0:
                    raise RuntimeError(
                        f"{kind}: the uninterrupted study ended with {code}: {session.lines}"
                    )
                (folder / "done").touch()
        return folder / "study"


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(
    place: Place,
    verdict: Verdict,
    whole: Reference,
    code: int,
    *,
    file_fault: bool = False,
    left: Callable[[], Collection[int]] | None = None,
    checks: Callable[[], list[str]] = list,
) -> None:
    """Fill in the verdict after the last session of a case ended with `code`.

    Args:
        place, verdict: of the case.
        whole: the study that nothing happened to.
        code: of the last session.
        file_fault: whether the session may refuse the study.
        left: processes that should be gone; None: all of the case.
        checks: further faults of a study that has ended well.
    """
    problems = _left_over(place, verdict, left or (lambda: members(place.marker)))
    session = place.sessions[-1]
    problems += [
        f"session {number}: traceback"
        for number, each in enumerate(place.sessions)
        if each.has_traceback
    ]
    if code == 0:
        verdict.verdict = "equal"
        problems += differences(place.study, whole, strict=not file_fault) or checks()
    elif code in (1, 2) and file_fault:
        verdict.verdict, verdict.detail = (
            "refused",
            session.lines[-1][:300] if session.lines else "",
        )
        if len(session.lines) != 1:
            problems.append(
                f"exit code {code} with {len(session.lines)} lines: {session.lines[-1:]}"
            )
    else:
        problems.append(f"exit code {code}: {session.lines[-1:]}")
    if problems:
        verdict.verdict, verdict.detail = "bad", "; ".join(problems)[:1000]


def differences(study: Path, whole: Reference, *, strict: bool) -> list[str]:
    """List faults in the tables of a study that has ended, and half-written checkpoints."""
    theirs = whole.every_table if strict else whole.results
    try:
        ours = tables(study, strict=strict)
    except sqlite3.Error as error:
        return [f"exit code 0, and the database cannot be read: {error}"]
    differing = [name for name in ours if ours[name] != theirs[name]]
    problems = [
        f"other {name}: {_first_difference(ours[name], theirs[name])}" for name in differing[:2]
    ]
    half = (
        sorted(entry.name for entry in (study / "checkpoints").glob(".tmp*"))
        if study.is_dir()
        else []
    )
    return problems + ([f"half-written checkpoint {half[0]}"] if half else [])


def _first_difference(ours: Sequence[tuple[Any, ...]], theirs: Sequence[tuple[Any, ...]]) -> str:
    only = [row for row in ours if row not in theirs][:1] + [
        row for row in theirs if row not in ours
    ][:1]
    return f"{len(ours)} rows, {len(theirs)} expected, e.g. {str(only)[:200]}"


def _left_over(place: Place, verdict: Verdict, look: Callable[[], Collection[int]]) -> list[str]:
    """Processes and files that are still there; what ends by itself is given the time it takes."""
    end = time.monotonic() + GRACE
    while (left := look()) and time.monotonic() < end:
        time.sleep(0.02)
    problems = [f"{len(left)} processes left"] if left else []
    kill_all(place.marker)
    entries = sorted(entry.name for entry in place.temporary.iterdir())
    own = [name for name in entries if name.startswith(("pymp-", "tmp"))]
    killed = {"group", "driver", "SIGQUIT"} & set(verdict.delivered)
    cannot_remove = bool(killed or (verdict.case.group == "workers" and verdict.delivered))
    # Python's `pymp-*` are the driver's; libraries such as wandb make `tmp*` in a worker too.
    worker = "worker" in verdict.delivered
    excused = [name for name in own if cannot_remove or (worker and name.startswith("tmp"))]
    verdict.own_folders = len(own)
    strangers = [name for name in entries if name not in excused]
    return problems + (
        [f"left in the temporary folder: {', '.join(strangers[:3])}"] if strangers else []
    )


# -- what happens to studies -------------------------------------------------------------------------------------------


def run_kills(
    case: Case, place: Place, library: Library, verdict: Verdict, most: int = KILLS_PER_STUDY
) -> None:
    """Kill up to `most` times, each after a drawn number of new events; resume what is no longer there."""
    rng, whole = case.rng, library.reference(case.kind)
    longest = max(1, whole.events // (most + 1))
    session = place.begin()
    for _ in range(most):
        role = rng.choice(("group", "driver", *KINDS[case.kind].roles))
        if not wait_for_events(session, place.study, events(place.study) + rng.randint(1, longest)):
            break
        pid = session.process.pid if role in ("group", "driver") else find(session, role)
        if pid is None:
            break
        if role == "group":
            kill_all(place.marker)
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        verdict.delivered.append(role)
        if role in ("group", "driver"):
            session.process.wait()
            _wait_until_alone(place)
            session = place.begin()
    judge(place, verdict, whole, session.end())


def _wait_until_alone(place: Place) -> None:
    """Workers die with their driver, in a moment: wait for that, but not for those that do not."""
    end = time.monotonic() + 5
    while members(place.marker) and time.monotonic() < end:
        time.sleep(0.005)


def run_signal(case: Case, place: Place, library: Library, verdict: Verdict) -> None:
    """Send one signal to the driver, or stop and continue a process; then resume."""
    rng, whole = case.rng, library.reference(case.kind)
    what = rng.choice(
        (*(number.name for number in _CODES), f"driver {_STOPPED}", f"worker {_STOPPED}")
    )
    moment = rng.randint(1, whole.events - 2)
    session = place.begin()
    if not wait_for_events(session, place.study, moment):
        verdict.detail = "ended before its moment"
        judge(place, verdict, whole, session.end())
        return
    if what.endswith(_STOPPED):
        pid = session.process.pid if what.startswith("driver") else find(session, "worker")
        if pid is not None:
            _stop_and_continue(pid, session)
            verdict.delivered.append(f"SIGSTOP and SIGCONT to the {what.split()[0]}")
        judge(place, verdict, whole, session.end())
        return
    number = signal.Signals[what]
    session.process.send_signal(number)
    code = session.end()
    if code == 0:  # it had ended already
        judge(place, verdict, whole, code)
        return
    verdict.delivered.append(what)
    problem = _said_otherwise(session, number, code)
    _wait_until_alone(place)
    judge(place, verdict, whole, place.begin().end())
    if problem:
        verdict.detail = f"{problem}; {verdict.detail}".rstrip("; ")
        verdict.verdict = "bad"


def _stop_and_continue(pid: int, session: Session) -> None:
    """Stop a process for a fifth of a second, then let it go on."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        for _ in range(20):
            if session.over:
                break
            time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)


def _said_otherwise(session: Session, number: signal.Signals, code: int) -> str:
    """List faults in the end of a driver that got a signal."""
    expected = 0 if number is signal.SIGQUIT else 1
    if code not in _CODES[number]:
        return f"exit code {code} after {number.name}, {' or '.join(map(str, _CODES[number]))} expected"
    if len(session.lines) != expected and number is not signal.SIGQUIT:
        return f"{len(session.lines)} lines after {number.name}: {session.lines[-1:]}"
    return ""


def run_fault(case: Case, place: Place, library: Library, verdict: Verdict) -> None:
    """Harm one file of a study that was killed, or let its disk be full; then resume."""
    rng, whole = case.rng, library.reference(case.kind)
    if rng.random() < 0.1:
        _full_disk(place, whole, rng, verdict)
        return
    source = library.stopped(case.kind, rng.randint(1, 4))
    shutil.copytree(source, place.study)
    others = [kind for kind in KINDS if kind != case.kind and kind not in ("sb3/asha", "trl")]
    stranger = library.whole(rng.choice(others))
    what = fault_files.harm(place.study, stranger, rng)
    verdict.delivered.append(what)
    before, recorded = fault_files.checkpoint_hashes(place.study), events(place.study)
    code = place.begin(resume=True).end()
    judge(place, verdict, whole, code, file_fault=True)
    lost = before.keys() - fault_files.checkpoint_hashes(place.study).keys()
    if verdict.verdict == "refused" and lost:
        verdict.verdict, verdict.detail = (
            "bad",
            f"refused, and {len(lost)} files of checkpoints are gone",
        )
    if verdict.verdict == "equal" and not recorded:
        verdict.verdict, verdict.detail = (
            "bad",
            "the log was gone, and all was trained again without a line",
        )
    verdict.detail = f"{what}: {verdict.detail}" if verdict.detail else what


def _full_disk(place: Place, whole: Reference, rng: random.Random, verdict: Verdict) -> None:
    """Run the study on a file system of a drawn size, then with enough room."""
    kilobytes = rng.randint(64, max(128, whole.size // 1024))
    place.study.mkdir()
    reason = _mount(place.study, kilobytes)
    if reason:
        verdict.verdict, verdict.detail = "skipped", f"full disk: {reason}"
        return
    try:
        study = place.study / "study"
        session = place.begin(study)
        code = session.end()
        verdict.delivered.append("full disk" if code else "disk that was large enough")
        if problem := _no_line(session, code, whole):
            verdict.verdict, verdict.detail = "bad", f"full disk of {kilobytes} kB: {problem}"
            _left_over(place, verdict, lambda: members(place.marker))
            return
        subprocess.run(["mount", "-o", "remount,size=1g", str(place.study)], check=True)
        if code:
            code = place.begin(study).end()
        place.study = study
        judge(place, verdict, whole, code)
        verdict.detail = (
            f"full disk of {kilobytes} kB: {verdict.detail}" if verdict.detail else "full disk"
        )
    finally:
        kill_all(place.marker)
        mounted = place.study if os.path.ismount(place.study) else place.study.parent
        subprocess.run(["umount", "-l", str(mounted)], check=True)


def _no_line(session: Session, code: int, whole: Reference) -> str:
    """List faults in the end of a session whose disk has failed."""
    lines = [
        line
        for line in session.lines
        if ".log cannot be written" not in line and line not in whole.remarks
    ]
    if code == 0 or (code in (1, 2) and len(lines) == 1 and not session.has_traceback):
        return ""
    return f"exit code {code} with {len(lines)} lines: {lines[-1:]}"


def run_errno(case: Case, place: Place, library: Library, verdict: Verdict) -> None:
    """Let calls of a session fail, from its start or its middle; then resume with a whole disk."""
    rng, whole = case.rng, library.reference(case.kind)
    failing = fault_errnos.build(library.folder)
    if failing is None or whole.calls is None:
        verdict.verdict, verdict.detail = "skipped", "failing disk: needs Linux and `cc`"
        return
    if quarter := rng.choice((0, 0, 0, 1, 2, 3)):
        shutil.copytree(library.stopped(case.kind, quarter), place.study)
    plan, counters = fault_errnos.draw(rng, whole.calls, 1 - quarter / 4), place.folder / "counters"
    variables = plan.variables(failing, place.study, counters)
    place.variables |= variables
    session = place.begin()
    code = session.end()
    place.variables = {name: place.variables[name] for name in place.variables.keys() - variables}
    hits, path = fault_errnos.hits(counters)
    if hits:
        verdict.delivered.append(str(plan))
    problem = _no_line(session, code, whole)
    if code or hits:  # a study that is over is looked at: what could not be removed goes then
        _wait_until_alone(place)
        code = place.begin().end()
    judge(place, verdict, whole, code)
    if problem:
        verdict.verdict = "bad"
    said = f"{plan}; {hits} hits, first {path.removeprefix(str(place.study))}"
    verdict.detail = "; ".join(filter(None, (said, problem, verdict.detail)))


def _mount(folder: Path, kilobytes: int) -> str:
    """Mount a file system of this size; the reason if that cannot be done here."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


RUNS: dict[str, Callable[[Case, Place, Library, Verdict], None]] = {
    "kills": run_kills,
    "faults": run_fault,
    "errnos": run_errno,
    "signals": run_signal,
}


def run(case: Case, library: Library, *, keep_bad: bool = True) -> Verdict:
    """Harm one study and judge it. The folder of what is bad is kept, and named in the detail."""
    verdict, begun = Verdict(case), time.monotonic()
    with _place(case) as place:
        try:
            RUNS[case.group](case, place, library, verdict)
        except Exception as error:
            verdict.verdict, verdict.detail = "bad", f"the harness: {type(error).__name__}: {error}"
        if verdict.verdict == "equal" and not verdict.delivered:
            verdict.verdict = "not delivered"
        if verdict.verdict == "bad" and keep_bad:
            kept = library.folder / "bad" / case.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(place.folder, kept, ignore=shutil.ignore_patterns("pymp-*"))
            verdict.detail += f" (kept in {kept})"
    verdict.seconds = round(time.monotonic() - begun, 1)
    return verdict


@contextmanager
def _place(case: Case) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix=f"fault-{case.group}-{case.number}-"))
    place = Place(folder, case)
    try:
        yield place
    finally:
        kill_all(place.marker)
        for session in place.sessions:
            session.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
