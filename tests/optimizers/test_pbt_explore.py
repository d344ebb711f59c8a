"""Configurations that pbt and pb2 explore are always valid: bounds, constraints, scale, type, and
nothing that may not change."""

from itertools import count

import numpy as np
import pytest
from driving import tell

from autorl.core.types import Proposed
from autorl.optimizers import make
from autorl.space import load_space

# Every type and scale three times over, a conditional part, an ordered pair, a forbidden pair. 37 hyperparameters.
FLAT = {"type": "float", "changeable": True}
WHOLE = {"type": "int", "lower": 1, "changeable": True}
ONE = {
    "rate": {**FLAT, "lower": 1e-4, "upper": 1e-3, "scale": "log"},
    "gamma": {**FLAT, "lower": 0.9, "upper": 0.9999, "scale": "flipped_log"},
    "clip": {**FLAT, "lower": -0.25, "upper": 0.5},
    "epochs": {**WHOLE, "upper": 3},
    "buffer": {**WHOLE, "lower": 10, "upper": 100_000, "scale": "log", "default": 1000},
    "batch": {"type": "ordinal", "choices": [32, 64, 128], "changeable": True},
    "activation": {"choices": ["relu", "tanh", "elu"], "changeable": True},
    "normalize": {"choices": [True, False], "changeable": True},
    "net": {"choices": [[64], [64, 64]]},
    "width": {"type": "int", "lower": 1, "upper": 512, "scale": "log", "default": 64},
}
MANY = {f"{part}.{name}": entry for part in "abc" for name, entry in ONE.items()}
SPACE = load_space(
    {
        "hyperparameters": {
            **MANY,
            "n": {**WHOLE, "upper": 64, "scale": "log", "default": 16},
            "m": {**WHOLE, "upper": 64, "scale": "log", "default": 4},
            "kind": {"choices": ["adam", "sgd", "other"], "changeable": True},
            "momentum": {**FLAT, "lower": 0.0, "upper": 0.99},
            "fixed": {"type": "float", "lower": 0.0, "upper": 1.0},
            "end": {**FLAT, "lower": 1e-6, "upper": 1e-1, "scale": "log"},
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
    sizes = {"population": 12, "generations": 4, "quantile": 0.5}
    optimizer = make(name, SPACE, horizon=100, changeable=SPACE.changeable, **sizes)
    for first in (0, 12):
        for number in range(first, first + 12):
            optimizer.observe(Proposed(number, optimizer.ask(rng)))
        for number in range(first, first + 12):
            tell(optimizer, number, rng.normal())
    remaining, stored = asks, False
    while remaining:
        answer = optimizer.ask(rng)
        exploits = answer.origin.startswith("exploit")
        if not exploits or (name == "pb2" and not stored):
            # The next member's turn; later ones use the model that is stored with the first.
            optimizer.observe(Proposed(len(optimizer.history), answer))
            stored |= exploits
            continue
        remaining -= 1
        yield optimizer.history[answer.resume_from].proposal.config, answer.config


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
    seen, moved = 0, 0
    for seed in count():
        for donor, config in explored(name, seed, 200 if values > 100_000 else 20):
            seen += check(donor, config)
            moved += donor != config
        if seen >= values:
            break
    assert moved > 0.9 * seen / len(DEFAULT)
