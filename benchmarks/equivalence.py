"""Is the population engine the same algorithm as Stable-Baselines3? Many seeds of both, equal settings, equal steps.

    python benchmarks/equivalence.py                              # every cell; writes results/equivalence.md
    python benchmarks/equivalence.py --cells a2c dqn-1 --seeds 100 --peer-seeds 30 --workers 2
    python benchmarks/equivalence.py --report                     # the table of what is finished, no training
    python benchmarks/equivalence.py --estimate                   # CPU minutes that are missing, by cell

A cell is one algorithm with one setting. Both systems train for the same number of environment steps and are evaluated
after 60, 70, ..., 100 % of them; the policy is read out as plain matrices and one evaluator, in Gymnasium's own
environments, plays it for both: `EPISODES` episodes, PPO and A2C with sampled actions, the others with their best
ones. A run's score is the mean of its evaluations. A cell passes when the 95 % bootstrap interval of the
difference of the interquartile means lies within +-7 % of the task's range of returns.

Every finished run is a line of the cache file (by cell, settings, system, version and seed), so that an interrupted
comparison goes on where it stopped. Runs of the engine are keyed by its source: after a change only the peer's are
reused.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from equivalence_cells import CELLS, CONTINUOUS, EPISODES, EVALUATED_AT, RANGES, Cell
from population import bind_member, environment_of, machine, wrap

from autorl.statistics import difference_interval, iqm

HERE = Path(__file__).parent
MARGIN = 0.07
ENGINE, PEER = "engine", "SB3"
SQUASHED = ("SAC", "TD3", "DDPG")  # their best actions are tanh of what the network says


@dataclass(frozen=True)
class Policy:
    """A trained policy as plain arrays: (weights, biases) of each layer, and how its outputs become actions.

    `head`: `categorical`, `best` (index), `gaussian` (deviations in `scale`), `squashed`. `moments`: running mean and
    variance of the observations, where they are normalised.
    """

    layers: tuple[tuple[Any, Any], ...]
    activation: str
    head: str
    scale: Any = None
    moments: tuple[Any, Any] | None = None

    def actions(self, observations: Any, space: Any, rng: np.random.Generator) -> Any:
        """One action for each row of `observations`."""
        if self.moments is not None:  # by the defaults of `VecNormalize`
            mean, variance = self.moments
            observations = np.clip((observations - mean) / np.sqrt(variance + 1e-8), -10, 10)
        x = observations.astype(np.float32)
        for index, (weights, biases) in enumerate(self.layers):
            x = x @ weights + biases
            if index < len(self.layers) - 1:
                x = np.tanh(x) if self.activation == "tanh" else np.maximum(x, 0)
        if self.head == "categorical":
            return (x + rng.gumbel(size=x.shape)).argmax(axis=1)
        if self.head == "best":
            return x.argmax(axis=1)
        if self.head == "gaussian":
            return np.clip(x + self.scale * rng.normal(size=x.shape), space.low, space.high).astype(
                np.float32
            )
        low, high = space.low, space.high
        return (low + 0.5 * (high - low) * (1 + np.tanh(x[:, : len(low)]))).astype(np.float32)


def play(policy: Policy, cell: Cell, seed: int) -> float:
    """Mean return of `cell.episodes` episodes in Gymnasium's environments."""
    import gymnasium

    count = cell.episodes
    wrappers = wrappers_of(cell)
    envs = [
        wrap(gymnasium.make(cell.environment, disable_env_checker=True), wrappers)
        for _ in range(count)
    ]
    rng, total, going = np.random.default_rng([seed, 1]), np.zeros(count), list(range(count))
    seeds = np.random.default_rng([seed, 0]).integers(2**31, size=count)
    observations = {i: envs[i].reset(seed=int(seeds[i]))[0] for i in going}
    while going:
        actions = policy.actions(
            np.array([observations[i] for i in going]), envs[0].action_space, rng
        )
        for i, action in zip(tuple(going), actions, strict=True):
            observations[i], reward, terminated, truncated, _ = envs[i].step(action)
            total[i] += reward
            if terminated or truncated:
                going.remove(i)
    return float(total.mean())


def wrappers_of(cell: Cell) -> tuple[str, ...]:
    """Those that make the observations of the engine's environment."""
    if cell.environment.startswith("MiniGrid-"):
        importlib.import_module("minigrid")
    wrappers: tuple[str, ...] = environment_of(cell.environment).wrappers
    return wrappers


