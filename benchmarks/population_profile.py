"""Where the time of a PPO step goes: each part of the engine's update timed alone, in one thread's CPU time.

    python benchmarks/population_profile.py     # about a minute; writes results/population_profile.md
    python benchmarks/population_profile.py --compilation ppo-cartpole-64 sac-pendulum-64   # prints a table

The job is `ppo-cartpole-64` of `population.py`. A part's share counts how often it runs for one environment step: an
epoch passes over each row once, and there are four. What the parts leave over is the loops around them.

`--compilation` says for jobs of `population.py` where the CPU time of compiling their programs goes, from an empty
cache, each job in a process of its own: medians over repeats.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from population import JOBS, engine_parts, machine

from autorl.population import engine, networks, ppo, rng
from autorl.population.descent import clip_scale, descend
from autorl.population.environments import find_environment
from autorl.population.gemm import PLAIN, gemm
from autorl.population.kernels import program
from autorl.population.members import World
from autorl.population.ppo import make_agent

HERE = Path(__file__).parent
JOB = JOBS["ppo-cartpole-64"]
ROWS = networks.CHUNK
REPEATS = 15


@program
def forward(agent: Any, n: int) -> None:
    for _ in range(n):
        networks.forward(agent.actor, agent.inputs, ROWS)
        networks.forward(agent.critic, agent.inputs, ROWS)


@program
def backward(agent: Any, n: int) -> None:
    for _ in range(n):
        networks.backward(agent.actor, agent.inputs, ROWS)
        networks.backward(agent.critic, agent.inputs, ROWS)


@program
def products(agent: Any, n: int) -> None:
    """The six products of 64 x 64 weights in forward and backward, of both networks."""
    for _ in range(n):
        for net in (agent.actor, agent.critic):
            weights = net.parameters[net.layers[1, 3] : net.layers[1, 4]].reshape(64, 64)
            gradient = net.gradient[net.layers[1, 3] : net.layers[1, 4]].reshape(64, 64)
            out, before, delta = net.hidden[1], net.hidden[0], net.delta[1]
            gemm(out, before, weights, net.zeros, out, PLAIN, ROWS, 64, 64)
            gemm(gradient, before.T, delta, gradient, gradient, PLAIN, 64, 64, ROWS)
            gemm(net.delta[0], delta, weights, net.zeros, out, PLAIN, ROWS, 64, 64)


@program
def activations(agent: Any, n: int) -> None:
    """Tanh of both hidden layers of both networks."""
    for _ in range(n):
        for net in (agent.actor, agent.critic):
            networks.apply_tanh(net.hidden[0], ROWS, 64)
            networks.apply_tanh(net.hidden[1], ROWS, 64)


@program
def losses(agent: Any, hp: Any, n: int) -> None:
    for _ in range(n):
        chunk = agent.rollout.order[:ROWS]
        ppo.policy_loss(agent, chunk, (0.0, 1.0), (0.2, 0.0, 0.01))
        ppo.value_loss(agent, hp, chunk, 0.01)


@program
def descents(member: Any, agent: Any, hp: Any, n: int) -> None:
    for _ in range(n):
        networks.prepare_backward(agent.actor)
        networks.prepare_backward(agent.critic)
        scale = clip_scale(agent.gradient, hp.max_grad_norm)
        descend(member, agent.gradient, hp, (0.0, 1), scale, (0, len(agent.gradient)))


@program
def shuffles(agent: Any, hp: Any, n: int) -> None:
    for i in range(n):
        rng.permute(agent.rollout.order, np.uint64(i))
        ppo.advantage_moments(hp, agent.rollout, agent.rollout.order)
        for first in range(0, len(agent.rollout.order), ROWS):
            networks.gather(
                agent.inputs, agent.rollout.observations, agent.rollout.order[first : first + ROWS]
            )


@program
def rollouts(
    member: Any, agent: Any, hp: Any, limits: Any, reset: Any, step: Any, observe: Any, n: int
) -> None:
    world = World(reset, step, observe, limits[0], limits[1], limits[2])
    for _ in range(n):
        ppo.collect_rollout(member, agent, hp, world)


def nanoseconds(run: Callable[[int], None], n: int, units: float) -> float:
    """Median CPU time of one unit; `run(n)` does n calls of `units` units each."""
    run(1)
    found = []
    for _ in range(REPEATS):
        began = time.thread_time()
        run(n)
        found.append((time.thread_time() - began) / n / units * 1e9)
    return statistics.median(found)


def profile() -> list[tuple[str, float]]:
    """(part, nanoseconds for one environment step), the whole first."""
    _, hp, state, bound = engine_parts(JOB, 0)
    bound.advance(20)
    environment, member = find_environment(JOB.environment), state["member"]
    agent = make_agent(state, environment, hp)
    world = (engine.limits(environment), *environment.functions(np.float32))
    rows, epochs = int(hp.n_steps * hp.n_envs), int(hp.n_epochs)
    rollouts(member, agent, hp, *world, 1)
    agent.rollout.order[:] = np.random.default_rng(0).permutation(rows)
    parts = [
        ("whole", nanoseconds(bound.advance, 10, rows)),
        ("rollout: environment, both networks, sampling, advantages",
         nanoseconds(lambda n: rollouts(member, agent, hp, *world, n), 20, rows)),
        ("forward passes", epochs * nanoseconds(lambda n: forward(agent, n), 3000, ROWS)),
        ("backward passes", epochs * nanoseconds(lambda n: backward(agent, n), 3000, ROWS)),
        ("losses and their gradients", epochs * nanoseconds(lambda n: losses(agent, hp, n), 3000, ROWS)),
        ("shuffling, gathering, moments of the advantages",
         epochs * nanoseconds(lambda n: shuffles(agent, hp, n), 300, rows)),
        ("clipping, Adam, transposing",
         epochs * nanoseconds(lambda n: descents(member, agent, hp, n), 1000, int(hp.batch_size))),
        ("in both passes: products of 64 x 64", epochs * nanoseconds(lambda n: products(agent, n), 2000, ROWS)),
        ("in forward: tanh", epochs * nanoseconds(lambda n: activations(agent, n), 5000, ROWS)),
    ]  # fmt: skip
    return parts


def report(parts: list[tuple[str, float]]) -> str:
    """The profile as Markdown."""
    whole = parts[0][1]
    flops = 4 * 2 * 3 * 2 * 64 * 64  # epochs x networks x products x multiply and add x 64 x 64
    rate = flops / dict(parts)["in both passes: products of 64 x 64"]
    lines = [
        "# Population engine: where a PPO step spends its time",
        "",
        f"Machine: {machine()}; Python {platform.python_version()}. One thread; CPU nanoseconds for one environment "
        f"step of `ppo-cartpole-64`, medians of {REPEATS}.",
        "",
        "| part | ns | share |",
        "| --- | --- | --- |",
        *(f"| {name} | {value:,.0f} | {value / whole:.0%} |" for name, value in parts),
        "",
        f"The products of 64 x 64 run at {rate:.0f} GFLOP/s.",
    ]
    return "\n".join(lines) + "\n"


PYTHON_PART = "bytecode, types"
PHASES = (PYTHON_PART, "LLVM code", "its text", "linking", "LLVM passes", "machine code", "rest")


class Phases:
    """CPU seconds of the phases of compilation, those of inner ones taken off.

    Numba calls its compiler for each function from within the compilation of its caller.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def measure(self, owner: Any, name: str, phase: str | Callable[..., str]) -> None:
        """Time every call of a method from now on."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            self._inner.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                whole = time.thread_time() - began
                word = phase if isinstance(phase, str) else phase(*arguments)
                self.seconds[word] += whole - self._inner.pop()
                self._inner[-1] += whole

        setattr(owner, name, timed)


def measured_phases() -> Phases:
    """Phases of all that numba compiles from now on."""
    from llvmlite import binding, ir
    from llvmlite.binding import newpassmanagers
    from numba.core import codegen, compiler_machinery

    phases = Phases()

    def of_pass(manager: object, index: int, step: Any, state: object) -> str:
        return "LLVM code" if step.name() == "native_lowering" else PYTHON_PART

    phases.measure(compiler_machinery.PassManager, "_runPass", of_pass)
    phases.measure(ir.Module, "__repr__", "its text")
    ir.Module.__str__ = ir.Module.__repr__
    phases.measure(binding, "parse_assembly", "its text")
    phases.measure(binding.ModuleRef, "link_in", "linking")
    phases.measure(newpassmanagers.ModulePassManager, "run", "LLVM passes")
    phases.measure(newpassmanagers.FunctionPassManager, "run", "LLVM passes")
    phases.measure(codegen.JitEngine, "finalize_object", "machine code")
    return phases


def compilation(name: str) -> dict[str, dict[str, float]]:
    """CPU seconds of each phase, for each program that a job's training and evaluation compile."""
    from autorl.population.kernels import Prepared, tell_preparations

    job = JOBS[name]
    algorithm, _, state, bound = engine_parts(job, 0)
    environment = find_environment(job.environment)
    phases = measured_phases()
    table: dict[str, dict[str, float]] = {}
    began = time.thread_time()

    def told(prepared: Prepared) -> None:
        nonlocal began
        whole = time.thread_time() - began
        rest = whole - sum(phases.seconds.values())
        table[prepared.name] = {**phases.seconds, "rest": rest, "whole": whole}
        phases.seconds.clear()
        began = time.thread_time()

    with tell_preparations(told):
        bound.advance(0)
        engine.evaluation(bound, state, environment, [0])
    assert algorithm.name == job.algorithm
    return table


