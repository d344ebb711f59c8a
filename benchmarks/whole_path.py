"""The whole path: `autorl tune` against Stable-Baselines3, what the tuner itself costs, and how much memory it takes.

    python benchmarks/whole_path.py                  # 256 runs of 100,000 steps, then 4,096 short ones
    python benchmarks/whole_path.py --runs 32 --members 0 --rounds 1
    python benchmarks/whole_path.py --rounds 0        # the short runs alone, anew on the same page

A random search trains PPO on CartPole-v1 (100,000 steps a run, everything of the fixed setting that costs time; ten
evaluations of 10 episodes, of which Stable-Baselines3 makes none; store, checkpoints and test phase as in any study).
In the same round the engine alone trains and evaluates the same configurations and seeds, without tuner, store and
checkpoints, and Stable-Baselines3 trains the same setting with one single-threaded process per core. Overhead is what
the study takes beyond the engine alone, as a share of the study; on a busy machine trust its CPU seconds.

In the study of short runs (5,000 steps, one evaluation) the driver's share is that of its process (optimizer, store
and messages) in the CPU seconds of all processes, counted from the 64th segment on: start-up is behind it then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from population import HERE, JOBS, machine, run_sb3

JOB = "ppo-cartpole-64"
STEPS, EVALUATIONS, EPISODES = 100_000, 10, 10
STARTED = 64  # segments, after which the driver's share of CPU is counted
SHORT = "\n## Short runs\n"
STUDY = """
name: whole-path
trainer: {{name: population/ppo, kwargs: {{n_envs: 8, n_steps: 128, batch_size: 256, n_epochs: 4}}}}
environment: CartPole-v1
space:
  learning_rate: {{type: float, lower: 1e-5, upper: 3e-2, scale: log, default: 2.5e-3}}
  gamma: {{type: float, lower: 0.9, upper: 0.9999, scale: flipped_log, default: 0.99}}
  clip_range: {{type: float, lower: 0.05, upper: 0.5, default: 0.2}}
  ent_coef: {{type: float, lower: 0.0, upper: 0.1, default: 0.0}}
fidelity: {{steps: {steps}, evaluations: {evaluations}, episodes: {episodes}}}
optimizer: random
budget: {{runs: {runs}}}
seeds: {{tuning: 1, test: 1}}
test: {{top: 1}}
executor: {{name: threads, workers: {workers}}}
"""


@dataclass
class Cost:
    """What a command or a pass cost: seconds of wall clock and of all processors, peak resident memory in bytes."""

    wall: float
    cpu: float
    peak: int = 0
    steps: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)


def study(folder: Path, runs: int, steps: int, evaluations: int, workers: int) -> Cost:
    """`autorl tune` in a process of its own; the study stays in `folder`/study."""
    file = folder / "study.yaml"
    text = STUDY.format(
        runs=runs, steps=steps, evaluations=evaluations, episodes=EPISODES, workers=workers
    )
    file.write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "autorl",
        "tune",
        str(file),
        "--out",
        str(folder / "study"),
        "--quiet",
    ]
    cpu: dict[int, float] = {}
    started: dict[int, float] = {}
    logs = folder / "study" / "logs"
    began = time.perf_counter()
    peak = 0
    with (
        (folder / "output").open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        while process.poll() is None:
            seen = {pid: usage(pid) for pid in family(process.pid)}
            cpu |= {pid: seconds for pid, (seconds, _) in seen.items() if seconds}
            peak = max(peak, sum(memory for _, memory in seen.values()))
            if not started and logs.is_dir() and len(os.listdir(logs)) >= STARTED:
                started = dict(cpu)
            time.sleep(0.05)
    wall = time.perf_counter() - began
    if process.returncode != 0:
        raise SystemExit((folder / "output").read_text(encoding="utf-8"))
    with sqlite3.connect(folder / "study" / "study.sqlite") as connection:
        (trained,) = connection.execute("SELECT sum(environment_steps) FROM runs").fetchone()
    parts = {"all": sum(cpu.values()) - sum(started.values())}
    parts["driver"] = cpu[process.pid] - started.get(process.pid, 0.0)
    return Cost(wall, sum(cpu.values()), peak, trained, parts)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    try:
        children = [
            Path(f"/proc/{pid}/task/{task}/children") for task in os.listdir(f"/proc/{pid}/task")
        ]
        found = [
            int(word) for path in children for word in path.read_text(encoding="ascii").split()
        ]
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return []
    return [pid, *(member for child in found for member in family(child))]


def usage(pid: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of a process so far; pages it shares with others are counted in each.

    Read while it lives: `getrusage` knows nothing of a grandchild that nobody waited for.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * resource.getpagesize()


def engine_alone(folder: Path, workers: int) -> Cost:
    """Train and evaluate the members of the study in `folder` again, without tuner, store and checkpoints."""
    with sqlite3.connect(folder / "study" / "study.sqlite") as connection:
        query = "SELECT config, seed, seed_role FROM runs JOIN configurations USING (config_id) ORDER BY run_id"
        members = [
            (json.loads(config), seed, role) for config, seed, role in connection.execute(query)
        ]
    fixed = {
        name: JOBS[JOB].config[name] for name in ("n_envs", "n_steps", "batch_size", "n_epochs")
    }
    waiting, totals = iter(members), {"training": 0.0, "evaluation": 0.0}
    lock, began = threading.Lock(), time.perf_counter()

    def work() -> None:
        while True:
            with lock:
                member = next(waiting, None)
            if member is None:
                return
            config, seed, role = member
            spent = train_and_evaluate({**fixed, **config}, seed, role)
            with lock:
                for part, seconds in spent.items():
                    totals[part] += seconds

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Cost(time.perf_counter() - began, sum(totals.values()), parts=totals)


def train_and_evaluate(config: dict[str, Any], seed: int, role: Any) -> dict[str, float]:
    """One member, evaluated like a segment of the study; CPU seconds of both."""
    from autorl.core.seeds import digest, evaluation_seeds
    from autorl.population import engine
    from autorl.population.environments import find_environment
    from autorl.population.hyperparameters import record

    algorithm, environment = engine.find_algorithm("ppo"), find_environment("CartPole-v1")
    marks = [time.thread_time()]
    hp = record(algorithm.settings, config, STEPS)
    state = algorithm.create(environment, hp, digest(seed, "training") % 2**64, np.float32)
    bound = algorithm.bind(state, environment, hp)
    for part in range(1, EVALUATIONS + 1):
        step = STEPS * part // EVALUATIONS
        engine.train_to(bound, algorithm, state, hp, step)
        marks.append(time.thread_time())
        engine.evaluation(bound, state, environment, evaluation_seeds(seed, role, step, EPISODES))
        marks.append(time.thread_time())
    spent = [after - before for before, after in itertools.pairwise(marks)]
    return {"training": sum(spent[::2]), "evaluation": sum(spent[1::2])}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds: the study, the engine alone, Stable-Baselines3."""
    from population import engine_parts

    engine_parts(JOBS[JOB], 0)[3].advance(1)  # compiled before the clock runs
    rounds = []
    for turn in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            whole = study(Path(name), options.runs, STEPS, EVALUATIONS, options.workers)
            alone = engine_alone(Path(name), options.workers)
        peer = run_sb3(JOBS[JOB], options.workers, options.seconds)
        rounds.append({"study": whole, "alone": alone, "peer": peer})
        print(
            f"round {turn + 1}: {whole.steps / whole.wall:,.0f} steps/s, SB3 {peer.rate:,.0f}",
            flush=True,
        )
    return rounds


