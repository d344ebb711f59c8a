"""Speed of the population engine against Stable-Baselines3 (one process per core, one thread each) and vmapped JAX.

    python benchmarks/population.py                     # everything, over an hour; writes results/population.md
    python benchmarks/population.py --cells ppo-cartpole --rounds 3 --seconds 20 --populations 1 8 64
    python benchmarks/population.py --jax-python PATH   # an interpreter that has jax, for the peer's rows
    python benchmarks/population.py --cleanrl PATH DIR  # one that has envpool, and CleanRL's scripts, for theirs

Systems take turns within a round, so that a slow spell of the machine meets all of them; a cell (one system, one job)
runs `--seconds` at most. Rates are environment steps per second with training included, summed over all members and
cores; CPU seconds are those of all threads or processes. Medians over rounds; ratios are formed within a round.
Compilation is timed apart, from an empty cache.

    python benchmarks/population.py --rounds 3 --seconds 7 --populations 8 --no-compilation --cells ppo-lunarlander \\
        ppo-halfcheetah sac-halfcheetah td3-pendulum-64 ppo-doorkey dqn-lunarlander ppo-cartpole-64 \\
        --output benchmarks/results/population_tasks.md

are the tasks people train on, in about 18 minutes; it needs Box2D, MuJoCo and minigrid. Environments that the engine
does not have are stepped by Python, in one process per core on both sides, and where EnvPool can be imported by pools
of one thread too.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

HERE = Path(__file__).parent
POPULATIONS = (1, 8, 64, 256, 1024)
VecEnv = Literal["dummy", "envpool"]


@dataclass(frozen=True)
class Job:
    """One thing to train: the engine's configuration and what Stable-Baselines3 calls the same."""

    algorithm: str
    environment: str
    steps: int
    config: dict[str, Any]
    jax: bool = False
    cleanrl: bool = False  # its script and EnvPool have the task
    normalize: bool = False  # observations and rewards, by `VecNormalize`
    vec_env: VecEnv = "dummy"  # what steps the engine's environments


