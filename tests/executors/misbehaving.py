"""A trainer whose configuration says how to misbehave; imported by name in worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from patience import FOREVER

from autorl.core.types import InputError, Outcome, Report, Status
from autorl.trainers import Trainer

ERRORS = {"memory-error": MemoryError(), "float": FloatingPointError("NaN in the weights")}


def print_much(megabytes):
    """Past Python's own output, and from another process."""
    os.write(1, b"first\n")
    code = f"import os; [os.write(1, b'x' * 65536) for _ in range({megabytes * 16})]"
    subprocess.run([sys.executable, "-c", code], check=True)
    for _ in range(megabytes * 16):
        os.write(2, b"y" * 65536)
    os.write(1, b"last\n")


class Misbehaving(Trainer):
    def train(self, segment, report):
        config = segment.config
        print("training", segment.id, flush=True)
        act = config.get("act", "train")
        if act == "print":
            print_much(config["megabytes"])
        if act == "raise":
            raise ValueError("v" * config.get("characters", 0) or "first line\nsecond line")
        if act == "input":
            raise InputError("no such option", key="trainer.kwargs.x")
        if act == "hang":
            report(Report(segment.id, 0, {"hangs": 1.0}))
            time.sleep(FOREVER)
        if act == "hang-with-child":
            child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER})"])
            Path(config["pid_file"]).write_text(str(child.pid))
            time.sleep(FOREVER)
        if act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "hog":
            hog = bytearray(400 * 2**20)
            time.sleep(FOREVER)
            del hog
        if act in ERRORS:
            raise ERRORS[act]
        reports = tuple(
            Report(segment.id, step, {"eval_return": float(step)}) for step in segment.evaluate_at
        )
        for one in reports:
            report(one)
        cost = {"wall_seconds": 0.0, "pid": float(os.getpid())}
        environment = {
            "cuda": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "omp": os.environ.get("OMP_NUM_THREADS", ""),
        }
        return Outcome(segment.id, Status.DONE, segment.until, reports, cost, applied=environment)


def load(spec):
    return Misbehaving()