def report(rounds: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """What the rounds found, as Markdown."""

    def median(value: Any) -> str:
        values = [value(turn["study"], turn["alone"], turn["peer"]) for turn in rounds]
        return f"{statistics.median(values):,.3g} ({min(values):,.3g} to {max(values):,.3g})"

    packages = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "numba", "torch", "stable_baselines3")
    )
    lines = [
        "# The whole path: measured",
        "",
        f"Machine: {os.cpu_count()} cores, {machine()}; Python {platform.python_version()}; {packages}.",
        f"`autorl tune`: {options.runs} runs of {STEPS:,} steps of PPO on CartPole-v1, random search, {EVALUATIONS} "
        f"evaluations of {EPISODES} episodes a run, with a test phase of 1 seed (incumbent and default: 2 runs at "
        f"most); {options.workers} workers; {options.rounds} "
        f"rounds; load average {options.load:.1f} at the start. Medians (range).",
        "",
        "| what | figure |",
        "| --- | --- |",
        f"| study, steps/s | {median(lambda s, a, p: s.steps / s.wall)} |",
        f"| study, steps per CPU-second | {median(lambda s, a, p: s.steps / s.cpu)} |",
        f"| Stable-Baselines3, steps/s | {median(lambda s, a, p: p.rate)} |",
        f"| Stable-Baselines3, steps per CPU-second | {median(lambda s, a, p: p.steps / p.cpu)} |",
        f"| ratio, wall clock | {median(lambda s, a, p: s.steps / s.wall / p.rate)} |",
        f"| ratio, per CPU-second | {median(lambda s, a, p: s.steps / s.cpu / (p.steps / p.cpu))} |",
        f"| study, CPU seconds | {median(lambda s, a, p: s.cpu)} |",
        f"| of these training | {median(lambda s, a, p: a.parts['training'])} |",
        f"| of these evaluation | {median(lambda s, a, p: a.parts['evaluation'])} |",
        f"| tuner, store, checkpoints, start-up, % of CPU | {median(lambda s, a, p: 100 - 100 * a.cpu / s.cpu)} |",
        f"| the same, % of wall clock | {median(lambda s, a, p: 100 - 100 * a.wall / s.wall)} |",
        f"| peak resident memory, GB | {median(lambda s, a, p: s.peak / 1e9)} |",
    ]
    return "\n".join(lines) + "\n"


def short_runs(cost: Cost, options: argparse.Namespace) -> str:
    """What the study of short runs found, as Markdown."""
    driver, everything = cost.parts["driver"], cost.parts["all"]
    return (
        f"{SHORT}\n{options.members:,} runs in one study ({options.member_steps:,} steps each, one evaluation): "
        f"{cost.peak / 1e9:.2f} GB peak resident memory over all processes, {cost.wall:.0f} s, {cost.cpu:.0f} CPU "
        f"seconds; the driver has {driver / everything:.1%} of them, {1e3 * driver / (options.members - STARTED):.2g} "
        f"ms a run. {os.cpu_count()} cores, load average {options.load:.1f} at the start.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of Stable-Baselines3 in a round"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--members",
        type=int,
        default=4096,
        help="runs of the study of short runs; 0 = leave it out",
    )
    parser.add_argument("--member-steps", type=int, default=5000)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "whole_path.md")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]
    rounds = measure(options)
    before = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
    text = report(rounds, options) if rounds else before.partition(SHORT)[0]
    if options.members:
        with tempfile.TemporaryDirectory() as name:
            cost = study(Path(name), options.members, options.member_steps, 1, options.workers)
        text += short_runs(cost, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
