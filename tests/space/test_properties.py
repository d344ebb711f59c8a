"""Properties of every search space: valid configurations, a codec without loss."""

from __future__ import annotations

import json
import pickle

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_tests import examples
from random_spaces import spaces

from autorl.core.types import Config
from autorl.space import Space, canonical_json, load_space, parse_document, read_space, to_yaml

COMMON = settings(
    max_examples=examples(80),
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
seeds = st.integers(0, 2**32 - 1)


@COMMON
@given(spaces(), seeds)
def test_every_way_to_a_configuration_gives_a_valid_one(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = len(space.names)
    space.check(space.default())
    sampled = space.sample(rng)
    space.check(sampled)
    space.check(space.decode(rng.uniform(-0.2, 1.2, n), rng))
    space.check(space.decode(np.where(rng.random(n) < 0.3, np.nan, rng.random(n)), rng))
    space.check(space.perturb(sampled, rng))
    space.check(space.perturb(sampled, rng, names=space.names, step=0.5, resample=0.5))
    space.check(space.repair(space.from_unit(rng.random(n)), rng, keep=space.names[: n // 2]))
    space.check(space.repair({}, rng))


@COMMON
@given(spaces(), seeds)
def test_codec_is_exact_inactive_hyperparameters_included(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for config in [
        space.default(),
        space.sample(rng),
        space.from_unit(rng.integers(0, 2, len(space.names))),
    ]:
        vector = space.to_unit(config)
        assert [
            name for name, unit in zip(space.names, vector, strict=True) if not np.isnan(unit)
        ] == list(config)
        assert np.nanmin(vector) >= 0
        assert np.nanmax(vector) <= 1
        again = space.from_unit(vector)
        for name in config:
            assert canonical_json(again[name]) == canonical_json(config[name])
        assert space.from_unit(space.to_unit(again)) == again


@COMMON
@given(spaces(), seeds)
def test_repair_leaves_valid_configurations_alone_and_names_bound_the_move(
    space: Space, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    config = space.sample(rng)
    assert space.repair(config, rng) == config
    moved = space.perturb(config, rng)
    for name in config:
        if name in moved and name not in space.changeable:
            assert moved[name] == config[name]
    # A move that would switch something fixed on or off is not made: conditions may hold all.
    free = not (space.forbidden or space.constraints or space.conditions)
    if free and any(_can_move(space, name) for name in space.changeable & set(config)):
        assert moved != config


@COMMON
@given(spaces(), seeds)
def test_definition_survives_every_form(space: Space, seed: int) -> None:
    forms = [
        read_space(space.to_dict()),
        read_space(json.loads(json.dumps(space.to_dict()))),
        load_space(parse_document(to_yaml(space)).data),
        pickle.loads(pickle.dumps(space)),
    ]
    vector = np.random.default_rng(seed).random(len(space.names))
    for form in forms:
        assert form == space
        assert form.hash == space.hash
        assert form.names == space.names
        assert form.from_unit(vector) == space.from_unit(vector)


@COMMON
@given(spaces(), seeds)
def test_active_is_what_a_valid_configuration_holds(space: Space, seed: int) -> None:
    config = space.sample(np.random.default_rng(seed))
    assert space.active(config) == frozenset(config)
    for name in config:
        assert not space.is_valid({key: value for key, value in config.items() if key != name})
    for name in set(space.names) - set(config):
        assert not space.is_valid(Config({**config, name: space.hyperparameters[name].default}))


def _can_move(space: Space, name: str) -> bool:
    return space.hyperparameters[name].numeric or space.hyperparameters[name].n_choices > 1
