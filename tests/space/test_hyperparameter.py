"""One hyperparameter: values against the unit interval, by tables and by counting."""

import math

import numpy as np
import pytest
from scipy import stats

from autorl.core.types import FrozenMap, InputError
from autorl.space import Hyperparameter

# Chance that a chi-square test here fails for a correct generator, were its seed not fixed.
FALSE_ALARM = 1e-6

LINEAR = Hyperparameter.real("x", -1, 3)
LOG = Hyperparameter.real("x", 1e-6, 0.1, scale="log", default=3e-4)
FLIPPED = Hyperparameter.real("x", 0.9, 0.999, scale="flipped_log")
INT = Hyperparameter.integer("x", 1, 4)
LOG_INT = Hyperparameter.integer("x", 1, 8, scale="log")
NETS = Hyperparameter.ordinal("x", [[64], [64, 64], [256, 256]])
MIXED = Hyperparameter.categorical("x", [1, True, "1", None, 0.5])


@pytest.mark.parametrize(
    ("hyperparameter", "unit", "value"),
    [
        (LINEAR, 0.0, -1.0),
        (LINEAR, 0.25, 0.0),
        (LINEAR, 1.0, 3.0),
        (LOG, 0.0, 1e-6),
        (LOG, 0.2, 1e-5),
        (LOG, 0.5, 10**-3.5),
        (LOG, 1.0, 0.1),
        (FLIPPED, 0.0, 0.9),
        (FLIPPED, 0.5, 0.99),
        (FLIPPED, 1.0, 0.999),
        (INT, 0.125, 1),
        (INT, 0.375, 2),
        (INT, 0.875, 4),
        (LOG_INT, math.log(3 / 0.5) / math.log(8.5 / 0.5), 3),
        (NETS, 0.5, (64, 64)),
        (MIXED, 0.3, True),
        (Hyperparameter.constant("x", [1, 2]), 0.5, (1, 2)),
    ],
)
def test_value_at_unit(hyperparameter, unit, value):
    found = hyperparameter.from_unit(unit)
    assert type(found) is type(value)
    assert found == pytest.approx(value, rel=1e-9) if isinstance(value, float) else found == value
    if hyperparameter.numeric:
        assert hyperparameter.to_unit(value) == pytest.approx(unit, abs=1e-12)


@pytest.mark.parametrize(
    ("hyperparameter", "shares"),
    [
        (INT, [1, 1, 1, 1]),
        (Hyperparameter.integer("x", -3, 13), [1] * 17),
        (LOG_INT, [math.log((v + 0.5) / (v - 0.5)) for v in range(1, 9)]),
        (NETS, [1, 1, 1]),
        (MIXED, [1] * 5),
    ],
)
def test_shares_of_discrete_values(hyperparameter, shares):
    n = 20_000
    drawn = [hyperparameter.from_unit(unit) for unit in np.random.default_rng(1).random(n)]
    if hyperparameter.choices:
        counts = np.bincount(
            [hyperparameter.index(value) for value in drawn], minlength=len(shares)
        )
    else:
        counts = np.bincount(np.array(drawn) - int(hyperparameter.lower), minlength=len(shares))
    expected = n * np.array(shares) / np.sum(shares)
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("hyperparameter", "default"),
    [
        (LINEAR, 1.0),
        (Hyperparameter.real("x", 1e-4, 1e-2, scale="log"), 1e-3),
        (INT, 3),
        (NETS, (64, 64)),
        (MIXED, 1),
        (Hyperparameter.integer("x", 1000, 100_000, default=1e4), 10_000),
        (Hyperparameter.real("x", 0, 5, default=2), 2.0),
        (Hyperparameter.categorical("x", [[1], [2]], default=[2]), (2,)),
        (Hyperparameter.categorical("x", [1, True], default=True), True),
    ],
)
def test_defaults(hyperparameter, default):
    assert (type(hyperparameter.default), hyperparameter.default) == (type(default), default)


def test_true_is_not_one():
    assert MIXED.index(1) == 0
    assert MIXED.index(True) == 1
    assert MIXED.index("1") == 2
    assert not Hyperparameter.categorical("x", [0, 1]).accepts(True)
    assert not INT.accepts(True)
    assert not LINEAR.accepts(True)
    with pytest.raises(InputError, match="not among the choices"):
        MIXED.index(False)


def test_domain_membership():
    assert LINEAR.accepts(0)
    assert not LINEAR.accepts("0")
    assert not LINEAR.accepts(float("nan"))
    assert not INT.accepts(2.0)
    assert not INT.accepts(np.int64(2))
    assert NETS.accepts([64, 64])
    assert Hyperparameter.categorical("x", [{"pi": [64]}]).choices == (FrozenMap({"pi": (64,)}),)
