"""Optuna proposes; seeds and verdict are autorl's."""

import optuna
from agent import train

import autorl

objective = autorl.repeated(
    lambda trial, seed: train(trial.suggest_float("epsilon", 0.01, 1.0, log=True), seed),
    seeds="adaptive",
)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=20)
best = study.best_params["epsilon"]
print(autorl.judge(lambda seed: train(1.0, seed), lambda seed: train(best, seed)))
