"""An application of Hydra, swept by autorl: `python app.py -m`.

It stands for a training: a return that depends on two hyperparameters and on the seed.
"""

import math
import random

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path="configs", config_name="app")
def train(cfg: DictConfig) -> float:
    noise = random.Random(cfg.seed).gauss(0, 0.1)
    height = -abs(math.log10(cfg.algorithm.learning_rate) + 3)
    return height - 0.1 * (cfg.algorithm.activation != "tanh") + noise


if __name__ == "__main__":
    train()
