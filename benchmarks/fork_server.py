"""What a segment in a fresh process costs beside its training: start, imports, first use of the libraries.

    python benchmarks/fork_server.py [--segments 5] [sb3/ppo sb3/sac ...]

Each process trains the same short segment twice. `start` is from the request to the first line of the child, `first
use` is how much longer its first training takes than its second (imports among it), `modules` how many it imports.
CPU time is the child's own, which a busy machine changes less. `bare` is the same from a fork
server that has imported only torch and Stable-Baselines3.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from autorl.core.types import Config, EnvironmentSpec, Segment, SegmentId, TrainerSpec
from autorl.executors.children import adopt, fork_server, start
from autorl.trainers import load

STEPS = 32
CONFIGS = {
    "sb3/ppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1},
    "sb3/a2c": {"n_steps": 8},
    "sb3/dqn": {"learning_starts": 16, "buffer_size": 1000},
    "sb3/sac": {"learning_starts": 16, "buffer_size": 1000, "batch_size": 16},
    "sb3/td3": {"learning_starts": 16, "buffer_size": 1000, "batch_size": 16},
}
ENVIRONMENTS = {"sb3/sac": "Pendulum-v1", "sb3/td3": "Pendulum-v1"}
BARE = ("torch", "stable_baselines3", "autorl.trainers.sb3.trainer")


def segment(name: str, folder: str) -> Segment:
    return Segment(
        id=SegmentId(0, 0),
        trainer=TrainerSpec(name),
        environment=EnvironmentSpec(ENVIRONMENTS.get(name, "CartPole-v1")),
        config=Config(CONFIGS.get(name, {})),
        seed=0,
        role="tuning",
        until=STEPS,
        horizon=STEPS,
        evaluate_at=(STEPS,),
        save=True,
        folder=folder,
    )


def child(connection: Connection, name: str, place: str, asked: float) -> None:
    began, began_cpu = time.time(), time.process_time()
    adopt({})
    loaded = set(sys.modules)
    seconds, cpu = [], []
    for attempt in range(2):
        before, before_cpu = time.perf_counter(), time.process_time()
        outcome = load(TrainerSpec(name)).train(
            segment(name, f"{place}/{os.getpid()}-{attempt}"), lambda report: None
        )
        seconds.append(time.perf_counter() - before)
        cpu.append(time.process_time() - before_cpu)
        assert not outcome.status.failed, outcome.message
    modules = len(set(sys.modules) - loaded)
    connection.send((began - asked, began_cpu, seconds[0] - seconds[1], cpu[0] - cpu[1], modules))


def measure(name: str, preload: tuple[str, ...], segments: int) -> list[tuple[float, ...]]:
    """(start, its CPU time, first use, its CPU time, modules) of each of several processes, the first left out."""
    target = importlib.import_module(Path(__file__).stem).child  # children do not import `__main__`
    context, found = fork_server(preload), []
    with tempfile.TemporaryDirectory() as place:
        for _ in range(segments + 1):
            ours, theirs = get_context("forkserver").Pipe(duplex=False)
            process = start(context, target, (theirs, name, place, time.time()))
            theirs.close()
            found.append(ours.recv())
            process.join()
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trainers", nargs="*", default=list(CONFIGS))
    parser.add_argument("--segments", type=int, default=5)
    parser.add_argument(
        "--as-json", action="store_true", help=argparse.SUPPRESS
    )  # of one trainer, in its own process
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_json:
        (name,) = options.trainers
        preload = BARE if options.bare else tuple(load(TrainerSpec(name)).preload)
        print(json.dumps(measure(name, preload, options.segments)))
        return
    print(
        "medians in ms: trainer, server, start, its CPU time, first use, its CPU time; modules imported"
    )
    for name in options.trainers:
        for server in ("bare", "full"):
            command = [
                sys.executable,
                str(Path(__file__)),
                name,
                "--as-json",
                "--segments",
                str(options.segments),
            ]
            command += ["--bare"] if server == "bare" else []
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            *times, modules = (
                statistics.median(column) for column in zip(*json.loads(done.stdout), strict=True)
            )
            columns = " ".join(f"{1000 * seconds:8.0f}" for seconds in times)
            print(f"{name:<9} {server:<5} {columns} {modules:8.0f}", flush=True)


if __name__ == "__main__":
    main()
