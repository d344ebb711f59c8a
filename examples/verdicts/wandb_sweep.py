"""A W&B sweep proposes; seeds and verdict are autorl's. A sweep needs an account."""

import wandb
from agent import train

import autorl

objective = autorl.repeated(train, seeds="adaptive")


def run():
    with wandb.init() as trial:
        trial.log({"score": objective(trial.config.epsilon)})


sweep = {"method": "bayes", "metric": {"name": "score", "goal": "maximize"}}
sweep["parameters"] = {"epsilon": {"min": 0.01, "max": 1.0}}
wandb.agent(wandb.sweep(sweep, project="verdicts"), run, count=20)
print(autorl.judge(lambda seed: train(1.0, seed), lambda seed: train(0.1, seed)))
