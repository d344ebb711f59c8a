"""Where the time of a step goes on the tasks of `population.py` that the engine gains least on.

    python benchmarks/task_profile.py            # half a minute; writes results/task_profile.md

One thread's CPU time for one environment step: the whole, what Gymnasium's environment takes of it with the same
random actions, and what of that is the simulator's own code, which no trainer can avoid. The rest is the engine's:
its loop over environments, normalisation, networks, updates. For SAC and TD3 the products of an update are counted, and
the rate of the whole update is beside that of a product of two matrices of the networks' width alone.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from population import JOBS, engine_parts, machine

from autorl.population.gemm import PLAIN, gemm
from autorl.population.kernels import program

HERE = Path(__file__).parent
NAMES = ("ppo-lunarlander-64", "ppo-halfcheetah-64", "sac-halfcheetah-256")
SIMULATORS = {"LunarLander-v3": "Box2D's `World.Step`", "HalfCheetah-v5": "MuJoCo's `mj_step`"}
REPEATS = 5
BATCH = 256  # of SAC and TD3, rows of a product


def microseconds(run: Callable[[], object], units: float) -> float:
    """Median CPU time of one unit; `run()` does `units` of them."""
    run()
    found = []
    for _ in range(REPEATS):
        began = time.thread_time()
        run()
        found.append((time.thread_time() - began) / units * 1e6)
    return statistics.median(found)


def whole(name: str) -> float:
    """Microseconds of a step of the engine, training included."""
    job = JOBS[name]
    _, hp, _, bound = engine_parts(job, 0)
    if job.algorithm == "ppo":
        return microseconds(lambda: bound.advance(2), 2 * hp.n_steps * hp.n_envs)
    bound.advance(int(hp.learning_starts) + 100)  # units are steps of all environments
    return microseconds(lambda: bound.advance(200), 200)


def environment(name: str) -> float:
    """Microseconds of a step of Gymnasium's environment."""
    env = gymnasium.make(JOBS[name].environment)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(2000)]
    env.reset(seed=0)

    def run() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return microseconds(run, len(actions))


def simulator(name: str) -> float:
    """Microseconds of the simulator's own code in a step, in an episode's first 60 steps."""
    env: Any = gymnasium.make(JOBS[name].environment).unwrapped
    steps, found = 60, []
    for seed in range(20):
        env.reset(seed=seed)
        began = time.thread_time()
        for _ in range(steps):
            if hasattr(env, "world"):
                env.world.Step(1.0 / 50, 6 * 30, 2 * 30)
            else:
                mujoco.mj_step(env.model, env.data, nstep=env.frame_skip)
        found.append((time.thread_time() - began) / steps * 1e6)
    return statistics.median(found)


@program
def products(left: Any, right: Any, out: Any, zeros: Any, n: int) -> None:
    for _ in range(n):
        gemm(out, left, right, zeros, out, PLAIN, len(left), len(right), len(zeros))


def product_rate(width: int) -> float:
    """GFLOP/s of the engine's product of a batch and a matrix of width x width."""
    left = np.random.default_rng(0).normal(size=(BATCH, width)).astype(np.float32)
    right = np.random.default_rng(1).normal(size=(width, width)).astype(np.float32)
    out, zeros = np.zeros_like(left), np.zeros(width, dtype=np.float32)
    one = microseconds(lambda: products(left, right, out, zeros, 2000), 2000)
    return 2 * BATCH * width * width / one / 1e3


def sac_operations(inputs: int, actions: int, width: int) -> float:
    """Multiplications and additions of one SAC update, with two hidden layers.

    The actor: forward on the next and on the present observations, and backward, twice a forward pass. Each critic:
    the target's forward, forward and backward on the batch, forward on the actor's actions, back to these actions.
    """
    hidden = width * width
    actor = inputs * width + hidden + width * 2 * actions
    critic = (inputs + actions) * width + hidden + width
    return 2.0 * BATCH * (4 * actor + 2 * 6 * critic)


def td3_operations(inputs: int, actions: int, width: int) -> float:
    """Multiplications and additions of one TD3 update, likewise, in the mean.

    In every update the target actor's forward, and each critic as for SAC on the batch. In every second one the
    actor's forward and backward, the first critic's forward on its actions and back to them.
    """
    hidden = width * width
    actor = inputs * width + hidden + width * actions
    critic = (inputs + actions) * width + hidden + width
    return 2.0 * BATCH * ((1 + 3 / 2) * actor + (2 * 4 + 2 / 2) * critic)


def products_text(name: str, operations: float, update: float, width: int) -> str:
    """Compare the rate of an update of so many microseconds with that of a product."""
    rate = operations / update / 1e3
    alone = product_rate(width)
    return (
        f"The products of an update of `{name}` would take all of the engine's time at {rate:.0f} GFLOP/s; a product "
        f"of {BATCH} x {width} and {width} x {width} alone runs at {alone:.0f} GFLOP/s: {rate / alone:.0%}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE / "results" / "task_profile.md")
    options = parser.parse_args()
    lines = [
        "# Population engine: where a step of LunarLander and HalfCheetah spends its time",
        "",
        f"Machine: {machine()}; Python {platform.python_version()}. One thread; CPU microseconds for one environment "
        f"step of jobs of `population.py`, medians of {REPEATS}.",
        "",
        "| job | whole | Gymnasium's environment | of it the simulator | the engine |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in NAMES:
        total, stepping = whole(name), environment(name)
        inner = f"{simulator(name):,.1f} ({SIMULATORS[JOBS[name].environment]})"
        lines.append(
            f"| {name} | {total:,.1f} | {stepping:,.1f} ({stepping / total:.0%}) | {inner} "
            f"| {total - stepping:,.1f} ({1 - stepping / total:.0%}) |"
        )
        if JOBS[name].algorithm == "sac":
            operations = sac_operations(17, 6, 256)
            lines += ["", products_text(name, operations, total - stepping, 256)]
    # Pendulum is native: its step is none of Gymnasium's, and small beside an update.
    name = "td3-pendulum-64"
    lines += ["", products_text(name, td3_operations(3, 1, 64), whole(name), 64)]
    text = "\n".join(lines) + "\n"
    print(text)
    options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
