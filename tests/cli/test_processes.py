"""`python -m autorl` as a process: interrupts, kills, a second driver, what importing costs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import as_json, autorl, query, study_file
from patience import PATIENCE, wait_until
from signal_studies import default_signals

GATED = """
import time
from itertools import count
from pathlib import Path

HERE = Path(__file__).parent


def is_mine(place):
    # Places are taken one by one: of two that begin at once both saw two, and waited for ever.
    try:
        place.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def train(config, *, seed, evaluate_at, report):
    number = next(number for number in count(1) if is_mine(HERE / f"begun-{number}"))
    while (HERE / "hold").exists() and number > int((HERE / "hold").read_text() or 0):
        time.sleep(0.01)
    for step in evaluate_at:
        report(step, config["x"] - (config["x"] - 0.7) ** 2 + 0.01 * seed * step)
"""
HEAVY = [
    "torch",
    "optuna",
    "gymnasium",
    "pandas",
    "scipy",
    "ConfigSpace",
    "duckdb",
    "numba",
    "pydantic",
    "numpy",
]


def start(*arguments):
    command = [sys.executable, "-m", "autorl", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=default_signals,
    )


def gated(folder, **changes):
    """A study whose segments wait while `hold` exists once as many have begun as it says."""
    (folder / "gated.py").write_text(GATED)
    trainer = f"python:{folder / 'gated.py'}:train"
    return study_file(folder, trainer=trainer, **changes)


def hold(folder, after):
    for begun in folder.glob("begun-*"):
        begun.unlink()
    (folder / "hold").write_text(str(after))


def wait_for_segments(folder, count):
    """Wait until a study has `count` outcomes; its tables are read while the driver writes them."""

    def look():
        if not ((folder / "study.sqlite").exists() and (folder / "study.yaml").exists()):
            return None
        found = as_json("watch", folder)
        enough = query(folder, "SELECT COUNT(*) FROM segments")[0][0] >= count
        return found if enough and sum(found["proposals"].values()) else None

    return wait_until(look)


def killed(folder, file):
    """Run a study that holds after four segments, kill it there, and let later ones pass."""
    hold(folder, after=4)
    process = start("tune", file, "--out", folder / "s", "--quiet")
    wait_for_segments(folder / "s", 4)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    (folder / "hold").unlink()


def scores(folder):
    return query(folder, "SELECT proposal, seed, value FROM tests ORDER BY proposal, seed")


def test_status_while_a_driver_runs_then_interrupt_then_resume(tmp_path):
    file = gated(tmp_path)
    autorl("tune", file, "--out", tmp_path / "whole", "--quiet")
    hold(tmp_path, after=3)
    process = start("tune", file, "--out", tmp_path / "s")
    found = wait_for_segments(tmp_path / "s", 3)
    assert found["state"] == "running"
    assert found["driver"].startswith(f"process {process.pid} on ")
    refused = autorl("resume", tmp_path / "s", code=2).stderr
    assert f"process {process.pid}" in refused
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"autorl resume {tmp_path / 's'}" in stderr
    assert stderr.count("\n") == 1
    assert as_json("watch", tmp_path / "s")["state"] == "stopped"
    (tmp_path / "hold").unlink()
    autorl("resume", tmp_path / "s", "--quiet")
    assert scores(tmp_path / "s") == scores(tmp_path / "whole")


@pytest.mark.parametrize("executor", [{"name": "in_process"}, {"name": "processes", "workers": 2}])
def test_a_killed_study_has_a_status_and_ends_with_the_same_scores(tmp_path, executor):
    file = gated(tmp_path, executor=executor, budget={"runs": 12})
    alone = ("--set", "executor={name: in_process}")
    autorl("tune", file, "--out", tmp_path / "whole", "--quiet", *alone)
    killed(tmp_path, file)
    found = as_json("watch", tmp_path / "s")
    assert (found["state"], found["driver"]) == ("stopped", None)
    assert "autorl resume" in autorl("watch", tmp_path / "s", "--once").stdout
    resumed = as_json("resume", tmp_path / "s", "--quiet", "--workers", 1)
    assert scores(tmp_path / "s") == scores(tmp_path / "whole")
    assert resumed["test"]["n_seeds"] == 6


def test_test_ends_a_search_where_it_is_and_says_so(tmp_path):
    file = gated(tmp_path, budget={"runs": 48})
    killed(tmp_path, file)
    tested = as_json("test", tmp_path / "s", "--quiet")
    assert tested["test"]["n_seeds"] == 6
    assert sum(tested["proposals"].values()) < 24
    assert any("opens it again" in text for text in as_json("watch", tmp_path / "s")["warnings"])
    again = autorl("resume", tmp_path / "s", "--quiet", "--json")
    assert "opens it again" in again.stderr
    assert json.loads(again.stdout)["test"] == tested["test"]
    reopened = as_json("resume", tmp_path / "s", "--runs", "+2", "--quiet")
    assert sum(reopened["proposals"].values()) == 25


def test_importing_the_command_line_imports_nothing_heavy():
    code = f"import autorl.cli, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unexpected_exception_keeps_its_traceback(tmp_path):
    code = (
        "import sys, autorl.trainers, autorl.cli\n"
        "def defect():\n    raise ZeroDivisionError('a defect')\n"
        "autorl.trainers.names = defect\n"
        "sys.argv = ['autorl', 'list', 'trainers']\n"
        "autorl.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError: a defect" in done.stderr


def test_exit_codes_and_streams_of_the_process(tmp_path):
    stdout, stderr = start("tune", tmp_path / "none.yaml").communicate(timeout=PATIENCE)
    assert (stdout, stderr) == ("", f"autorl: {tmp_path / 'none.yaml'}: file not found\n")
    process = start("tune", study_file(tmp_path), "--out", tmp_path / "s", "--json", "--quiet")
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (0, "")
    assert json.loads(stdout)["test"]["n_seeds"] == 6


def test_a_process_that_has_read_a_landscape_ends_in_silence(tmp_path):
    """DuckDB's types were called leaks, in forty lines, of a process that freezes its imports."""
    home = Path(__file__).parents[2] / "landscapes/autorl/sac/Pendulum-v1"
    text = f"""
trainer: {{name: tabular, kwargs: {{landscape: {home}}}}}
space: {home}/space.yaml
fidelity: {{steps: 10240, evaluations: 10}}
budget: {{runs: 6}}
seeds: {{tuning: 2, test: 2}}
"""
    (tmp_path / "study.yaml").write_text(text)
    command = [sys.executable, "-m", "autorl", "tune", str(tmp_path / "study.yaml"), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
