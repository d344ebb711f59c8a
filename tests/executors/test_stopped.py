"""A stopped worker is known by its state, not by the time it takes."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from patience import FOREVER, PATIENCE, wait_until

from autorl.core import os_processes
from autorl.core.os_processes import descendants, end_descendants, end_marked, host_identity, stat
from autorl.executors.stopped import STOPPED_SECONDS, StoppedWorkers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SLEEPS = f"import time; time.sleep({FOREVER})"
BUSY = "while True: pass"
WITH_CHILD = "import subprocess as s, sys; child = s.Popen([sys.executable, '-c', {!r}])\n{}"


@pytest.fixture
def start():
    begun = []

    def run(code, **options):
        process = subprocess.Popen([sys.executable, "-c", code], **options)
        begun.append(process)
        return process

    yield run
    for process in begun:
        end_descendants(process.pid)
        process.kill()
        process.wait()


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: stat(pid).state == "T")


def looks(watch, pid, seconds):
    """Return the findings at each second of a clock that the test moves."""
    return [watch.among([pid], float(second)) for second in seconds]


def test_a_place_is_a_host_since_it_was_started_and_its_process_numbers():
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    numbers = os.stat("/proc/self/ns/pid").st_ino
    assert host_identity() == f"{socket.gethostname()}-{boot}-{numbers}"


def test_a_stopped_worker_is_found_after_ten_seconds_and_no_sooner(start):
    process, watch = start(SLEEPS), StoppedWorkers()
    assert looks(watch, process.pid, range(100)) == [set()] * 100  # slow is not stopped
    stop(process.pid)
    last = 99 + int(STOPPED_SECONDS)
    assert looks(watch, process.pid, range(100, last)) == [set()] * (last - 100)
    assert looks(watch, process.pid, [last]) == [{process.pid}]


def test_a_worker_that_is_continued_in_time_is_not_found(start):
    process, watch = start(SLEEPS), StoppedWorkers()
    stop(process.pid)
    looks(watch, process.pid, range(9))
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: stat(process.pid).state != "T")
    looks(watch, process.pid, [9])
    stop(process.pid)
    assert looks(watch, process.pid, range(10, 19)) == [set()] * 9


def test_the_time_a_machine_was_suspended_does_not_count(start):
    process, watch = start(SLEEPS), StoppedWorkers()
    stop(process.pid)
    assert looks(watch, process.pid, [0, 1, 100_000, 100_001]) == [set()] * 4


def test_a_stopped_child_counts_if_nothing_else_is_at_work(start):
    idle, busy = (start(parent_of(SLEEPS, own)) for own in (SLEEPS, BUSY))
    watch = StoppedWorkers()
    stop(child_that_sleeps(idle.pid))
    stop(child_that_sleeps(busy.pid))
    found = []
    for second in range(12):
        used = stat(busy.pid).cpu_seconds
        wait_until(lambda used=used: stat(busy.pid).cpu_seconds > used + 0.03)
        found.append(watch.among([idle.pid, busy.pid], float(second)))
    assert found[-2:] == [{idle.pid}, {idle.pid}]


def child_that_sleeps(pid):
    """Process id of the child, once it runs the program: its parent waits for that and would hang."""
    wait_until(lambda: any(SLEEPS in arguments(child) for child in descendants(pid)))
    (child,) = descendants(pid)
    return child


def arguments(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2:]


def parent_of(child, own):
    return WITH_CHILD.format(child, own)


def test_marked_processes_are_ended_in_any_session(start):
    process = start(SLEEPS, env={**os.environ, "MARK_OF_A_TEST": "7"}, start_new_session=True)
    other = start(SLEEPS, env={**os.environ, "MARK_OF_A_TEST": "77"})
    end_marked("MARK_OF_A_TEST", "7")
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    assert other.poll() is None


def test_a_marked_process_that_is_still_loading_its_program_is_waited_for(start, monkeypatch):
    """Its variables read as empty for a moment: `Popen` answers before the kernel has put them in place."""
    process = start(SLEEPS, env={**os.environ, "MARK_OF_A_TEST": "8"})
    wait_until(lambda: os_processes._marked(b"MARK_OF_A_TEST=8") == ([process.pid], False))
    looks = iter([([], True), ([], True), ([process.pid], False)])
    monkeypatch.setattr(os_processes, "_marked", lambda mark: next(looks, ([], False)))
    end_marked("MARK_OF_A_TEST", "8")
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL


def test_a_process_without_variables_is_not_taken_for_one_that_is_loading(start):
    process = start(SLEEPS, env={})
    wait_until(lambda: SLEEPS in arguments(process.pid))
    assert Path(f"/proc/{process.pid}/environ").read_bytes() == b""
    assert not os_processes._is_loading(process.pid)
    assert not os_processes._is_loading(2**22 + 1)  # no process has so large a number


def test_a_fork_server_that_cannot_import_is_given_up(tmp_path):
    (tmp_path / "kills_its_importer.py").write_text("import os; os.kill(os.getpid(), 9)")
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import misbehaving, test_executors
from autorl import executors
executor = executors.make("processes", misbehaving.load, 1, preload=["kills_its_importer"])
executor.submit([test_executors.segment("s")])
outcomes, _ = test_executors.drain(executor, 1)
print(outcomes["s"].status, outcomes["s"].message)
"""
    printed = printed_by(code, str(tmp_path))
    assert printed == "lost the fork server ended 3 times before it had started a worker\n"


def printed_by(code, *folders):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, *sys.path])}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=True).stdout


def test_a_fork_server_that_ends_while_a_worker_is_asked_for_has_a_supervisor_again():
    """multiprocessing replaced it itself, without the environment that makes it split."""
    code = """
import operator, os, signal
from patience import wait_until
from autorl.executors import children
from autorl.core.os_processes import stat

context = children.fork_server([])
before = children._supervisor()
ensure_running = children._ensure_running


def ends_at_once():
    children._ensure_running = ensure_running
    ensure_running()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: stat(before).state == "Z")


children._ensure_running = ends_at_once
receive = operator.methodcaller("recv")
worker, connection = children.start_connected(context, receive, (), duplex=True)
supervisor = stat(stat(worker.pid).parent).parent
print(supervisor == children._supervisor() != before, stat(supervisor).parent == os.getpid())
children.kill_group(worker)
"""
    assert printed_by(code) == "True True\n"
