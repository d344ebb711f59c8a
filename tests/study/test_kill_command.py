"""`autorl tune`, killed at ten random moments and resumed each time, ends with the table of a quiet run."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
import yaml
from small_studies import MIXED as SPACE
from study_support import RACING, TRAINER, table

KILLS = 10


def command(*arguments):
    return [sys.executable, "-m", "autorl", *map(str, arguments)]


def study_file(path, workers, **changes):
    study = {
        "name": "killed",
        "trainer": {"name": "synthetic", "kwargs": {**TRAINER, "seconds": 0.05}},
        "space": SPACE,
        "fidelity": {"steps": 100, "evaluations": 4},
        "budget": {"runs": 30},
        "seeds": {"tuning": 2, "test": 3},
        "parallelism": 4,
        "executor": {"name": "processes", "workers": workers},
        "keep": {"checkpoints": "top"},
    }
    path.write_text(yaml.safe_dump(study | changes))
    return path


def events(folder):
    """How many events the study has recorded."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'study.sqlite'}?mode=ro", uri=True)) as study:
            return study.execute("SELECT COUNT(*) FROM event").fetchone()[0]
    except sqlite3.OperationalError:  # not there yet
        return 0


def run_and_kill(folder, file, rng, longest):
    """Kill ten sessions, each a random moment after a random number of new events; the eleventh runs to the end."""
    for _ in range(KILLS):
        process = subprocess.Popen(
            start(folder, file), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        enough = events(folder) + rng.randint(1, longest)
        while events(folder) < enough and process.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
        assert process.returncode == -signal.SIGKILL, error.decode()
    subprocess.run(start(folder, file), check=True, stdout=subprocess.DEVNULL)


def start(folder, file):
    begun = (folder / "study.yaml").exists()
    return command("resume", folder) if begun else command("tune", file, "--out", folder)


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)
@pytest.mark.parametrize(("optimizer", "changes"), [("tpe", {}), ("cmaes", RACING), ("gp", {})])
def test_killed_at_ten_random_moments(tmp_path, optimizer, changes):
    changes = {**changes, "optimizer": optimizer}
    if optimizer == "gp":
        changes["budget"] = {"runs": 20}
    quiet = study_file(tmp_path / "quiet.yaml", workers=1, **changes)
    subprocess.run(
        command("tune", quiet, "--out", tmp_path / "quiet"), check=True, stdout=subprocess.DEVNULL
    )
    killed = study_file(tmp_path / "killed.yaml", workers=3, **changes)
    rng = random.Random(f"{optimizer} {len(changes)}")
    run_and_kill(tmp_path / "killed", killed, rng, longest=events(tmp_path / "quiet") // 16)
    assert table(tmp_path / "killed") == table(tmp_path / "quiet")