PPO = {"n_envs": 8, "n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 2.5e-3}
DEFAULT = {"n_envs": 1, "net_width": 64}  # Stable-Baselines3's, and so the engine's
DQN = {
    "n_envs": 4,
    "train_freq": 1,
    "gradient_steps": 1,
    "batch_size": 64,
    "buffer_size": 50_000,
    "learning_rate": 1e-3,
}
DQN |= {"learning_starts": 1000, "target_update_interval": 240, "exploration_fraction": 0.16}
SAC = {"learning_rate": 1e-3, "buffer_size": 50_000}
TD3 = {"learning_rate": 1e-3, "buffer_size": 50_000, "noise_std": 0.1}
JOBS = {
    "ppo-cartpole-64": Job(
        "ppo", "CartPole-v1", 100_352, {**PPO, "net_width": 64}, jax=True, cleanrl=True
    ),
    "ppo-cartpole-256": Job("ppo", "CartPole-v1", 50_176, {**PPO, "net_width": 256}),
    "ppo-pendulum-64": Job("ppo", "Pendulum-v1", 100_352, {**PPO, "net_width": 64, "gamma": 0.9}),
    "ppo-doorkey-64": Job(
        "ppo",
        "MiniGrid-DoorKey-5x5-v0",
        200_704,
        {**PPO, "net_width": 64, "learning_rate": 1e-3, "ent_coef": 0.01},
        cleanrl=True,
    ),
    "ppo-lunarlander-64": Job(
        "ppo", "LunarLander-v3", 100_352, {**PPO, "net_width": 64}, cleanrl=True
    ),
    "ppo-lunarlander-default": Job("ppo", "LunarLander-v3", 51_200, DEFAULT),
    "ppo-halfcheetah-64": Job(
        "ppo", "HalfCheetah-v5", 100_352, {**PPO, "net_width": 64}, cleanrl=True, normalize=True
    ),
    "ppo-halfcheetah-default": Job("ppo", "HalfCheetah-v5", 51_200, DEFAULT, normalize=True),
    "dqn-cartpole-64": Job("dqn", "CartPole-v1", 50_000, {**DQN, "net_width": 64}),
    "dqn-cartpole-256": Job("dqn", "CartPole-v1", 10_000, {**DQN, "net_width": 256}),
    "dqn-lunarlander-64": Job(
        "dqn", "LunarLander-v3", 50_000, {**DQN, "net_width": 64}, cleanrl=True
    ),
    "sac-pendulum-64": Job("sac", "Pendulum-v1", 5_000, {**SAC, "net_width": 64}),
    "sac-pendulum-256": Job("sac", "Pendulum-v1", 1_000, {**SAC, "net_width": 256}),
    "sac-halfcheetah-256": Job(
        "sac", "HalfCheetah-v5", 1_000, {**SAC, "net_width": 256}, cleanrl=True
    ),
    "td3-pendulum-64": Job("td3", "Pendulum-v1", 5_000, {**TD3, "net_width": 64}, cleanrl=True),
    "td3-pendulum-256": Job("td3", "Pendulum-v1", 1_000, {**TD3, "net_width": 256}),
    "ddpg-pendulum-64": Job("ddpg", "Pendulum-v1", 5_000, {**TD3, "net_width": 64}),
}


@dataclass
class Measured:
    """What one cell did: environment steps, wall and CPU seconds, and the last training return of each member."""

    steps: float
    wall: float
    cpu: float
    returns: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.steps / self.wall


@functools.cache
def environment_of(name: str, normalize: bool = False, vec_env: VecEnv = "dummy") -> Any:
    """The engine's environment of this name, one that Python steps where the engine has none."""
    from autorl.core.types import EnvironmentSpec, FrozenMap
    from autorl.population.environments import find_environment
    from autorl.population.variants import is_outside
    from autorl.trainers.outside_environments import outside_environment, vector_environment

    environment: Any
    if vec_env != "dummy":
        environment = vector_environment(EnvironmentSpec(name, vec_env=vec_env))
    elif is_outside(name):
        environment = outside_environment(EnvironmentSpec(name))
    else:
        environment = find_environment(name)
    return replace(environment, normalize=FrozenMap()) if normalize else environment


def bind_member(algorithm: Any, environment: Any, hp: Any, key: int) -> tuple[Any, Any]:
    """(state, bound) of one new member."""
    from autorl.population.outside import OutsideEnvironment, make_worlds

    state = algorithm.create(environment, hp, key, np.float32)
    if not isinstance(environment, OutsideEnvironment):
        return state, algorithm.bind(state, environment, hp)
    return state, algorithm.bind(state, environment, hp, make_worlds(environment, state))


def engine_parts(job: Job, key: int) -> tuple[Any, Any, Any, Any]:
    """(algorithm, record, state, bound) of one new member."""
    from autorl.population import engine
    from autorl.population.hyperparameters import record

    algorithm = engine.find_algorithm(job.algorithm)
    environment = environment_of(job.environment, job.normalize, job.vec_env)
    hp = record(algorithm.settings, job.config, job.steps)
    return algorithm, hp, *bind_member(algorithm, environment, hp, key)


def run_engine(job: Job, members: int, threads: int, seconds: float) -> Measured:
    """Train `members` members, one per thread at a time; no new one is begun after `seconds`.

    Where Python steps the environments, in processes, as `autorl` does.
    """
    from autorl.population import engine
    from autorl.population.variants import is_outside

    if job.vec_env != "dummy" or is_outside(job.environment):
        return run_processes(job, threads, seconds, engine_worker, members)
    waiting, lock = iter(range(members)), threading.Lock()
    done, returns = [0] * threads, []
    began, cpu = time.perf_counter(), time.process_time()

    def work(thread: int) -> None:
        while time.perf_counter() - began < seconds:
            with lock:
                key = next(waiting, None)
            if key is None:
                return
            algorithm, hp, state, bound = engine_parts(job, key)
            for part in range(1, 11):
                engine.train_to(bound, algorithm, state, hp, job.steps * part // 10)
                if time.perf_counter() - began > seconds:
                    break
            done[thread] += engine.steps(state)
            if engine.steps(state) >= job.steps:
                returns.append(last_return(state))

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return Measured(sum(done), time.perf_counter() - began, time.process_time() - cpu, returns)


def last_return(state: Any) -> float:
    """Mean return of the member's latest training episodes."""
    member = state["member"]
    return float(member.recent[: max(1, min(int(member.counts[2]), len(member.recent)))].mean())


def sb3_arguments(job: Job) -> dict[str, Any]:
    """The job's configuration as keyword arguments of Stable-Baselines3."""
    from torch import nn

    arguments = {
        name: value for name, value in job.config.items() if name not in ("n_envs", "net_width")
    }
    deviation = arguments.pop("noise_std", None)
    if deviation is not None:
        from stable_baselines3.common.noise import NormalActionNoise

        arguments["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, deviation))
    width = job.config["net_width"]
    activation = nn.Tanh if job.algorithm == "ppo" else nn.ReLU
    return {**arguments, "policy_kwargs": {"net_arch": [width, width], "activation_fn": activation}}


def wrap(env: Any, names: tuple[str, ...]) -> Any:
    """Put wrappers, `module:Class`, around an environment of Gymnasium, in order."""
    for name in names:
        module, _, attribute = name.partition(":")
        env = getattr(importlib.import_module(module), attribute)(env)
    return env


def sb3_worker(
    job: Job, rank: int, seconds: float, barrier: Any, results: Any, keys: range
) -> None:
    """One process, one thread: train models one after the other until the time is over."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    # The observations that the engine's environment has; it needs the package behind them.
    wrappers = environment_of(job.environment).wrappers
    if job.environment.startswith("MiniGrid-"):
        importlib.import_module("minigrid")

    class Deadline(BaseCallback):
        def _on_step(self) -> bool:
            return time.perf_counter() < end

    kind, steps, returns = getattr(stable_baselines3, job.algorithm.upper()), 0, []

    def made(seed: int, **changes: Any) -> Any:
        env: Any = make_vec_env(
            job.environment,
            job.config.get("n_envs", 1),
            seed=seed,
            wrapper_class=functools.partial(wrap, names=wrappers),
        )
        if job.normalize:
            env = VecNormalize(env, gamma=job.config.get("gamma", 0.99))
        arguments = {**sb3_arguments(job), **changes}
        return kind("MlpPolicy", env, seed=seed, device="cpu", **arguments)

    # The first update imports a part of torch, seconds on a busy machine: it is start-up.
    of_memory = {"learning_starts": 0, "buffer_size": 100}
    few = {"n_steps": 8, "n_epochs": 1} if job.algorithm == "ppo" else of_memory
    made(0, **few, batch_size=8).learn(64)
    barrier.wait()
    began, cpu = time.perf_counter(), time.process_time()
    end = began + seconds
    for seed in keys:
        model = made(seed)
        model.learn(job.steps, callback=Deadline())
        steps += model.num_timesteps
        if model.num_timesteps >= job.steps and model.ep_info_buffer:
            returns.append(float(np.mean([episode["r"] for episode in model.ep_info_buffer])))
        if time.perf_counter() >= end:
            break
    results.put((steps, time.perf_counter() - began, time.process_time() - cpu, returns))


def engine_worker(
    job: Job, rank: int, seconds: float, barrier: Any, results: Any, keys: range
) -> None:
    """One process: train the members of these keys one after the other until the time is over."""
    from autorl.population import engine

    engine_parts(job, rank)[3].advance(1)  # compiled or loaded before the clock runs
    barrier.wait()
    began, cpu = time.perf_counter(), time.process_time()
    steps, returns = 0, []
    for key in keys:
        algorithm, hp, state, bound = engine_parts(job, key)
        for part in range(1, 51):
            engine.train_to(bound, algorithm, state, hp, job.steps * part // 50)
            if time.perf_counter() - began > seconds:
                break
        steps += engine.steps(state)
        if engine.steps(state) >= job.steps:
            returns.append(last_return(state))
        if time.perf_counter() - began > seconds:
            break
    results.put((steps, time.perf_counter() - began, time.process_time() - cpu, returns))


def run_sb3(job: Job, processes: int, seconds: float) -> Measured:
    """Stable-Baselines3 with one single-threaded process per core."""
    return run_processes(job, processes, seconds, sb3_worker, 10**6)


def run_processes(
    job: Job, processes: int, seconds: float, worker: Callable[..., None], members: int
) -> Measured:
    """Share out members among one process per core; start-up is not timed."""
    context = multiprocessing.get_context("spawn")
    processes = min(processes, members)
    barrier, results = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(
            target=worker,
            args=(job, rank, seconds, barrier, results, range(rank, members, processes)),
        )
        for rank in range(processes)
    ]
    for process in workers:
        process.start()
    found = [results.get(timeout=10 * seconds + 600) for _ in workers]
    for process in workers:
        process.join()
    steps, walls, cpus, returns = zip(*found, strict=True)
    rate = sum(s / w for s, w in zip(steps, walls, strict=True))
    return Measured(
        rate * max(walls), max(walls), sum(cpus), [value for part in returns for value in part]
    )


def run_jax(
    python: str, job: Job, population: int, cores: list[int | None]
) -> tuple[Measured, float]:
    """Vmapped JAX PPO, one process per entry of `cores` (None = not pinned); also the longest compilation."""
    command = [
        python,
        str(HERE / "jax_ppo.py"),
        str(population),
        str(job.steps),
        json.dumps(job.config),
    ]
    started = [
        subprocess.Popen(  # one process each, pinned to its core by the script itself
            [*command, "" if core is None else str(core)], stdout=subprocess.PIPE, text=True
        )
        for core in cores
    ]
    found = []
    for process in started:
        try:
            found.append(json.loads(process.communicate(timeout=240)[0].splitlines()[-1]))
        except subprocess.TimeoutExpired:
            process.kill()
            return Measured(0, 1, 1), float("nan")
    return together(found), max(r["compile"] for r in found)


def together(found: list[dict[str, Any]]) -> Measured:
    """What processes did that ran at once: their rates add up."""
    rate = sum(run["steps"] / run["wall"] for run in found)
    wall = max(run["wall"] for run in found)
    returns = [value for run in found for value in run.get("returns", [])]
    return Measured(rate * wall, wall, sum(run["cpu"] for run in found), returns)


def run_cleanrl(peer: list[str], job: Job, cores: int) -> Measured:
    """CleanRL's script on EnvPool, one process with one thread per core."""
    python, folder = peer
    script = str(HERE / "cleanrl_envpool.py")
    threads = {"OMP_NUM_THREADS": "1"}
    task = [job.algorithm, job.environment, str(job.steps)]
    started = [
        subprocess.Popen(
            [python, script, folder, *task, str(seed), json.dumps(job.config)],
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, "PYTHONPATH": ""},
            text=True,
        )
        for seed in range(cores)
    ]
    return together([json.loads(process.communicate()[0].splitlines()[-1]) for process in started])


def compile_seconds(job: Job) -> tuple[float, float]:
    """Seconds of the first call with an empty cache, and of the first call of a later process."""
    code = (
        "import sys, time, json; sys.path[:0] = [sys.argv[1]]; import population as b;"
        "from autorl.population import engine; job = b.JOBS[sys.argv[2]]; engine.find_algorithm(job.algorithm);"
        "b.environment_of(job.environment); t = time.perf_counter();"
        # Where Python steps the environments, some programs are compiled when a member is bound.
        "b.engine_parts(job, 0)[3].advance(1); print(time.perf_counter() - t)"
    )
    name = next(name for name, other in JOBS.items() if other == job)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "AUTORL_CACHE": cache}
        command = [sys.executable, "-c", code, str(HERE), name]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
    cold, warm = (float(run.stdout) for run in runs)
    return cold, warm


def memory_per_member(job: Job) -> tuple[float, float]:
    """Kilobytes of a member's state that is kept, and of the scratch memory a thread needs while it trains."""
    import tracemalloc

    from autorl.population import engine

    tracemalloc.start()
    _, _, state, _bound = engine_parts(job, 0)
    used = tracemalloc.get_traced_memory()[0] / 1024
    tracemalloc.stop()
    kept = sum(array.nbytes for part in state.values() for array in part) / 1024
    replay = state.get("replay")
    if replay is not None:  # pages of the ring cost memory once they are written
        written = min(job.steps, len(replay.rows)) / len(replay.rows)
        kept -= (1 - written) * replay.rows.nbytes / 1024
    assert engine.steps(state) == 0
    return kept, used


def measure(name: str, options: argparse.Namespace) -> dict[str, list[Measured]]:
    """All rounds of one job: every system in turn."""
    from autorl.population.variants import is_outside

    job, cores = JOBS[name], options.cores
    engine_parts(job, 0)[3].advance(1)  # compiled or loaded before the clock runs
    found: dict[str, list[Measured]] = {}
    for turn in range(options.rounds):
        systems: dict[str, Any] = {"SB3": lambda: run_sb3(job, cores, options.seconds)}
        for population in options.populations:
            systems[f"engine, {population}"] = lambda n=population: run_engine(
                job, n, cores, options.seconds
            )
            if is_outside(job.environment) and importlib.util.find_spec("envpool"):
                pooled = replace(job, vec_env="envpool")
                systems[f"engine on EnvPool, {population}"] = lambda n=population, on=pooled: (
                    run_engine(on, n, cores, options.seconds)
                )
        if job.jax and options.jax_python:
            systems["JAX, default"] = lambda: run_jax(options.jax_python, job, 8, [None])[0]
            systems["JAX, best"] = lambda: run_jax(options.jax_python, job, 16, list(range(cores)))[
                0
            ]
        if job.cleanrl and options.cleanrl:
            systems["EnvPool + CleanRL"] = lambda: run_cleanrl(options.cleanrl, job, cores)
        for system, run in systems.items():
            result = run()
            found.setdefault(system, []).append(result)
            print(f"{name} round {turn + 1} {system}: {result.rate:,.0f} steps/s", flush=True)
    return found


def table(name: str, found: dict[str, list[Measured]]) -> list[str]:
    """The rows of one job."""
    lines = []
    for system, runs in found.items():
        ratios = [run.rate / base.rate for run, base in zip(runs, found["SB3"], strict=True)]
        per_cpu = statistics.median(run.steps / run.cpu for run in runs)
        base_per_cpu = statistics.median(run.steps / run.cpu for run in found["SB3"])
        returns = sorted(value for run in runs for value in run.returns)
        spread = "-"
        if returns:
            low, middle, high = np.quantile(returns, (0.1, 0.5, 0.9))
            spread = f"{low:.3g} / {middle:.3g} / {high:.3g} ({len(returns)})"
        lines.append(
            f"| {name} | {system} | {statistics.median(run.rate for run in runs):,.0f} "
            f"| {per_cpu:,.0f} | {statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f}) "
            f"| {per_cpu / base_per_cpu:.1f} | {spread} |"
        )
    return lines


def report(results: dict[str, dict[str, list[Measured]]], options: argparse.Namespace) -> str:
    """The whole result as Markdown."""
    packages = ("numpy", "numba", "llvmlite", "torch", "stable_baselines3", "gymnasium")
    lines = [
        "# Population engine: measured speed",
        "",
        f"Machine: {options.cores} cores, {machine()}; Python {platform.python_version()}; "
        + ", ".join(f"{package} {version(package)}" for package in packages)
        + ".",
        f"{options.rounds} rounds of at most {options.seconds:.0f} s a cell, interleaved; load average "
        f"{options.load:.1f} at the start. Steps per second include training. Returns are the last 100 training "
        "episodes of members that finished: 10 % / median / 90 % (count). With a load average above the number of "
        "cores at the start, trust the ratios per CPU-second.",
        "",
        "| job | system, population | steps/s | steps per CPU-second | ratio to SB3, median (range) "
        "| per CPU-second | return |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in results.items():
        lines += table(name, found)
    if options.no_compilation:
        return "\n".join(lines) + "\n"
    lines += [
        "",
        "| job | compile, s | from cache, s | state, kB a member | scratch and state, kB a thread |",
    ]
    lines += ["| --- | --- | --- | --- | --- |"]
    for name in results:
        cold, warm = compile_seconds(JOBS[name])
        kept, used = memory_per_member(JOBS[name])
        lines.append(f"| {name} | {cold:.1f} | {warm:.2f} | {kept:,.0f} | {used:,.0f} |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells", nargs="+", default=list(JOBS), help="jobs, by the beginning of their names"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--populations", type=int, nargs="+", default=list(POPULATIONS))
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--no-compilation", action="store_true", help="leave its times out")
    parser.add_argument("--jax-python", default="", help="an interpreter that can import jax")
    parser.add_argument(
        "--cleanrl",
        nargs=2,
        help="an interpreter that can import envpool, and cleanrl/ of a checkout",
    )
    parser.add_argument("--output", type=Path, default=HERE / "results" / "population.md")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]
    names = [name for name in JOBS if any(name.startswith(cell) for cell in options.cells)]
    results = {name: measure(name, options) for name in names}
    text = report(results, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
