"""Outcome of a segment whose worker, or its script, a signal has ended."""

import multiprocessing.reduction
import multiprocessing.spawn
import os
import signal
import socket
import subprocess
import sys

import pytest
from patience import wait_until
from segments import segment_of

from autorl import executors, trainers
from autorl.core.os_processes import ended_from_outside, exit_text
from autorl.core.types import Config, FrozenMap, Outcome, Status, TrainerSpec
from autorl.executors import Limits, threads
from autorl.executors.supervisor import say_nothing_of_a_driver_that_ended
from autorl.executors.worker import ended_worker
from autorl.study.setup import ON_THIS_MACHINE

# A shell's background job ignores SIGINT and SIGQUIT, and so does what it starts: the script takes them again.
KILL_ITSELF = "import os, signal as s; {signal} == s.SIGKILL or s.signal({signal}, s.SIG_DFL); os.kill(os.getpid(), {signal})"
FROM_OUTSIDE = [
    getattr(signal, f"SIG{name}") for name in ("KILL", "TERM", "HUP", "INT", "QUIT", "USR1")
]
OWN_FAULTS = [getattr(signal, f"SIG{name}") for name in ("SEGV", "ABRT", "FPE", "ILL", "BUS")]


def segment(name, trainer, **kwargs):
    spec = TrainerSpec(trainer, FrozenMap(kwargs))
    return segment_of(name, trainer=spec, config=Config(x=1.0), evaluate_at=(10,))


def script(code):
    """The segment of a command that runs Python code."""
    return segment("s", "command", command=("{python}", "-c", code, "{x}", "{seed}", "{until}"))


def outcomes(executor, segments):
    executor.submit(segments)
    done = {}

    def all_done():
        messages = [one for one in executor.poll(0.5) if isinstance(one, Outcome)]
        done.update({message.segment: message for message in messages})
        return len(done) == len(segments)

    wait_until(all_done)
    executor.close()
    return done


@pytest.mark.parametrize("name", ON_THIS_MACHINE)
def test_a_script_ended_from_outside_is_lost_in_every_executor(name):
    executor = executors.make(name, trainers.load, 1)
    outcome = outcomes(executor, [script(KILL_ITSELF.format(signal=9))])["s"]
    assert outcome.status is Status.LOST
    assert outcome.message == "the command ended with signal 9 (SIGKILL): no error output"


@pytest.mark.parametrize("number", [*FROM_OUTSIDE, *OWN_FAULTS])
def test_a_signal_from_outside_makes_a_script_lost_and_a_fault_of_its_own_a_crash(number):
    code = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    ended = script(code + KILL_ITSELF.format(signal=number))
    outcome = outcomes(executors.make("in_process", trainers.load, 1), [ended])["s"]
    assert outcome.status is (Status.LOST if number in FROM_OUTSIDE else Status.CRASH)
    assert number.name in outcome.message


def test_a_command_that_a_shell_reports_as_killed_is_lost():
    code = "sys.exit(subprocess.call(['sh', '-c', \"sh -c 'kill -9 $$'; exit $?\"]))"
    executor = executors.make("in_process", trainers.load, 1)
    outcome = outcomes(executor, [script(f"import subprocess, sys; {code}")])["s"]
    assert (outcome.status, "exit code 137" in outcome.message) == (Status.LOST, True)
    assert not any(map(ended_from_outside, (0, 1, 2, 3, 127, 128, 255, 128 + signal.SIGSEGV)))


USER_MODULE = """
import os, resource, signal

def killed(config, *, seed):
    os.kill(os.getpid(), signal.SIGKILL)

def crashed(config, *, seed):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.raise_signal(signal.SIGSEGV)  # in this thread: another one would leave it time to return

def left(config, *, seed):
    os._exit(3)
"""


@pytest.mark.parametrize("name", ["threads", "processes"])
@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        ("killed", Status.LOST, "worker process ended with signal 9 (SIGKILL)"),
        ("crashed", Status.CRASH, "worker process ended with signal 11 (SIGSEGV)"),
        ("left", Status.LOST, "worker process ended with exit code 3"),
    ],
)
def test_workers_of_python_functions(tmp_path, name, function, status, message):
    (tmp_path / "signals_of_a_user.py").write_text(USER_MODULE)
    made = segment("s", f"python:signals_of_a_user:{function}", path=str(tmp_path))
    outcome = outcomes(executors.make(name, trainers.load, 1, limits=Limits()), [made])["s"]
    assert (outcome.status, outcome.message) == (status, message)


def test_the_fault_of_a_child_with_several_segments_is_nobodys():
    message = "worker process ended with signal 11 (SIGSEGV)"
    assert ended_worker(-signal.SIGSEGV) == (Status.CRASH, message)
    assert ended_worker(-signal.SIGSEGV, segments=2)[0] is Status.LOST
    assert ended_worker(None)[0] is Status.LOST
    assert exit_text(-60) == "signal 60"


def test_a_driver_that_ends_while_it_asks_for_a_worker_is_no_traceback(capsys):
    """Two of a hundred signals at random moments showed one, of the fork server or of its fork."""
    asking, server = socket.socketpair()
    asking.close()
    reader, writer = os.pipe()
    os.close(writer)
    for read in (
        lambda: multiprocessing.reduction.recvfds(server, 4),
        lambda: multiprocessing.spawn._main(reader, os.dup(reader)),
    ):
        with pytest.raises(EOFError) as ended:
            read()
        say_nothing_of_a_driver_that_ended(EOFError, ended.value, ended.value.__traceback__)
    assert capsys.readouterr().err == ""


def test_a_driver_that_is_killed_while_it_hands_out_a_segment_is_no_traceback(monkeypatch):
    """One of 300 kills at random moments showed one, of the child whose threads train."""
    monkeypatch.setattr(threads, "adopt", lambda environment: None)
    receiver, sender = multiprocessing.Pipe()
    os.write(sender.fileno(), b"\0\0")
    sender.close()
    assert threads._child(receiver, trainers.load, 1) is None


def test_other_exceptions_of_the_fork_server_keep_their_traceback(capsys):
    for error in (EOFError("of a user's file"), ValueError("wrong")):
        with pytest.raises(type(error)) as raised:
            raise error
        say_nothing_of_a_driver_that_ended(type(error), raised.value, raised.value.__traceback__)
        assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize("name", ["short", "long-" * 20])
def test_workers_start_below_any_temporary_folder(tmp_path, name):
    """Below a long one the fork server ended with "AF_UNIX path too long"."""
    temporary = tmp_path / name
    temporary.mkdir()
    library = "import tempfile; folder = tempfile.TemporaryDirectory(prefix='of-a-library-')"
    (tmp_path / "library.py").write_text(library)
    program = (
        "from autorl.executors.children import fork_server, start; import os\n"
        "process = start(fork_server(['library']), os._exit, (7,)); process.join()\n"
        "print(process.exitcode, *os.listdir(os.environ['TMPDIR']), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    variables = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True)
    code, of_a_library = done.stdout.split()
    assert code == "7"
    assert of_a_library.startswith("of-a-library-")
    wait_until(lambda: not list(temporary.iterdir()))
