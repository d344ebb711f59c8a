"""Agreement with ConfigSpace on validity and activity, in both directions."""

import ConfigSpace
import numpy as np
import pytest
from ConfigSpace.hyperparameters.hp_components import ROUND_PLACES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property_tests import examples
from random_spaces import spaces

from autorl.core.types import InputError
from autorl.space import Space, from_configspace, load_space, parse_document, read_space
from autorl.space.configspace import export_constraint, from_configuration, to_configuration

COMMON = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 2**32 - 1)
FULL = parse_document("""
hyperparameters:
  lr:
    {type: float, lower: 1e-5, upper: 1e-2, scale: log, changeable: true, schedule: [constant, linear]}
  gamma: {type: float, lower: 0.9, upper: 0.9999, scale: flipped_log, default: 0.99, changeable: true,
    prior: {centre: 0.98, confidence: high}}
  n_steps: {type: int, lower: 16, upper: 4096, scale: log, default: 1024}
  batch_size: {type: ordinal, choices: [32, 64, 128], default: 64, changeable: true}
  net: {choices: [[64], [64, 64]], prior: {centre: [64]}}
  ent_coef: [auto, 0.1]
  use: [true, false]
  interval: int(1, 9)
  momentum: uniform(0, 1)
  policy: MlpPolicy
conditions:
  interval: use == true and gamma > 0.95 and n_steps >= 20.5
  momentum: net in [[64], [64, 64]] and (ent_coef == auto or n_steps <= 100)
forbidden: [{net: [64], batch_size: [32, 128]}, {use: false, ent_coef: 0.1}]
constraints:
- batch_size <= n_steps
- not (interval > 5 and momentum > lr)
- batch_size * 4 <= n_steps * 3
""").data


TINY = read_space(
    {"hyperparameters": {"a": {"type": "float", "lower": 1e-8, "upper": 2e-8, "scale": "log"}}}
)


def assert_same(space, back, config):
    """Compare up to 1e-6 of a range or to ConfigSpace's decimals.

    It rounds floats: six digits of a value of 1e-8 are left.
    """
    assert set(back) == set(config)
    units = zip(space.names, space.to_unit(back), space.to_unit(config), strict=True)
    for name, one, other in units:
        rounded = name in config and space.hyperparameters[name].type == "float"
        close = rounded and abs(back[name] - config[name]) <= 10.0**-ROUND_PLACES
        assert close or np.isclose(one, other, rtol=0.0, atol=1e-6, equal_nan=True), (
            name,
            back,
            config,
        )


@COMMON
@given(spaces(rules=False), seeds)
@example(TINY, 0)
def test_activity_and_values_agree_with_configspace(space: Space, seed: int) -> None:
    """ConfigSpace refuses what lacks an active or has an inactive hyperparameter."""
    exported = space.to_configspace()
    exported.seed(seed % 2**31)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        config = space.sample(rng)
        passed = to_configuration(space, exported, config)
        back = from_configuration(space, passed)
        assert_same(space, back, config)
        drawn = from_configuration(space, exported.sample_configuration())
        space.check(drawn)


@COMMON
@given(spaces(rules=False), seeds)
def test_export_then_import_is_the_same_space(space: Space, seed: int) -> None:
    again = from_configspace(space.to_configspace())
    assert again.hyperparameters == dict(space.hyperparameters)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        config = space.from_unit(rng.random(len(space.names)))
        assert again.active(config) == frozenset(config)
        again.check(config)


def test_forbidden_clauses_and_relations_agree():
    space = load_space(FULL)
    exported = space.to_configspace()
    lost = [rule.text for rule in space.constraints if not export_constraint(space, rule, exported)]
    assert lost == ["batch_size * 4 <= n_steps * 3"]
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(500):
        config = space.from_unit(rng.random(len(space.names)))
        rules = [
            rule
            for rule in space.violated(config)
            if rule.describe() != "constraint 'batch_size * 4 <= n_steps * 3'"
        ]
        try:
            to_configuration(space, exported, config).check_valid_configuration()
            assert not rules
        except ConfigSpace.exceptions.ForbiddenValueError:
            assert rules
            broken += 1
    assert 100 < broken < 400


def test_import_keeps_rules_scales_and_changeable():
    space = load_space(FULL)
    again = from_configspace(space.to_configspace())
    assert again.changeable == space.changeable
    assert again.hyperparameters == dict(space.hyperparameters)
    assert [constraint.text for constraint in again.constraints] == [
        "batch_size <= n_steps",
        "not ((interval > 5) and (momentum > lr))",
    ]
    reduced = load_space({**FULL, "constraints": FULL["constraints"][:2]})
    rng = np.random.default_rng(0)
    verdicts = set()
    for _ in range(500):
        config = space.from_unit(rng.random(len(space.names)))
        assert again.is_valid(config) == reduced.is_valid(config)
        verdicts.add(again.is_valid(config))
    assert verdicts == {True, False}


def test_spaces_written_with_configspace():
    source = ConfigSpace.ConfigurationSpace(
        {"a": (0, 10), "b": (1e-3, 1.0), "c": ["x", "y"], "d": 3}
    )
    source.add(ConfigSpace.OrdinalHyperparameter("o", [1, 2, 4]))
    source.add(ConfigSpace.GreaterThanCondition(source["b"], source["a"], 5))
    source.add(ConfigSpace.InCondition(source["o"], source["c"], ["x"]))
    source.add(ConfigSpace.ForbiddenEqualsClause(source["a"], 3))
    source.add(ConfigSpace.ForbiddenInClause(source["o"], [2, 4]))
    source.add(ConfigSpace.ForbiddenLessThanRelation(source["a"], source["b"]))
    source.add(
        ConfigSpace.ForbiddenOrConjunction(
            ConfigSpace.ForbiddenEqualsClause(source["c"], "y"),
            ConfigSpace.ForbiddenGreaterThanClause(source["a"], 8),
        )
    )
    space = from_configspace(source)
    assert set(space.names) == {"a", "b", "c", "d", "o"}
    rng = np.random.default_rng(0)
    for _ in range(300):
        config = space.from_unit(rng.random(len(space.names)))
        try:
            ConfigSpace.Configuration(source, values=dict(config)).check_valid_configuration()
            accepted = True
        except ConfigSpace.exceptions.ForbiddenValueError:
            accepted = False
        if set(config) >= {"a", "c"}:
            assert space.is_valid(config) == accepted, config


@pytest.mark.parametrize(
    ("item", "pattern"),
    [
        (
            ConfigSpace.NormalFloatHyperparameter("x", 0, 1, lower=-1, upper=1),
            "NormalFloat.* is not supported",
        ),
        (
            ConfigSpace.CategoricalHyperparameter("x", ["a", "b"], weights=[1, 2]),
            "weighted choices",
        ),
        (ConfigSpace.UniformFloatHyperparameter("x y", 0, 1), "cannot name a hyperparameter"),
    ],
)
def test_what_cannot_be_imported(item, pattern):
    source = ConfigSpace.ConfigurationSpace()
    source.add(item)
    with pytest.raises(InputError, match=pattern):
        from_configspace(source)
