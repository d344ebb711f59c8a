"""Studies run by `python -m autorl` whose segments wait at a gate, so that a test can send signals meanwhile."""

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress

import psutil
import yaml
from patience import PATIENCE, wait_until

ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
MARKER = "AUTORL_TEST_MARKER"  # in the environment of all that a study of a test starts
GATE = """
import json, os, sys, time
from pathlib import Path

HERE = Path(__file__).parent


def wait_at_gate():
    (HERE / f"begun-{os.getpid()}").touch()
    while (HERE / "hold").exists():
        time.sleep(0.01)


def score(x, seed, step):
    return x - (x - 0.7) ** 2 + 0.01 * seed * step


def train(config, *, seed, evaluate_at, report):
    wait_at_gate()
    for step in evaluate_at:
        report(step, score(config["x"], seed, step))


if __name__ == "__main__":
    wait_at_gate()
    x, seed, until = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for step in (until // 2, until):
        print(json.dumps({"step": step, "eval_return": score(x, seed, step)}))
"""
TRAINERS = {
    "command": {
        "name": "command",
        "kwargs": {"command": "{python} gated.py {x} {seed} {until}", "metrics": {"step": "step"}},
    },
    "python": {"name": "python:gated:train"},
}


def gated_study(folder, trainer="python", **changes):
    """A study file of 4 proposals x 2 seeds whose segments wait while `folder/hold` exists."""
    (folder / "gated.py").write_text(GATE)
    kwargs = {**TRAINERS[trainer].get("kwargs", {}), "path": str(folder)}
    study = {
        "name": "gated",
        "trainer": {**TRAINERS[trainer], "kwargs": kwargs},
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "fidelity": {"steps": 10, "evaluations": 2},
        "budget": {"runs": 8},
        "seeds": {"tuning": 2, "test": 2},
        "optimizer": "random",
        "parallelism": 2,
        "executor": {"name": "processes", "workers": 2},
        "test": {"top": 1},
    }
    file = folder / "gated.yaml"
    file.write_text(yaml.safe_dump({**study, **changes}))
    return file


def default_signals():
    """Undo in a child what the tests inherit: a shell's `&` ignores SIGINT and SIGQUIT, `nohup` SIGHUP."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Session:
    """One run of the command line, all of whose processes carry a mark of their own."""

    def __init__(self, *arguments, ignored=()):
        def prepare():
            default_signals()
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-m", "autorl", *map(str, arguments)],
            env={**os.environ, MARKER: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=prepare,
        )

    def end(self):
        """(exit code, standard output, standard error), once it is over."""
        stdout, stderr = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, stdout, stderr

    def processes(self):
        """Everything that still runs and was started by this session, itself included."""
        return marked(self.mark)

    def wait_until_gone(self):
        return wait_until(lambda: not self.processes())


def marked(mark):
    """Processes whose environment holds a mark, and that have not ended."""
    alive = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended meanwhile
            if process.environ().get(MARKER) == mark and process.status() not in ENDED:
                alive.append(process.pid)
    return alive


def children(pid):
    """Process ids of the children of a process, whichever of its threads started them."""
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def hold(folder):
    for begun in folder.glob("begun-*"):
        begun.unlink()
    (folder / "hold").touch()


def release(folder):
    (folder / "hold").unlink(missing_ok=True)


def begun(folder, count=1):
    """Process ids of segments that wait at the gate, once there are `count` of them."""
    return wait_until(lambda: len(pids(folder)) >= count and pids(folder))


def pids(folder):
    return sorted(int(path.name.removeprefix("begun-")) for path in folder.glob("begun-*"))