def compilations(names: list[str], repeats: int) -> str:
    """The table of `compilation` as Markdown."""
    lines = [
        f"| job | program | {' | '.join(PHASES)} | whole |",
        "| --- " * (len(PHASES) + 3) + "|",
    ]
    for name in names:
        runs = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                done = subprocess.run(
                    [sys.executable, __file__, "--phases", name],
                    env={**os.environ, "AUTORL_CACHE": cache},
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
            runs.append(json.loads(done.stdout))
        for compiled in runs[0]:
            seconds = [
                statistics.median(run[compiled].get(phase, 0.0) for run in runs)
                for phase in (*PHASES, "whole")
            ]
            lines.append(f"| {name} | {compiled} | {' | '.join(f'{s:.2f}' for s in seconds)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE / "results" / "population_profile.md")
    parser.add_argument("--compilation", nargs="+", metavar="JOB", choices=list(JOBS))
    parser.add_argument("--repeats", type=int, default=3, help="of each compilation")
    parser.add_argument("--phases", metavar="JOB", help=argparse.SUPPRESS)  # in the processes
    options = parser.parse_args()
    if options.phases:
        print(json.dumps(compilation(options.phases)))
        return
    if options.compilation:
        print(compilations(options.compilation, options.repeats))
        return
    text = report(profile())
    print(text)
    options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
