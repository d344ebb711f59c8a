"""Ray Tune proposes; seeds and verdict are autorl's."""

from agent import train
from ray import tune

import autorl


def trainable(config):
    # Trials are in processes of their own and know no best one: a fixed number of seeds.
    return {"score": autorl.repeated(train, seeds=3)(config["epsilon"])}


space = {"epsilon": tune.grid_search([0.05, 0.1, 0.3])}
results = tune.Tuner(trainable, param_space=space).fit()
best = results.get_best_result("score", "max").config["epsilon"]
print(autorl.judge(lambda seed: train(1.0, seed), lambda seed: train(best, seed)))
