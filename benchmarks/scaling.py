"""What a proposal costs beside Ray Tune and Optuna, and what 10,000 workers would wait for.

    python benchmarks/scaling.py overhead                   # 200 trials that do nothing, of each
    python benchmarks/scaling.py overhead --only threads,ray,ray_tune --trials 1000
    python benchmarks/scaling.py simulation                 # 10,000 workers and 1,000,000 runs

`overhead` runs the same random search over four numbers with trials that do nothing. CPU seconds are
of the driver's process, user and system, because the machine may do other things; workers' are left
out, but for `in_process`, which has none. Each contestant is a process of its own that has run 20
trials before it is measured, so that what is paid once (imports, a cluster, a database) is left out.
What is not installed is said and left out. Studies and databases lie in a temporary folder
(`TMPDIR`; a memory disk keeps the waiting of a disk out, not its CPU seconds).

`simulation` measures what one outcome costs the driver here (CPU, a synced write, bytes in the
database and in memory), and plays workers that train for lognormal times against one driver that
serves what has come in as a batch: one synced write for each batch, CPU for each outcome. It says
how busy workers and driver are, how large log and memory become, and what is full first. Costs are
taken to be the same at every size: `benchmarks/growth.py` says what they really grow by.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("a", "b", "c", "d")
WARM_UP = 20
SIGMA = 1.0  # of the logarithm of a run's time
OURS = ("in_process", "threads", "processes", "ray")


def no_op(config: dict[str, Any], *, seed: int) -> float:
    """The trial of all contestants."""
    return float(config["a"])


# -- contestants: each runs `trials` trials in `folder` ----------------------------------------


def run_ours(executor: str, trials: int, folder: Path) -> None:
    from autorl.study import Study
    from autorl.study.spec import load_spec

    if executor == "ray":
        start_ray()  # what runs already is used: both contestants on Ray have one for all trials
    numbers = {name: {"type": "float", "lower": 0.0, "upper": 1.0} for name in NAMES}
    workers = 1 if executor == "in_process" else os.cpu_count()
    document = {
        "name": "overhead",
        "trainer": "python:scaling:no_op",
        "path": str(Path(__file__).parent),
        "space": {"hyperparameters": numbers},
        "optimizer": "random",
        "budget": {"runs": trials},
        "seeds": {"tuning": 1, "test": 0},
        "parallelism": 8,
        "executor": {"name": executor, "workers": workers},
    }
    study = Study.create(load_spec(document), folder)
    study.run()
    study.close()


def start_ray() -> None:
    """Start a Ray on this machine, unless this process has one."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)


