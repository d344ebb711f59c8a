"""`autorl watch`: live in a terminal, blocks of text elsewhere; leaving it leaves the study alone."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import urllib.request

import pytest
from cli_support import autorl, finished_study
from patience import PATIENCE, wait_until
from signal_studies import default_signals

from autorl.core.seeds import SeedPlan
from autorl.study.tuner import Tuner

WATCH = [sys.executable, "-m", "autorl", "watch"]
SPACE = {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}


class Terminal:
    """`autorl watch` in a pseudo-terminal; what it draws is collected."""

    def __init__(self, folder, lines=30, columns=100):
        self.master, self.slave = pty.openpty()
        self.resize(lines, columns)
        self.modes = termios.tcgetattr(self.slave)
        sizes = ("COLUMNS", "LINES", "NO_COLOR")
        environment = {key: value for key, value in os.environ.items() if key not in sizes}
        self.drawn = b""
        self.process = subprocess.Popen(
            [*WATCH, str(folder), "--interval", "0.1"],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment | {"TERM": "xterm"},
            preexec_fn=self._adopt,
        )
        threading.Thread(target=self._collect, daemon=True).start()

    def _adopt(self):
        default_signals()
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def _collect(self):
        while True:
            try:
                read = os.read(self.master, 65536)
            except OSError:
                return
            # Not in one line with the reading, which takes the text first and then waits.
            self.drawn += read

    def resize(self, lines, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, text):
        wait_until(lambda: text.encode() in self.drawn)

    def press(self, key):
        os.write(self.master, key)
        return self.process.wait(PATIENCE)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def tuner(tmp_path):
    made = Tuner(
        SPACE, "random", seeds=SeedPlan(1, 2), path=tmp_path / "study", budget={"runs": 10}
    )
    yield made
    made.close()


@pytest.fixture
def terminal(tuner, tmp_path):
    tuner.tell(tuner.ask(), 0.25)
    started = Terminal(tmp_path / "study")
    yield started
    started.close()


def test_a_watch_follows_a_study_that_grows_until_q(terminal, tuner):
    trial = tuner.ask()  # the first is scored with it
    terminal.wait_for("proposal 0: 0.25 on")
    assert b"running" in terminal.drawn
    tuner.tell(trial, 0.75)
    trial = tuner.ask()
    terminal.wait_for("proposal 1: 0.75 on")
    terminal.wait_for("2 complete")
    terminal.drawn = b""
    terminal.resize(12, 30)
    terminal.wait_for("…")  # what does not fit the smaller one
    assert termios.tcgetattr(terminal.slave)[3] & termios.ICANON == 0
    assert terminal.press(b"q") == 0
    # The terminal is as it was before, its own screen and cursor shown again.
    assert termios.tcgetattr(terminal.slave) == terminal.modes
    wait_until(lambda: b"\x1b[?1049l" in terminal.drawn and b"\x1b[?25h" in terminal.drawn)
    # The study goes on.
    tuner.tell(trial, 0.5)
    assert tuner.result().incumbent.proposal == 1


def test_ctrl_c_leaves_as_q_does(terminal, tuner):
    trial = tuner.ask()
    terminal.wait_for("proposal 0: 0.25 on")
    assert terminal.press(b"\x03") == 0
    assert termios.tcgetattr(terminal.slave) == terminal.modes
    assert b"Traceback" not in terminal.drawn
    tuner.tell(trial, 0.5)


def test_without_a_terminal_a_finished_study_is_one_block(tmp_path):
    folder = finished_study(tmp_path, seeds={"tuning": 2, "test": 0})
    first, *lines = autorl("watch", folder).stdout.splitlines()
    assert first.startswith("-- ")
    facts = [line.split("  ")[0] for line in lines]
    assert facts.count("state") == facts.count("runs") == 1
    assert "\x1b" not in "".join(lines)


def test_without_a_terminal_there_is_a_block_for_each_change(tuner, tmp_path):
    tuner.tell(tuner.ask(), 0.25)
    trial = tuner.ask()
    command = [*WATCH, str(tmp_path / "study"), "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        output = []
        reader = threading.Thread(target=lambda: output.extend(process.stdout), daemon=True)
        reader.start()
        wait_until(lambda: any("proposal 0: 0.25" in line for line in [*output]))
        tuner.tell(trial, 0.75)
        tuner.ask()
        wait_until(lambda: any("proposal 1: 0.75" in line for line in [*output]))
        tuner.close()  # nobody works on it: the watch ends
        assert process.wait(PATIENCE) == 0
        reader.join()
    blocks = "".join(output).split("-- ")[1:]
    assert len(blocks) >= 3
    assert len({block.partition("\n")[2] for block in blocks}) == len(blocks)
    assert "stopped: go on with" in blocks[-1]


# -- on the web ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_it_prints_its_address_and_ends_at_a_signal(tmp_path, number, code):
    finished_study(tmp_path, seeds={"tuning": 2, "test": 0})
    process = subprocess.Popen(
        [*WATCH, "--web", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    try:
        address, _, rest = process.stdout.readline().partition("  ")
        assert address.startswith("http://127.0.0.1:")
        assert "studies now: 1" in rest
        with urllib.request.urlopen(f"{address}state", timeout=PATIENCE) as answer:
            assert b"finished" in answer.read()
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("token", "folder", "said"),
    [
        ("", "nothing", "is not a folder"),
        ("short", "", "AUTORL_WEB_TOKEN: expected at least 16 letters and digits"),
        ("0123456789abcdef;Path=/", "", "AUTORL_WEB_TOKEN: expected at least 16 letters"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(tmp_path, monkeypatch, token, folder, said):
    monkeypatch.setenv("AUTORL_WEB_TOKEN", token)
    assert said in autorl("watch", "--web", tmp_path / folder, code=2).stderr
