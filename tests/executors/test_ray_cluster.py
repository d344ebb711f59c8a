"""Ray itself: a study on a Ray of its own, and on nodes that are killed and added on the way.

Nodes are separate `ray start` processes of this machine. No test here runs if the extra `ray` is
missing. A study that starts a Ray of its own is slow to test: at a load of 40 on 2 cores Ray itself
gives up.
"""

import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from patience import wait_until
from ray_processes import Nodes

import autorl
from autorl.core.os_processes import descendants

sys.path.insert(0, str(Path(__file__).parents[1] / "study"))

from small_studies import MIXED as SPACE
from small_studies import TRAINER
from study_support import table
from test_kill_command import events

pytest.importorskip("ray", reason="the extra `ray` is not installed")

ROOT = str(Path(autorl.__file__).parents[1])
SCRIPT = """
import argparse, json, os, pathlib, time
flags = argparse.ArgumentParser()
for name in ("--x", "--seed", "--until", "--start"):
    flags.add_argument(name, type=float)
flags.add_argument("--seen", default="")
flags.add_argument("--hold", default="")
values = flags.parse_args()
time.sleep(0.2)
if os.path.exists(values.hold):
    pathlib.Path(f"{values.hold}-{os.getpid()}").touch()
while os.path.exists(values.hold):
    time.sleep(0.05)
if values.seen:
    with open(values.seen, "a") as file:
        file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "none") + "\\n")
score = -((values.x - 0.3) ** 2) + 0.01 * (values.seed % 7)
print(json.dumps({"step": int(values.until), "eval_return": score}))
"""


