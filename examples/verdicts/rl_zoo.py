"""RL Baselines3 Zoo trains; the verdict on a changed hyperparameter is autorl's."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import autorl


def train(seed, *changes):
    with tempfile.TemporaryDirectory() as folder:
        command = (
            f"-m rl_zoo3.train --algo ppo --env CartPole-v1 -n 20000 --seed {seed} -f {folder}"
        )
        words = [*command.split(), "--eval-freq", "20000", "--hyperparams", "n_envs:1", *changes]
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        file = next(Path(folder).rglob("evaluations.npz"))
        return float(np.load(file)["results"][-1].mean())


if __name__ == "__main__":
    print(autorl.judge(train, lambda seed: train(seed, "gamma:0.9"), out="verdict"))
