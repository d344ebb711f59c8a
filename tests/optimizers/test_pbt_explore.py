"""Configurations that pbt and pb2 explore are always valid: bounds, constraints, scale, type, and
nothing that may not change."""

import numpy as np
import pytest

from autorl.core.types import Proposed, Scored
from autorl.optimizers import make
from autorl.space import load_space

# Every type and scale three times over, a conditional part, an ordered pair, a forbidden pair. 37 hyperparameters.
ONE = {
    "rate": {"type": "float", "lower": 1e-4, "upper": 1e-3, "scale": "log", "changeable": True},
    "gamma": {
        "type": "float",
        "lower": 0.9,
        "upper": 0.9999,
        "scale": "flipped_log",
        "changeable": True,
    },
    "clip": {"type": "float", "lower": -0.25, "upper": 0.5, "changeable": True},
    "epochs": {"type": "int", "lower": 1, "upper": 3, "changeable": True},
    "buffer": {
        "type": "int",
        "lower": 10,
        "upper": 100_000,
        "scale": "log",
        "default": 1000,
        "changeable": True,
    },
    "batch": {"type": "ordinal", "choices": [32, 64, 128], "changeable": True},
    "activation": {"type": "categorical", "choices": ["relu", "tanh", "elu"], "changeable": True},
    "normalize": {"type": "categorical", "choices": [True, False], "changeable": True},
    "net": {"type": "categorical", "choices": [[64], [64, 64]]},
    "width": {"type": "int", "lower": 1, "upper": 512, "scale": "log", "default": 64},
}
MANY = {f"{part}.{name}": entry for part in "abc" for name, entry in ONE.items()}
MAY = {"changeable": True}
WHOLE = {"type": "int", "lower": 1, "upper": 64, "scale": "log", **MAY}
SPACE = load_space(
    {
        "hyperparameters": {
            **MANY,
            "n": {**WHOLE, "default": 16},
            "m": {**WHOLE, "default": 4},
            "kind": {"choices": ["adam", "sgd", "other"], "changeable": True},
            "momentum": {"type": "float", "lower": 0.0, "upper": 0.99, "changeable": True},
            "fixed": {"type": "float", "lower": 0.0, "upper": 1.0},
            "end": {**MAY, "type": "float", "lower": 1e-6, "upper": 1e-1, "scale": "log"},
            "shape": {"choices": ["constant", "linear"]},
        },
        "conditions": {
            "momentum": "kind == 'sgd'",
            "fixed": "kind == 'other'",
            "end": "shape != 'constant'",
        },
        "forbidden": [{"kind": "sgd", "a.activation": "elu"}],
        "constraints": ["m <= n", "a.epochs <= b.epochs + 1"],
    }
)
DEFAULT = SPACE.default()


def explored(name, seed, asks):
    """(donor's configuration, explored one) from a population of random members with random scores."""
    rng = np.random.default_rng(seed)
    optimizer = make(
        name,
        SPACE,
        horizon=100,
        changeable=SPACE.changeable,
        population=12,
        generations=4,
        quantile=0.5,
    )
    number = 0
    for generation in range(2):
        for _ in range(12):
            answer = optimizer.ask(rng)
            optimizer.observe(Proposed(number, answer))
            number += 1
        for member in range(12):
            proposal = number - 12 + member
            optimizer.observe(
                Scored(proposal, (float(rng.normal()),), reached=25 * (generation + 1))
            )
    found, models = 0, 0
    while found < asks:
        answer = optimizer.ask(rng)
        donor = optimizer.history[answer.resume_from].proposal
        if not answer.origin.startswith("exploit"):
            optimizer.observe(Proposed(number, answer))  # the next member's turn
            number += 1
            continue
        if name == "pb2" and not models:
            optimizer.observe(
                Proposed(number, answer)
            )  # the others use the model that is stored with it
            number, models = number + 1, 1
            continue
        found += 1
        yield donor.config, answer.config


def check(donor, config):
    """Number of values; the checks do not use the code they check."""
    for name, value in config.items():
        entry = SPACE.hyperparameters[name]
        if entry.choices:
            assert any(
                value == choice and type(value) is type(choice) for choice in entry.choices
            ), (name, value)
            continue
        assert type(value) is {"int": int, "float": float}[entry.type], (name, value)
        assert entry.lower <= value <= entry.upper, (name, value)
    assert config["m"] <= config["n"]
    assert config["a.epochs"] <= config["b.epochs"] + 1
    assert not (config["kind"] == "sgd" and config["a.activation"] == "elu")
    assert ("momentum" in config) == (config["kind"] == "sgd")
    assert ("fixed" in config) == (config["kind"] == "other")
    assert ("end" in config) == (config["shape"] != "constant")
    for name in {*donor, *config} - SPACE.changeable:
        assert donor.get(name) == config.get(name), name
    return len(config)


def check_many(name, values):
    """Explore until so many values were seen; every configuration is checked."""
    seen, moved, seed = 0, 0, 0
    while seen < values:
        for donor, config in explored(name, seed, 200 if values > 100_000 else 20):
            seen += check(donor, config)
            moved += donor != config
        seed += 1
    return seen, moved


MILLION = [pytest.mark.slow, pytest.mark.cpu_seconds(7200)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pbt", 20_000),
        ("pb2", 3_000),
        pytest.param("pbt", 1_000_000, marks=MILLION),
        pytest.param("pb2", 1_000_000, marks=MILLION),
    ],
)
def test_explored_values_are_valid(name, values):
    """Ray's PBT left the bounds with 77 of 200 perturbations, and made 51 of the choices 32, 64, 128."""
    seen, moved = check_many(name, values)
    assert moved > 0.9 * seen / len(DEFAULT)
