"""`autorl watch --web` as a process: its address, how it ends, and what it refuses to start with."""

import signal
import subprocess
import sys
import urllib.request

import pytest
from cli_support import autorl, finished_study
from patience import PATIENCE
from signal_studies import default_signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_it_prints_its_address_and_ends_at_a_signal(tmp_path, number, code):
    finished_study(tmp_path, seeds={"tuning": 2, "test": 0})
    process = subprocess.Popen(
        [sys.executable, "-m", "autorl", "watch", "--web", str(tmp_path), "--port", "0"],
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


def test_what_is_no_folder_is_refused_in_a_line(tmp_path):
    done = autorl("watch", "--web", tmp_path / "nothing", code=2)
    assert "is not a folder" in done.stderr


@pytest.mark.parametrize("token", ["short", "0123456789abcdef;Path=/"])
def test_a_token_that_cannot_be_one_is_refused(tmp_path, monkeypatch, token):
    monkeypatch.setenv("AUTORL_WEB_TOKEN", token)
    done = autorl("watch", "--web", tmp_path, code=2)
    assert "AUTORL_WEB_TOKEN: expected at least 16 letters and digits" in done.stderr
