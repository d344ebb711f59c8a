"""Signals sent to the processes of a running study: nothing is lost, and the table is that of a quiet study."""

import functools
import json
import os
import signal
import sqlite3
import sys
from contextlib import suppress

import psutil
import pytest
from patience import wait_until
from signal_studies import Session, begun, children, gated_study, hold, release
from study_support import table

from autorl.cli import app
from autorl.core import signals
from autorl.core.signals import EndedBySignal
from autorl.executors.stopped import MESSAGE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The table of an undisturbed study with a trainer, which is run once."""

    @functools.cache
    def run(trainer="python"):
        folder = tmp_path_factory.mktemp("quiet")
        file = gated_study(folder, trainer)
        code, _, error = Session("tune", file, "--out", folder / "s", "--quiet").end()
        assert (code, error) == (0, "")
        return table(folder / "s")

    return run


def held_session(folder, trainer="python", **changes):
    """A session of a study in `folder / "s"`, whose segments wait at the gate."""
    file = gated_study(folder, trainer, **changes)
    hold(folder)
    return Session("tune", file, "--out", folder / "s", "--quiet")


def assert_ends_as(session, folder, expected):
    """Let the segments go on: the session ends with the expected table, and nothing is left."""
    release(folder)
    code, _, error = session.end()
    assert (code, error) == (0, "")
    assert table(folder / "s") == expected
    assert session.wait_until_gone()


@pytest.mark.parametrize("trainer", ["command", "python"])
def test_killed_segments_change_no_table(tmp_path, quiet, trainer):
    expected = quiet(trainer)
    session = held_session(tmp_path, trainer)
    for pid in begun(tmp_path, 2):
        os.kill(pid, signal.SIGKILL)
    begun(tmp_path, 4)
    assert_ends_as(session, tmp_path, expected)
    assert not list((tmp_path / "s").rglob(".*")), "what they had begun to write"


def tree(session):
    """(supervisor, fork server) of a running session, once the server has a worker."""

    def look():
        for supervisor in children(session.process.pid):
            for server in children(supervisor):
                if children(server):
                    return supervisor, server
        return None

    return wait_until(look)


@pytest.mark.parametrize(
    ("trainer", "killed"),
    [
        ("command", "supervisor"),
        ("python", "fork server"),
        pytest.param("command", "fork server", marks=pytest.mark.slow),
        pytest.param("python", "supervisor", marks=pytest.mark.slow),
    ],
)
def test_a_fork_server_that_dies_is_replaced(tmp_path, quiet, trainer, killed):
    expected = quiet(trainer)
    session = held_session(tmp_path, trainer)
    begun(tmp_path, 2)
    supervisor, server = tree(session)
    os.kill(server if killed == "fork server" else supervisor, signal.SIGKILL)
    begun(tmp_path, 4)
    wait_until(lambda: set(tree(session)).isdisjoint({supervisor, server}))
    assert_ends_as(session, tmp_path, expected)


def test_a_stopped_fork_server_is_continued(tmp_path, quiet):
    expected = quiet()
    session = held_session(tmp_path)
    begun(tmp_path, 2)
    for pid in tree(session):
        os.kill(pid, signal.SIGSTOP)
    assert_ends_as(session, tmp_path, expected)


@pytest.mark.parametrize("trainer", ["command", "python"])
def test_stopped_workers_do_not_outlive_a_killed_driver(tmp_path, trainer):
    session = held_session(tmp_path, trainer)
    waiting = begun(tmp_path, 2)
    for pid in (
        (*waiting, *(psutil.Process(pid).ppid() for pid in waiting))
        if trainer == "command"
        else waiting
    ):
        os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in waiting)
    )
    os.kill(session.process.pid, signal.SIGKILL)
    session.end()
    assert session.wait_until_gone()


@pytest.mark.parametrize("trainer", ["command", "python"])
def test_a_stopped_segment_is_lost_and_trained_again(tmp_path, quiet, trainer):
    expected = quiet(trainer)
    session = held_session(tmp_path, trainer)
    for pid in begun(tmp_path, 2):
        os.kill(pid, signal.SIGSTOP)
    begun(tmp_path, 4)
    assert_ends_as(session, tmp_path, expected)
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as study:
        bodies = study.execute("SELECT body FROM event WHERE kind = 'attempt'").fetchall()
    assert [json.loads(body)["message"] for (body,) in bodies] == [MESSAGE, MESSAGE]


LEAVES_A_DAEMON = """
import os, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).parent


def train(config, *, seed, evaluate_at, report):
    script = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); open(sys.argv[1], 'w'); time.sleep(7200)"
    left = HERE / f"left-{os.getpid()}"
    subprocess.run([sys.executable, "-c", script, str(left)], check=True)
    while not left.exists():
        time.sleep(0.01)
    if (HERE / "die").exists():
        os.kill(os.getpid(), 9)
    while (HERE / "hold").exists():
        time.sleep(0.01)
    for step in evaluate_at:
        report(step, config["x"])