def train_engine(cell: Cell, seed: int, evaluate: Callable[[Policy], None]) -> None:
    """One member of the population engine, evaluated on the way."""
    from autorl.core.seeds import digest
    from autorl.population import engine
    from autorl.population.hyperparameters import record
    from autorl.population.networks import layer_views

    algorithm = engine.find_algorithm(cell.algorithm)
    environment = environment_of(cell.environment, cell.normalize)
    hp = record(algorithm.settings, cell.config, cell.steps)
    state, bound = bind_member(algorithm, environment, hp, digest(seed, "training") % 2**64)
    outputs = environment.n_actions or environment.action_size
    for percent in EVALUATED_AT:
        engine.train_to(bound, algorithm, state, hp, cell.steps * percent // 100)
        layers = []
        for index in range(len(bound.policy.layers)):
            weights, biases = layer_views(bound.policy.parameters, bound.policy.layers, index)
            layers.append((weights.copy(), biases.copy()))
        scale = np.exp(state["member"].parameters[-outputs:]) if head(cell) == "gaussian" else None
        word = algorithm.settings["activation"].decode(hp.activation)
        moments = None
        if cell.normalize:
            mean, variance = state["normaliser"].of_observations.copy()
            moments = (mean, variance)
        evaluate(Policy(tuple(layers), word, head(cell), scale, moments))


def head(cell: Cell) -> str:
    """How this cell's policy is evaluated."""
    if cell.kind in ("DQN", *SQUASHED):
        return "squashed" if cell.kind in SQUASHED else "best"
    return "gaussian" if cell.environment in CONTINUOUS else "categorical"


def peer_arguments(cell: Cell) -> dict[str, Any]:
    """The cell's setting as keyword arguments of Stable-Baselines3's class; what it leaves out is the default there."""
    from torch import nn

    config = dict(cell.config)
    config.pop("n_envs", None)
    if cell.kind == "A2C":
        for name in ("n_epochs", "batch_size", "clip_range", "optimizer"):
            del config[name]
        config["rms_prop_eps"] = config.pop("optimizer_eps")
    if "noise_std" in config:
        from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

        kinds = {"normal": NormalActionNoise, "ornstein-uhlenbeck": OrnsteinUhlenbeckActionNoise}
        noise = kinds[config.pop("noise_type", "normal")]
        # Actions of Pendulum have one dimension.
        config["action_noise"] = noise(np.zeros(1), np.full(1, config.pop("noise_std")))
    policy: dict[str, Any] = {}
    default = 256 if cell.kind == "SAC" else 64
    policy["net_arch"] = [config.pop("net_width", default)] * config.pop("net_depth", 2)
    if "activation" in config:
        policy["activation_fn"] = {"tanh": nn.Tanh, "relu": nn.ReLU}[config.pop("activation")]
    return {**config, "policy_kwargs": policy}


def train_peer(cell: Cell, seed: int, evaluate: Callable[[Policy], None]) -> None:
    """One model of Stable-Baselines3, evaluated between the same updates."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    due = [cell.steps * percent // 100 for percent in EVALUATED_AT[:-1]]

    class Evaluate(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:  # after the updates of the rollout before
            if due and self.num_timesteps >= due[0]:
                due.pop(0)
                evaluate(peer_policy(cell, self.model))

    env: Any = make_vec_env(
        cell.environment,
        cell.config.get("n_envs", 1),
        seed=seed,
        wrapper_class=partial(wrap, names=wrappers_of(cell)),
    )
    if cell.normalize:
        env = VecNormalize(env, gamma=cell.config.get("gamma", 0.99))
    model = getattr(stable_baselines3, cell.kind)(
        "MlpPolicy", env, seed=seed, device="cpu", **peer_arguments(cell)
    )
    model.learn(cell.steps, callback=Evaluate())
    assert not due, "the evaluations must not fall together"
    evaluate(peer_policy(cell, model))


def peer_policy(cell: Cell, model: Any) -> Policy:
    """The policy of a model of Stable-Baselines3."""
    policy, scale = model.policy, None
    if cell.kind == "DQN":
        modules = list(policy.q_net.q_net)
    elif cell.kind == "SAC":
        modules = [*policy.actor.latent_pi, policy.actor.mu]
    elif cell.kind in SQUASHED:
        modules = list(policy.actor.mu)[:-1]  # the last is the tanh of actions
    else:
        modules = [*policy.mlp_extractor.policy_net, policy.action_net]
        scale = policy.log_std.detach().exp().numpy().copy() if head(cell) == "gaussian" else None
    linear = [module for module in modules if hasattr(module, "weight")]
    layers = tuple(
        (m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy()) for m in linear
    )
    word = "tanh" if "Tanh" in repr(modules) else "relu"
    moments = None
    if cell.normalize:
        statistics = model.get_vec_normalize_env().obs_rms
        moments = (statistics.mean.copy(), statistics.var.copy())
    return Policy(layers, word, head(cell), scale, moments)


def run(task: tuple[str, str, int]) -> dict[str, Any]:
    """Train and evaluate one (cell, system, seed): a line of the cache."""
    name, system, seed = task
    cell = CELLS[name]
    returns: list[float] = []
    began = time.process_time()

    def evaluate(policy: Policy) -> None:
        returns.append(play(policy, cell, 1000 * seed + len(returns)))

    (train_engine if system == ENGINE else train_peer)(cell, seed, evaluate)
    seconds = round(time.process_time() - began, 2)
    return {
        "cell": name,
        "key": key(name, system),
        "seed": seed,
        "returns": returns,
        "cpu_seconds": seconds,
    }


def key(name: str, system: str) -> str:
    """What a finished run is valid for: the cell, the system, and its version or source."""
    from autorl.population.kernels import cache_directory

    edition = cache_directory().name if system == ENGINE else version("stable_baselines3")
    return f"{CELLS[name].digest} {system} {edition}"


def finished(cache: Path) -> dict[tuple[str, int], float]:
    """Scores by (key, seed) of the runs in the cache file."""
    if not cache.is_file():
        return {}
    rows = [
        json.loads(line)
        for line in cache.read_text(encoding="utf-8").splitlines()
        if line.endswith("}")
    ]
    return {(row["key"], row["seed"]): float(np.mean(row["returns"])) for row in rows}


def complete(names: list[str], options: argparse.Namespace) -> None:
    """Do the runs that the cache lacks, in worker processes; every result is written as it comes."""
    known = finished(options.cache)
    wanted = [(name, ENGINE, seed) for name in names for seed in range(options.seeds)]
    for block in range(
        0, options.peer_seeds, 10
    ):  # a first look at every cell before any is finished
        seeds = range(block, min(block + 10, options.peer_seeds))
        wanted += [(name, PEER, seed) for name in names for seed in seeds]
    missing = [task for task in wanted if (key(task[0], task[1]), task[2]) not in known]
    if not missing:
        return
    options.cache.parent.mkdir(parents=True, exist_ok=True)
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    with (
        multiprocessing.get_context("spawn").Pool(options.workers) as pool,
        options.cache.open("a", encoding="utf-8") as out,
    ):
        for count, row in enumerate(pool.imap_unordered(run, missing), start=1):
            out.write(json.dumps(row) + "\n")
            out.flush()
            if count % 10 == 0 or count == len(missing):
                print(
                    f"{count} of {len(missing)} runs, last {row['cell']} {row['key'].split()[1]}",
                    flush=True,
                )


def estimate(names: list[str], options: argparse.Namespace) -> str:
    """CPU minutes that the cells' missing runs take, by the finished ones of the same cell and system."""
    seconds: dict[str, list[float]] = {}
    if options.cache.is_file():
        lines = options.cache.read_text(encoding="utf-8").splitlines()
        for finished_run in map(json.loads, filter(lambda line: line.endswith("}"), lines)):
            seconds.setdefault(finished_run["key"], []).append(finished_run["cpu_seconds"])
    known = finished(options.cache)
    total = 0.0
    lines = []
    for name in names:
        for system, count in ((ENGINE, options.seeds), (PEER, options.peer_seeds)):
            missing = count - len(scores(name, system, count, known))
            done = seconds.get(key(name, system))
            minutes = missing * float(np.mean(done)) / 60 if done else math.nan
            total += minutes if missing else 0.0
            lines.append(f"{name} {system}: {missing} of {count} runs, {minutes:.1f} CPU minutes")
    return "\n".join([*lines, f"together {total:.1f} CPU minutes (nan: nothing to judge by)"])


def scores(name: str, system: str, count: int, known: dict[tuple[str, int], float]) -> list[float]:
    """The scores of a cell's finished runs, the first `count` seeds."""
    found = [known.get((key(name, system), seed)) for seed in range(count)]
    return [value for value in found if value is not None]


def row(name: str, options: argparse.Namespace, known: dict[tuple[str, int], float]) -> str:
    """The cell's row of the table."""
    ours = scores(name, ENGINE, options.seeds, known)
    theirs = scores(name, PEER, options.peer_seeds, known)
    cell = CELLS[name]
    head = f"| {name} | {cell.environment}, {cell.steps:,} steps | {len(ours)} / {len(theirs)} |"
    if min(len(ours), len(theirs)) < 2:
        return f"{head} - | - | - | - | not run |"
    interval = difference_interval(ours, theirs, iqm, rng=np.random.default_rng(0))
    low, high = RANGES[cell.environment]
    percent = [100 * value / (high - low) for value in (interval.low, interval.high)]
    inside = max(map(abs, percent)) <= 100 * MARGIN
    enough = len(ours) == options.seeds and len(theirs) == options.peer_seeds
    more = 2 if high - low <= 1 else 0  # digits
    margin = f"{MARGIN * (high - low):.{more}f}"
    verdict = f"{'within' if inside else 'NOT within'} +-{margin}{'' if enough else ' so far'}"
    if interval.low > 0 or interval.high < 0:
        verdict += ", but told apart"
    return (
        f"{head} {iqm(ours):.{more + 1}f} | {iqm(theirs):.{more + 1}f} "
        f"| {np.std(ours, ddof=1):.{more}f} / {np.std(theirs, ddof=1):.{more}f} "
        f"| {iqm(ours) - iqm(theirs):+.{more + 1}f} [{interval.low:+.{more + 1}f}, {interval.high:+.{more + 1}f}] "
        f"= [{percent[0]:+.1f} %, {percent[1]:+.1f} %] | {verdict} |"
    )


def report(names: list[str], options: argparse.Namespace) -> str:
    """The whole result as Markdown."""
    packages = ("numpy", "numba", "torch", "stable_baselines3", "gymnasium")
    known = finished(options.cache)
    ranges = ", ".join(f"{name} {low:.0f} to {high:.0f}" for name, (low, high) in RANGES.items())
    lines = [
        "# Population engine against Stable-Baselines3: the same algorithm?",
        "",
        f"Machine: {os.cpu_count()} cores, {machine()}; Python {platform.python_version()}; "
        + ", ".join(f"{package} {version(package)}" for package in packages)
        + ".",
        f"A run's score is the mean of its evaluations after {EVALUATED_AT} % of the steps, {EPISODES} episodes each "
        "(HalfCheetah 4), "
        "played by one evaluator in Gymnasium's environments (PPO and A2C: sampled actions; the others: their best "
        "ones). IQM over seeds; difference: engine minus SB3 with its 95 % bootstrap interval, in returns and as a "
        f"share of the task's range ({ranges}). The margin, +-{100 * MARGIN:.0f} % of that range, stands in every "
        "row in returns: within it lies the whole interval; told apart are two that differ by less than the margin, "
        "but beyond 0.",
        "",
        "| cell | task | seeds, engine / SB3 | IQM, engine | IQM, SB3 | sd over seeds | difference | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(row(name, options, known) for name in names),
        "",
        "| cell | setting; the rest are the defaults, equal in both |",
        "| --- | --- |",
    ]
    for name in names:
        words = ", ".join(f"{key} {value}" for key, value in CELLS[name].config.items())
        words += ", normalised observations and rewards" * CELLS[name].normalize
        lines.append(f"| {name} | {words or 'none'} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells", nargs="+", default=list(CELLS), help="cells, by the beginning of their names"
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--peer-seeds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--report", action="store_true", help="only write the table of what is finished"
    )
    parser.add_argument("--estimate", action="store_true", help="only say how long it takes")
    parser.add_argument("--cache", type=Path, default=HERE.parent / "build" / "equivalence.jsonl")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "equivalence.md")
    options = parser.parse_args()
    names = [name for name in CELLS if any(name.startswith(cell) for cell in options.cells)]
    if options.estimate:
        print(estimate(names, options))
        return
    if not options.report:
        complete(names, options)
    text = report(names, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