def run_ray_tune(trials: int, folder: Path) -> None:
    from ray import tune

    class NoOp(tune.Trainable):  # type: ignore[misc]  # no types of Ray
        def step(self) -> dict[str, Any]:
            return {"value": float(self.config["a"]), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None: ...

        def load_checkpoint(self, checkpoint: Any) -> None: ...

    start_ray()
    tune.Tuner(
        NoOp,
        param_space={name: tune.uniform(0.0, 1.0) for name in NAMES},
        tune_config=tune.TuneConfig(
            metric="value",
            mode="max",
            num_samples=trials,
            max_concurrent_trials=8,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()


def run_optuna(storage: str, trials: int, folder: Path) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir()
    database: Any = f"sqlite:///{folder / 'study.db'}"
    if storage == "journal":
        backend = JournalFileBackend(str(folder / "journal"))
        database = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0), storage=database)
    study.optimize(
        lambda trial: no_op({name: trial.suggest_float(name, 0, 1) for name in NAMES}, seed=0),
        n_trials=trials,
    )


def _contestants() -> dict[str, tuple[str, Callable[[int, Path], None]]]:
    """Each contestant by name: the package it needs, and what runs it."""
    from functools import partial

    needs = dict.fromkeys(OURS, "autorl") | {"ray": "ray"}
    ours = {name: (needs[name], partial(run_ours, name)) for name in OURS}
    return {
        **ours,
        "ray_tune": ("ray", run_ray_tune),
        "optuna_sqlite": ("optuna", partial(run_optuna, "sqlite")),
        "optuna_journal": ("optuna", partial(run_optuna, "journal")),
    }


# -- overhead ----------------------------------------------------------------------------------


def measure(name: str, trials: int) -> dict[str, float]:
    """Run a contestant in this process, and return seconds of CPU and wall clock per trial."""
    _, run = _contestants()[name]
    with tempfile.TemporaryDirectory() as folder:
        run(WARM_UP, Path(folder) / "warm-up")
        cpu = time.process_time()
        wall = time.monotonic()
        run(trials, Path(folder) / "measured")
        return {
            "cpu": (time.process_time() - cpu) / trials,
            "wall": (time.monotonic() - wall) / trials,
        }


def overhead(trials: int, only: list[str]) -> None:
    """Measure every contestant in a process of its own, and print the table."""
    print(f"{trials} trials that do nothing; CPU of the driver's process")
    print(f"{'':16} {'ms CPU a trial':>15} {'ms wall a trial':>16} {'times threads':>14}")
    measured: dict[str, dict[str, float]] = {}
    for name in only:
        needs, _ = _contestants()[name]
        if importlib.util.find_spec(needs) is None:
            print(f"{name:16} {needs} is not installed")
            continue
        command = [sys.executable, __file__, "measure", name, "--trials", str(trials)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        measured[name] = json.loads(answer.splitlines()[-1])
        row = measured[name]
        ratio = ""
        if "threads" in measured:
            ratio = f"{row['cpu'] / measured['threads']['cpu']:.1f}"
        print(
            f"{name:16} {1e3 * row['cpu']:15.2f} {1e3 * row['wall']:16.2f} {ratio:>14}", flush=True
        )


# -- simulation --------------------------------------------------------------------------------


def measured_costs(trials: int) -> dict[str, float]:
    """Measure what one outcome costs the driver here."""
    import resource

    with tempfile.TemporaryDirectory() as folder:
        run_ours("in_process", WARM_UP, Path(folder) / "warm-up")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cpu = time.process_time()
        run_ours("in_process", trials, Path(folder) / "measured")
        cpu = time.process_time() - cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        database = (Path(folder) / "measured" / "study.sqlite").stat().st_size
        return {
            "cpu": cpu / trials,
            "sync": _seconds_of_sync(Path(folder)),
            "database": database / trials,
            "memory": 1024 * max(0, memory) / trials,
        }


def _seconds_of_sync(folder: Path) -> float:
    """Return the median seconds of a small synced write."""
    seconds = []
    with (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            begun = time.monotonic()
            os.fsync(file.fileno())
            seconds.append(time.monotonic() - begun)
    return statistics.median(seconds)


def play(
    workers: int, runs: int, mean_seconds: float, costs: dict[str, float]
) -> tuple[float, float, float]:
    """Play workers against one driver.

    Args:
        workers: that train; each gets its next run when the driver has served its last.
        runs: in all.
        mean_seconds: of a run, lognormal with `SIGMA`.
        costs: as `measured_costs` returns them.

    Returns:
        Share of the time workers and the driver were busy, and runs in a second.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    times = rng.lognormal(np.log(mean_seconds) - SIGMA**2 / 2, SIGMA, size=runs)
    ends = [float(seconds) for seconds in times[:workers]]
    heapq.heapify(ends)
    handed_out = len(ends)
    clock = 0.0
    driver = 0.0
    while ends:
        clock = max(clock, ends[0])
        batch = 0
        while ends and ends[0] <= clock:
            heapq.heappop(ends)
            batch += 1
        service = costs["sync"] + batch * costs["cpu"]
        clock += service
        driver += service
        for _ in range(min(batch, runs - handed_out)):
            heapq.heappush(ends, clock + float(times[handed_out]))
            handed_out += 1
    return float(times.sum()) / (workers * clock), driver / clock, runs / clock


def simulation(workers: int, runs: int, seconds: float, costs: dict[str, float]) -> None:
    """Print how busy workers and driver are for runs of several lengths, and what is full first.

    `seconds`: mean time of the runs whose first bottleneck is named.
    """
    print(
        f"an outcome costs the driver {1e3 * costs['cpu']:.2f} ms of CPU, {costs['database']:,.0f} "
        f"bytes of database and {costs['memory']:,.0f} of memory; a synced write takes "
        f"{1e3 * costs['sync']:.2f} ms"
    )
    print(f"{workers:,} workers, {runs:,} runs of lognormal time (sigma {SIGMA:g})")
    print(f"{'mean seconds':>12} {'workers busy':>13} {'driver busy':>12} {'runs a second':>14}")
    for mean in (3600.0, 600.0, 60.0, 10.0, 1.0):
        busy, driver, rate = play(workers, runs, mean, costs)
        print(f"{mean:12,.0f} {busy:13.0%} {driver:12.0%} {rate:14,.0f}", flush=True)
    print(
        f"the driver's CPU alone is full where runs take {workers * costs['cpu']:.1f} s on average; "
        f"at the end it has {runs * costs['memory'] / 2**30:.1f} GiB in memory and "
        f"{runs * costs['database'] / 2**30:.1f} GiB in its database"
    )
    shares = {
        "CPU of the driver": workers * costs["cpu"] / seconds,
        # At the worst no two outcomes come in together.
        "synced writes": workers * costs["sync"] / seconds,
        "memory of this machine": runs * costs["memory"] / 2**30 / _memory_gib(),
    }
    print(f"of what there is, runs of {seconds:,.0f} s on average use (costs as measured, linear):")
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"{share:12.1%} {name}")
    print(f"first bottleneck: {max(shares, key=lambda name: shares[name])}")


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    of_overhead = parts.add_parser("overhead")
    of_overhead.add_argument("--trials", type=int, default=200)
    of_overhead.add_argument("--only", help="contestants, with commas between them")
    of_measure = parts.add_parser("measure", help="one contestant in this process, as JSON")
    of_measure.add_argument("name")
    of_measure.add_argument("--trials", type=int, default=200)
    of_simulation = parts.add_parser("simulation")
    of_simulation.add_argument("--workers", type=int, default=10_000)
    of_simulation.add_argument("--runs", type=int, default=1_000_000)
    of_simulation.add_argument("--seconds", type=float, default=600.0, help="of a run, on average")
    of_simulation.add_argument("--trials", type=int, default=300, help="that costs are measured on")
    arguments = parser.parse_args()
    if arguments.part == "measure":
        print(json.dumps(measure(arguments.name, arguments.trials)))
    elif arguments.part == "simulation":
        costs = measured_costs(arguments.trials)
        simulation(arguments.workers, arguments.runs, arguments.seconds, costs)
    else:
        everybody = ["threads", *(name for name in _contestants() if name != "threads")]
        only = arguments.only.split(",") if arguments.only else everybody
        if unknown := sorted(set(only) - set(everybody)):
            parser.error(f"unknown contestant {unknown[0]!r}; known: {', '.join(everybody)}")
        overhead(arguments.trials, only)


if __name__ == "__main__":
    main()