if __name__ == "__main__":
    tell = lambda step, x: print(f'{{"step": {step}, "eval_return": {x}}}')
    train({"x": float(sys.argv[1])}, seed=0, evaluate_at=(10,), report=tell)
"""


@pytest.mark.parametrize(
    ("end", "trainer"),
    [
        ("ends", "command"),
        ("is killed", "python"),
        pytest.param("ends", "python", marks=pytest.mark.slow),
        pytest.param("is killed", "command", marks=pytest.mark.slow),
    ],
)
def test_daemons_end_with_their_segments_and_hold_no_output(tmp_path, trainer, end):
    file = gated_study(tmp_path, trainer, budget={"runs": 2}, failures={"retries": 0})
    (tmp_path / "gated.py").write_text(LEAVES_A_DAEMON)
    if end == "is killed":
        (tmp_path / "die").touch()
    session = Session("tune", file, "--out", tmp_path / "s")
    code, _, _ = session.end()  # returns once nobody holds its output
    assert code == (0 if end == "ends" else 1)
    assert list(tmp_path.glob("left-*"))
    assert session.wait_until_gone()


def test_daemons_end_with_a_driver_that_is_killed(tmp_path):
    file = gated_study(tmp_path, budget={"runs": 2})
    (tmp_path / "gated.py").write_text(LEAVES_A_DAEMON)
    (tmp_path / "hold").touch()
    session = Session("tune", file, "--out", tmp_path / "s")
    wait_until(lambda: len(list(tmp_path.glob("left-*"))) == 2)
    os.kill(session.process.pid, signal.SIGKILL)
    session.end()
    assert session.wait_until_gone()


@pytest.mark.parametrize(
    ("executor", "number"),
    [
        ("in_process", signal.SIGHUP),
        ("processes", signal.SIGTERM),
        pytest.param("in_process", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("processes", signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_sigterm_and_sighup_end_a_session_with_a_line(tmp_path, quiet, number, executor):
    expected = quiet()
    session = held_session(tmp_path, executor={"name": executor})
    begun(tmp_path)
    session.process.send_signal(number)
    code, stdout, error = session.end()
    assert (code, stdout) == (128 + number, "")
    kept = f"every finished segment is kept: go on with `autorl resume {tmp_path / 's'}`"
    assert error == f"autorl: ended by {number.name}; {kept}\n"
    assert session.wait_until_gone()
    assert_ends_as(resumed(tmp_path), tmp_path, expected)


def resumed(folder):
    release(folder)
    return Session("resume", folder / "s", "--quiet")


def test_a_signal_to_every_process_of_a_job_loses_nothing(tmp_path, quiet):
    expected = quiet()
    session = held_session(tmp_path)
    begun(tmp_path, 2)
    for pid in session.processes():
        with suppress(ProcessLookupError):  # the death of another has taken it along
            os.kill(pid, signal.SIGTERM)
    assert session.end()[0] == 143
    assert session.wait_until_gone()
    assert_ends_as(resumed(tmp_path), tmp_path, expected)


def test_a_signal_that_is_ignored_from_the_start_stays_so(tmp_path):
    file = gated_study(tmp_path, budget={"runs": 2})
    hold(tmp_path)
    session = Session(
        "tune", file, "--out", tmp_path / "s", "--quiet", ignored=[signal.SIGHUP]
    )  # as `nohup` does
    begun(tmp_path, 1)
    session.process.send_signal(signal.SIGHUP)
    release(tmp_path)
    code, _, error = session.end()
    assert (code, error) == (0, "")


def test_a_signal_waits_until_what_is_held_together_is_done():
    done = []

    def work():
        with signals.held():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            done.append(1)
        done.append(2)

    with pytest.raises(EndedBySignal, match="SIGTERM"), signals.ending():
        work()
    assert done == [1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "autorl: interrupted\n"),
        (EndedBySignal(signal.SIGTERM), 143, "autorl: ended by SIGTERM\n"),
    ],
)
def test_any_command_that_a_signal_ends_says_so(monkeypatch, capsys, error, code, line):
    monkeypatch.setattr("autorl.trainers.names", raising(error))
    assert app(["list", "trainers"], standalone_mode=False) == code
    assert capsys.readouterr().err == line


def test_an_end_of_file_is_no_interrupt(monkeypatch, capsys):
    monkeypatch.setattr("autorl.trainers.names", raising(EOFError("from within")))
    with pytest.raises(EOFError, match="from within"):
        app(["list", "trainers"], standalone_mode=False)
    assert "interrupted" not in capsys.readouterr().err


def raising(error):
    def fail():
        raise error

    return fail