@pytest.fixture
def surroundings(tmp_path):
    """Variables of a user with an empty home, by which all processes of a test are known."""
    folder = tempfile.mkdtemp(prefix="art-", dir="/tmp")  # sockets of Ray have short paths
    mark = secrets.token_hex(8)
    (tmp_path / "home").mkdir()
    yield os.environ | {
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": ROOT,
        "TMPDIR": folder,
        "AUTORL_TEST_MARK": mark,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    for process in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def marked(mark):
    """Processes that live and have the mark in their environment."""
    text = f"AUTORL_TEST_MARK={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                if text in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def small_study(path, **changes):
    study = {
        "name": "small",
        "trainer": {"name": "synthetic", "kwargs": TRAINER},
        "space": SPACE,
        "fidelity": {"steps": 100, "evaluations": 4},
        "budget": {"runs": 8},
        "seeds": {"tuning": 2, "test": 2},
        "parallelism": 4,
    }
    path.write_text(yaml.safe_dump(study | changes))
    return path


def tune(file, folder, variables, *more):
    arguments = [sys.executable, "-m", "autorl", "tune", str(file), "--out", str(folder), *more]
    return subprocess.Popen(
        arguments, env=variables, cwd=file.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finished(process):
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    return error.decode()


# -- a Ray of the study's own ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.cpu_seconds(300)
def test_a_study_on_a_ray_of_its_own_has_the_same_table_and_leaves_nothing(tmp_path, surroundings):
    local = small_study(tmp_path / "ray.yaml", executor={"name": "ray", "workers": 2})
    here = small_study(tmp_path / "here.yaml", executor={"name": "in_process"})
    finished(tune(here, tmp_path / "here", surroundings))
    finished(tune(local, tmp_path / "ray", surroundings))
    assert table(tmp_path / "ray") == table(tmp_path / "here")
    wait_until(lambda: not marked(surroundings["AUTORL_TEST_MARK"]))
    assert os.listdir(surroundings["TMPDIR"]) == []
    assert not (tmp_path / "home" / ".ray").exists()
    assert not list((tmp_path / "ray").rglob(".tmp-*"))


@pytest.mark.slow
@pytest.mark.cpu_seconds(300)
def test_a_driver_that_is_killed_leaves_no_process_and_its_study_goes_on(tmp_path, surroundings):
    trainer = {"name": "synthetic", "kwargs": {**TRAINER, "seconds": 0.3}}
    executor = {"name": "ray", "workers": 2}
    local = small_study(tmp_path / "ray.yaml", executor=executor, trainer=trainer)
    here = small_study(tmp_path / "here.yaml", executor={"name": "in_process"}, trainer=trainer)
    finished(tune(here, tmp_path / "here", surroundings))
    process = tune(local, tmp_path / "ray", surroundings)
    wait_until(lambda: events(tmp_path / "ray") > 12)
    process.kill()
    process.communicate()
    wait_until(lambda: not marked(surroundings["AUTORL_TEST_MARK"]))
    again = [sys.executable, "-m", "autorl", "resume", str(tmp_path / "ray")]
    subprocess.run(again, env=surroundings, check=True, stdout=subprocess.DEVNULL)
    assert table(tmp_path / "ray") == table(tmp_path / "here")


# -- a cluster -------------------------------------------------------------------------------------


@contextmanager
def running_cluster(variables, tmp_path):
    nodes = Nodes(variables, tmp_path)
    try:
        yield nodes
    finally:
        nodes.close()


COMMAND = {
    "trainer": {
        "name": "command",
        "kwargs": {
            "command": "{python} script.py --x {x} --seed {seed} --until {until} --start {start}",
            "metrics": {"from": "stdout", "step": "step", "map": {"eval_return": "eval_return"}},
        },
    },
    "space": {"x": "uniform(0, 1)"},
    "fidelity": {"steps": 10, "evaluations": 1},
    "budget": {"runs": 24},
}


def lost_with_their_node(folder):
    """How many attempts a study has lost by which no segment is at fault."""
    with closing(sqlite3.connect(folder / "study.sqlite")) as log:
        bodies = log.execute("SELECT body FROM event WHERE kind = 'attempt'").fetchall()
    return sum(json.loads(body).get("preempted", False) for (body,) in bodies)


@pytest.mark.cpu_seconds(300)
def test_a_node_killed_while_it_trains_leaves_the_table_as_it_is(tmp_path, surroundings):
    """The node that is left trains the rest."""
    (tmp_path / "script.py").write_text(SCRIPT)
    hold = tmp_path / "hold"
    changes = dict(COMMAND)
    kwargs = dict(changes["trainer"]["kwargs"])
    kwargs["command"] += f" --hold {hold}"
    changes |= {"trainer": {"name": "command", "kwargs": kwargs}, "budget": {"runs": 10}}
    here = small_study(tmp_path / "here.yaml", executor={"name": "in_process"}, **changes)
    finished(tune(here, tmp_path / "here", surroundings))
    with running_cluster(surroundings, tmp_path) as nodes:
        pair = [nodes.add(), nodes.add()]
        executor = {"name": "ray", "address": nodes.address}
        far = small_study(tmp_path / "far.yaml", executor=executor, **changes)
        process = tune(far, tmp_path / "far", nodes.variables)
        wait_until(lambda: events(tmp_path / "far") > 8)
        hold.touch()
        held = wait_until(lambda: next(tmp_path.glob("hold-*"), None))
        script = int(held.name.removeprefix("hold-"))
        (doomed,) = (node for node in pair if script in descendants(node.pid))
        nodes.kill(doomed)
        hold.unlink()
        finished(process)
    # A node that was slow to begin has its segments copied, and what it loses then is no loss.
    copied = list((tmp_path / "far" / "logs").glob("*-*-*.log"))
    assert copied or lost_with_their_node(tmp_path / "far") > 0
    assert table(tmp_path / "far") == table(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)
@pytest.mark.parametrize(("gpu", "count"), [(2, 2), (0.25, 1)])
def test_segments_see_the_devices_they_have(tmp_path, surroundings, gpu, count):
    (tmp_path / "script.py").write_text(SCRIPT)
    seen = tmp_path / "seen"
    changes = dict(COMMAND)
    kwargs = dict(changes["trainer"]["kwargs"])
    kwargs["command"] += f" --seen {seen}"
    changes |= {"trainer": {"name": "command", "kwargs": kwargs}, "resources": {"gpu": gpu}}
    with running_cluster(surroundings, tmp_path) as nodes:
        nodes.add("--num-gpus=4", "--num-cpus=8")
        executor = {"name": "ray", "address": nodes.address}
        file = small_study(tmp_path / "gpu.yaml", executor=executor, **changes)
        finished(tune(file, tmp_path / "gpu", nodes.variables))
    devices = [line.split(",") for line in seen.read_text().splitlines()]
    assert devices
    for visible in devices:
        assert len(visible) == len(set(visible)) == count
        assert set(visible) <= {"0", "1", "2", "3"}
