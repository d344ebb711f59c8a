"""CleanRL's PPO, its own script, on EnvPool: a peer of `population.py`.

Called by it in an interpreter that has envpool, torch, tyro and TensorBoard:

    python cleanrl_envpool.py FOLDER ENVIRONMENT STEPS SEED CONFIG-JSON

FOLDER is `cleanrl/` of a checkout. Its script runs unchanged; where it makes a vector of Gymnasium's environments it
gets one pool with one thread. Observations and rewards of continuous tasks are normalised by Gymnasium's vector
wrappers, once for the pool where the script has them for each environment. Learning-rate annealing and value clipping
are off, as they are in Stable-Baselines3. Prints one JSON line: steps, and wall and CPU seconds from the first reset.

References: S. Huang et al. CleanRL. JMLR 2022. J. Weng et al. EnvPool. NeurIPS 2022.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import envpool
import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import vector as wrappers

folder, environment, steps, seed, text = sys.argv[1:]
config = json.loads(text)
began: list[tuple[float, float]] = []


class Pool(gymnasium.vector.VectorEnv):
    """A pool of EnvPool behind Gymnasium's class of vectors, which the wrappers ask for."""

    metadata: ClassVar[dict[str, Any]] = {
        "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP
    }

    def __init__(self, made: list[Any]) -> None:
        self.num_envs = len(made)
        self.pool = envpool.make_gymnasium(
            environment, num_envs=self.num_envs, num_threads=1, seed=int(seed)
        )
        self.single_observation_space = self.pool.observation_space
        self.single_action_space = self.pool.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, self.num_envs
        )
        self.action_space = gymnasium.vector.utils.batch_space(
            self.single_action_space, self.num_envs
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        began.append((time.perf_counter(), time.process_time()))
        return self.pool.reset()

    def step(self, actions: Any) -> Any:
        return self.pool.step(np.asarray(actions, dtype=self.single_action_space.dtype))


def pooled(made: list[Any]) -> Any:
    """The pool, normalised as the script has it where actions are continuous."""
    pool: Any = Pool(made)
    if isinstance(pool.single_action_space, gymnasium.spaces.Discrete):
        return pool
    pool = wrappers.NormalizeObservation(wrappers.ClipAction(pool))
    pool = wrappers.TransformObservation(pool, lambda values: np.clip(values, -10, 10))
    pool = wrappers.NormalizeReward(pool, gamma=0.99)
    return wrappers.TransformReward(pool, lambda values: np.clip(values, -10, 10))


def main() -> None:
    torch.set_num_threads(1)
    discrete = isinstance(
        envpool.make_gymnasium(environment, num_envs=1).action_space, gymnasium.spaces.Discrete
    )
    script = Path(folder).resolve() / ("ppo.py" if discrete else "ppo_continuous_action.py")
    batches = config["n_envs"] * config["n_steps"] // config["batch_size"]
    sys.argv = [str(script), "--env-id", environment, "--seed", seed, "--total-timesteps", steps]
    sys.argv += ["--num-envs", str(config["n_envs"]), "--num-steps", str(config["n_steps"])]
    sys.argv += ["--num-minibatches", str(batches), "--update-epochs", str(config["n_epochs"])]
    sys.argv += ["--learning-rate", str(config["learning_rate"])]
    sys.argv += ["--no-anneal-lr", "--no-clip-vloss", "--ent-coef", "0", "--no-cuda"]
    gymnasium.vector.SyncVectorEnv = pooled
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # it writes its event files below the working folder
        runpy.run_path(str(script), run_name="__main__")
        wall, cpu = time.perf_counter() - began[0][0], time.process_time() - began[0][1]
    batch = config["n_envs"] * config["n_steps"]
    print(json.dumps({"steps": int(steps) // batch * batch, "wall": wall, "cpu": cpu}))


if __name__ == "__main__":
    main()
