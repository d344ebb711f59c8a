"""Spaces of ConfigSpace and Optuna are taken as they are, by `tune` and `Tuner`."""

from unittest.mock import Mock

import ConfigSpace
import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from autorl import InputError, SeedPlan, Tuner, tune
from autorl.space.foreign import from_optuna

DISTRIBUTIONS = {
    "rate": FloatDistribution(1e-5, 1e-1, log=True),
    "gamma": FloatDistribution(0.9, 0.999),
    "steps": IntDistribution(8, 512, log=True),
    "layers": IntDistribution(1, 4),
    "width": IntDistribution(32, 96, step=32),
    "clip": FloatDistribution(0.1, 0.4, step=0.1),
    "activation": CategoricalDistribution(["tanh", "relu", None, True]),
    "fixed": FloatDistribution(0.5, 0.5),
    "only": CategoricalDistribution(["one"]),
}


def test_the_values_are_those_that_optuna_suggests():
    """Every configuration is one of Optuna's, and every trial of Optuna is one of the space."""
    space = from_optuna(DISTRIBUTIONS)
    rng = np.random.default_rng(0)
    for config in (space.default(), *(space.sample(rng) for _ in range(50))):
        for name, item in DISTRIBUTIONS.items():
            assert item._contains(item.to_internal_repr(config[name])), (name, config[name])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    for _ in range(50):
        params = study.ask(DISTRIBUTIONS).params
        params["clip"] = round(params["clip"], 12)  # Optuna adds 0.1 and 0.2
        assert space.is_valid(space.config(params))


def test_kinds_scales_and_defaults():
    space = from_optuna(DISTRIBUTIONS)
    kinds = {name: (item.type, item.scale) for name, item in space.hyperparameters.items()}
    assert kinds == {
        "rate": ("float", "log"),
        "gamma": ("float", "linear"),
        "steps": ("int", "log"),
        "layers": ("int", "linear"),
        "width": ("ordinal", "linear"),
        "clip": ("ordinal", "linear"),
        "activation": ("categorical", "linear"),
        "fixed": ("constant", "linear"),
        "only": ("constant", "linear"),
    }
    assert space.hyperparameters["width"].choices == (32, 64, 96)
    assert space.hyperparameters["clip"].choices == (0.1, 0.2, 0.3, 0.4)
    assert space.default()["rate"] == pytest.approx(1e-3)


def configspace():
    space = ConfigSpace.ConfigurationSpace(seed=0)
    kind = ConfigSpace.Categorical("kind", ["sgd", "adam"], default="adam")
    rate = ConfigSpace.Float("rate", (1e-5, 1e-1), log=True, default=1e-3)
    beta = ConfigSpace.Float("beta", (0.5, 0.99), default=0.9)
    space.add(kind, rate, beta, ConfigSpace.EqualsCondition(beta, kind, "adam"))
    return space


@pytest.mark.parametrize("space", [configspace(), DISTRIBUTIONS], ids=["ConfigSpace", "Optuna"])
def test_tune_and_tuner_take_them(space):
    result = tune(
        lambda config, seed: config["rate"], space, runs=4, seeds=SeedPlan(1, 1), optimizer="random"
    )
    assert set(result.best_params) <= set(space)
    rows = result.trials()
    assert list(rows["value"]) == list(rows["params_rate"])
    assert Tuner(space, "random", seeds=SeedPlan(1, 0)).ask().config["rate"] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"x": FloatDistribution(0, 1), "y": (0, 1)}, "y: expected a distribution.*got tuple"),
        ({"x": IntDistribution(0, 10**7, step=7)}, "at most 10,000 values"),
        ({"a b": FloatDistribution(0, 1)}, "a b"),
        ((0, 1), "expected a Space, a mapping, a name, a ConfigurationSpace"),
    ],
)
def test_what_cannot_be_mapped_is_refused(space, message):
    with pytest.raises(InputError, match=message):
        tune(lambda config, seed: 1.0, space, runs=4)


def test_another_kind_of_distribution_is_refused():
    with pytest.raises(InputError, match="Mock is not supported"):
        from_optuna({"x": Mock(spec=optuna.distributions.BaseDistribution)})
