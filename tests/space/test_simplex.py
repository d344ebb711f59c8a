"""Weights with sum 1: floats that optimizers see, uniform on the simplex, and weights for trainers."""

import itertools

import numpy as np
import pytest

from autorl.core.types import Config, InputError
from autorl.space import load_space
from autorl.space.simplex import whole_name, with_weights
from autorl.study.spec import load_spec


def space_with(entry=None, **parts):
    weights = {"type": "simplex", "size": 3} | (entry or {})
    hyperparameters = {"optimizer": ["adam", "sgd"], "mix": weights}
    return load_space({"hyperparameters": hyperparameters, **parts})


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_grid_of_the_cube_is_uniform_on_the_simplex(size):
    space = load_space({"mix": {"type": "simplex", "size": size}})
    n = {2: 400, 3: 100, 4: 40}[size]
    centres = (np.arange(n) + 0.5) / n
    weights = np.array(
        [
            with_weights(space.from_unit(units))["mix"]
            for units in itertools.product(centres, repeat=size - 1)
        ]
    )
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-14)
    assert weights.min() >= 0
    # The share of the simplex where a given weight is above t, whichever weight it is.
    for t in (0.1, 0.3, 0.6):
        shares = (weights > t).mean(axis=0)
        np.testing.assert_allclose(shares, (1 - t) ** (size - 1), atol=1.5 / n)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, (1 / 3, 1 / 3, 1 / 3)),
        ({"default": [0.2, 0.3, 0.5]}, (0.2, 0.3, 0.5)),
        ({"default": [1, 0, 0]}, (1, 0, 0)),
        ({"default": [0, 0, 1]}, (0, 0, 1)),
    ],
)
def test_the_default_configuration_has_the_default_weights(entry, expected):
    space = space_with({**entry, "changeable": True})
    assert space.names == ("optimizer", "mix.simplex.0", "mix.simplex.1")
    assert space.changeable == {"mix.simplex.0", "mix.simplex.1"}
    found = with_weights(space.default())
    assert found["mix"] == pytest.approx(expected, abs=1e-9)
    assert found.keys() == {"optimizer", "mix"}
    assert [whole_name(name) for name in space.names] == ["optimizer", "mix", "mix"]


def test_weights_have_a_condition_and_a_base_like_any_hyperparameter(tmp_path):
    space = space_with(conditions={"mix": "optimizer == sgd"})
    assert space.default() == {"optimizer": "adam"}
    assert len(space.config({"optimizer": "sgd"})) == 3
    assert load_space(space.to_dict()) == space
    (tmp_path / "base.yaml").write_text("hyperparameters: {mix: {type: simplex, size: 3}, x: 1}")
    fixed = load_space(
        {"extends": "base", "hyperparameters": {"mix": {"value": [1, 0, 0]}}}, tmp_path
    )
    assert fixed.default() == {"mix": (1, 0, 0), "x": 1}


@pytest.mark.parametrize(
    ("entry", "key", "message"),
    [
        ({"size": 1}, "size", "a whole number of at least 2"),
        ({"size": 2.5}, "size", "a whole number of at least 2"),
        ({"default": [0.5, 0.5]}, "default", "3 numbers from 0 on with sum 1"),
        ({"default": [0.5, 0.5, 0.5]}, "default", "3 numbers from 0 on with sum 1"),
        ({"default": [1.5, -0.5, 0]}, "default", "3 numbers from 0 on with sum 1"),
        ({"lower": 0}, "lower", "unknown key"),
    ],
)
def test_what_is_no_simplex_is_refused(entry, key, message):
    with pytest.raises(InputError, match=message) as caught:
        space_with(entry)
    assert caught.value.key == f"hyperparameters.mix.{key}"


def test_a_trainer_is_given_weights_and_a_landscape_the_floats():
    floats = Config({"ppo.mix.simplex.0": 0.5, "algorithm": "ppo"})
    parts = {"mix": {"type": "simplex", "size": 2}}
    for trainer, given in (("sb3/ppo", {"mix": (0.5, 0.5)}), ("tabular", {"mix.simplex.0": 0.5})):
        algorithms = {"ppo": {"trainer": trainer, "space": parts}}
        spec = load_spec(
            {"algorithms": algorithms, "fidelity": {"steps": 8}, "budget": {"runs": 4}}
        )
        assert spec.trainer_for(floats)[1] == given
