"""CleanRL's own scripts on EnvPool: a peer of `population.py`.

Called by it in an interpreter that has envpool, torch, tyro and TensorBoard:

    python cleanrl_envpool.py FOLDER ALGORITHM ENVIRONMENT STEPS SEED CONFIG-JSON

FOLDER is `cleanrl/` of a checkout, `cleanrl_utils/` beside it. Where a script makes a vector of Gymnasium's environments
it gets one pool with one thread: of all environments for PPO, of one for DQN, SAC and TD3, whose scripts take no more (DQN
then learns once in as many steps as one step of all environments makes). The scripts run unchanged but for the widths of
DQN's and TD3's networks, which they do not ask for: those are the job's. PPO has observations and rewards of continuous
tasks normalised by Gymnasium's vector wrappers, once for the pool where the script has them for each environment;
annealing and value clipping are off, as they are in Stable-Baselines3. MiniGrid's view is flattened.

Prints one JSON line: steps, and wall and CPU seconds from the first reset.

References: S. Huang et al. CleanRL. JMLR 2022. J. Weng et al. EnvPool. NeurIPS 2022.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import envpool
import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import vector as wrappers

folder, algorithm, environment, steps, seed, text = sys.argv[1:]
config = json.loads(text)
began: list[tuple[float, float]] = []


class Pool(gymnasium.vector.VectorEnv):
    """A pool of EnvPool behind Gymnasium's class of vectors, which the wrappers ask for."""

    def __init__(self, made: list[Any]) -> None:
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self.num_envs = len(made)
        self.pool = envpool.make_gymnasium(
            environment, num_envs=self.num_envs, num_threads=1, seed=int(seed)
        )
        self.single_observation_space = self.pool.observation_space
        of_pool: Any = self.pool.observation_space
        self.view = isinstance(of_pool, gymnasium.spaces.Dict)
        if self.view:
            size = int(np.prod(of_pool["image"].shape))
            self.single_observation_space = gymnasium.spaces.Box(0, 255, (size,), np.float32)
        self.single_action_space = self.pool.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, self.num_envs
        )
        self.action_space = gymnasium.vector.utils.batch_space(
            self.single_action_space, self.num_envs
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        began.append((time.perf_counter(), time.process_time()))
        observations, infos = self.pool.reset()
        return self._flat(observations), infos

    def step(self, actions: Any) -> Any:
        taken = np.asarray(actions, dtype=self.single_action_space.dtype)
        observations, rewards, terminated, truncated, infos = self.pool.step(taken)
        observations = self._flat(observations)
        # Where an episode was truncated the off-policy scripts read this row.
        infos["final_observation"] = observations
        return observations, rewards, terminated, truncated, infos

    def _flat(self, observations: Any) -> Any:
        if not self.view:
            return observations
        return observations["image"].reshape(self.num_envs, -1).astype(np.float32)


def pooled(made: list[Any]) -> Any:
    """The pool, normalised as the script has it where actions are continuous."""
    pool: Any = Pool(made)
    if algorithm != "ppo" or isinstance(pool.single_action_space, gymnasium.spaces.Discrete):
        return pool
    pool = wrappers.NormalizeObservation(wrappers.ClipAction(pool))
    pool = wrappers.TransformObservation(pool, lambda values: np.clip(values, -10, 10))
    pool = wrappers.NormalizeReward(pool, gamma=0.99)
    return wrappers.TransformReward(pool, lambda values: np.clip(values, -10, 10))


def of_ppo(discrete: bool) -> tuple[str, dict[str, Any]]:
    """The script of PPO and its arguments."""
    arguments = {
        "num-envs": config["n_envs"],
        "num-steps": config["n_steps"],
        "num-minibatches": config["n_envs"] * config["n_steps"] // config["batch_size"],
        "update-epochs": config["n_epochs"],
        "learning-rate": config["learning_rate"],
        "ent-coef": config.get("ent_coef", 0.0),
    }
    return "ppo.py" if discrete else "ppo_continuous_action.py", arguments


def of_dqn() -> tuple[str, dict[str, Any]]:
    """The script of DQN and its arguments."""
    assert config["train_freq"] == config["gradient_steps"] == 1
    arguments = {
        "train-frequency": config["n_envs"],
        "learning-rate": config["learning_rate"],
        "batch-size": config["batch_size"],
        "buffer-size": config["buffer_size"],
        "learning-starts": config["learning_starts"],
        "target-network-frequency": config["target_update_interval"],
        "exploration-fraction": config["exploration_fraction"],
    }
    return "dqn.py", arguments


def of_actor_critic() -> tuple[str, dict[str, Any]]:
    """The script of SAC or TD3 and its arguments; learning starts as in Stable-Baselines3."""
    arguments = {"buffer-size": config["buffer_size"], "learning-starts": 100}
    rates = ("policy-lr", "q-lr") if algorithm == "sac" else ("learning-rate",)
    arguments |= dict.fromkeys(rates, config["learning_rate"])
    if algorithm == "td3":
        arguments["exploration-noise"] = config["noise_std"]
    return f"{algorithm}_continuous_action.py", arguments


def with_widths(text: str) -> str:
    """A script with the job's network widths instead of its own."""
    own = {"dqn": ("120", "84"), "td3": ("256",), "sac": ("256",)}.get(algorithm, ())
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        # Layers and their arguments alone: TD3's batches have 256 rows too.
        if "nn.Linear(" in line or line.strip() == "256,":
            for width in own:
                line = re.sub(rf"\b{width}\b", str(config["net_width"]), line)
            lines[number] = line
    return "".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    discrete = isinstance(
        envpool.make_gymnasium(environment, num_envs=1).action_space, gymnasium.spaces.Discrete
    )
    flags = ["--no-cuda"]
    if algorithm == "ppo":
        name, arguments = of_ppo(discrete)
        flags += ["--no-anneal-lr", "--no-clip-vloss"]
    else:
        name, arguments = of_dqn() if algorithm == "dqn" else of_actor_critic()
    scripts = Path(folder).resolve()
    sys.path.insert(0, str(scripts.parent))
    vector: Any = gymnasium.vector
    vector.SyncVectorEnv = pooled
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # it writes its event files below the working folder
        script = Path(place) / name
        script.write_text(with_widths((scripts / name).read_text()))
        sys.argv = [name, "--env-id", environment, "--seed", seed, "--total-timesteps", steps]
        for option, value in arguments.items():
            sys.argv += [f"--{option}", str(value)]
        sys.argv += flags
        runpy.run_path(str(script), run_name="__main__")
        wall, cpu = time.perf_counter() - began[0][0], time.process_time() - began[0][1]
    batch = config["n_envs"] * config["n_steps"] if algorithm == "ppo" else 1
    print(json.dumps({"steps": int(steps) // batch * batch, "wall": wall, "cpu": cpu}))


if __name__ == "__main__":
    main()
