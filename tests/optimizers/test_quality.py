"""Our optimizers are as good as the libraries they are built on, run live on the same function with the same budget.

Two-sided Mann-Whitney tests at level 1e-3 on independent repeats: see `assert_alike`. Seeds are fixed: no flicker.
"""

import warnings
from collections.abc import Callable

import optuna
import pytest
from mixed_task import CUBE, MIXED, mixed

from autorl.core.types import Config, Proposal
from autorl.optimizers import make
from autorl.space import Space
from autorl.testing.optimizers import assert_alike
from autorl.testing.simulation import simulate


def sphere(config: Config) -> float:
    return -sum((value - 0.3 - 0.05 * i) ** 2 for i, value in enumerate(config.values()))


def by_trial(trial: optuna.Trial) -> float:
    config = {"rate": trial.suggest_float("rate", 1e-5, 1e-1, log=True)}
    config["kind"] = trial.suggest_categorical("kind", ["a", "b", "c"])
    config["layers"] = trial.suggest_int("layers", 1, 8)
    if config["kind"] != "c":
        name = {"a": "a.x", "b": "b.y"}[config["kind"]]
        config[name] = trial.suggest_float(name, 0.0, 1.0)
    return mixed(Config(config))


def ours(
    name: str, space: Space, f: Callable[[Config], float], n: int, repeats: int, **options: object
) -> list[float]:
    def objective(number: int, proposal: Proposal) -> float:
        return f(proposal.config)

    def factory() -> object:
        return make(name, space, horizon=1, **options)

    return [simulate(factory, objective, n, seed=1000 + seed).best for seed in range(repeats)]


def original(
    sampler: Callable[[int], optuna.samplers.BaseSampler],
    objective: Callable[[optuna.Trial], float],
    first: Config,
    n: int,
    repeats: int,
) -> list[float]:
    best = []
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for seed in range(repeats):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = optuna.create_study(direction="maximize", sampler=sampler(seed))
            study.enqueue_trial(dict(first))
            study.optimize(objective, n_trials=n)
        best.append(study.best_value)
    optuna.logging.set_verbosity(verbosity)
    return best


@pytest.mark.slow
def test_tpe_on_a_conditional_space() -> None:
    def sampler(seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(multivariate=True, group=True, seed=seed)

    assert_alike(
        ours("tpe", MIXED, mixed, 40, repeats=24),
        original(sampler, by_trial, MIXED.default(), 40, repeats=24),
    )


def test_the_test_can_fail() -> None:
    """Random search is told apart from TPE, so `assert_alike` has teeth."""
    with pytest.raises(AssertionError, match="p = "):
        assert_alike(
            ours("tpe", CUBE, sphere, 40, repeats=24), ours("random", CUBE, sphere, 40, repeats=24)
        )
