"""Priors of the space: a good one helps at once, a misleading one is forgotten."""

import numpy as np
import pytest

from autorl.core.types import Proposed, Scored
from autorl.optimizers import make
from autorl.optimizers.registry import REGISTRY, find
from autorl.space import load_space

BEST = {"a": 0.3, "b": 0.8, "c": 0.65, "d": 0.4}
GOOD = {name: value + 0.05 for name, value in BEST.items()}
WRONG = {"a": 0.8, "b": 0.2, "c": 0.15, "d": 0.9}


def space_about(centres):
    return load_space(
        {
            name: {
                "type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5,
                **({"prior": {"centre": centres[name], "confidence": "high"}} if centres else {}),
            }
            for name in BEST
        }
    )  # fmt: skip


def regrets(name, options, centres, count, studies):
    """Return medians over studies of the least squared distance to the best, by proposals."""
    curves = []
    for study in range(studies):
        optimizer = make(name, space_about(centres), horizon=10, budget=100, **options)
        distances = []
        for number in range(count):
            proposal = optimizer.ask(np.random.default_rng([study, number]))
            optimizer.observe(Proposed(number, proposal))
            distances.append(sum((proposal.config[key] - BEST[key]) ** 2 for key in BEST))
            scored = Scored(number, (-distances[-1],), reached=proposal.until)
            optimizer.observe(scored)
        curves.append(np.minimum.accumulate(distances))
    return np.median(curves, axis=0)


@pytest.mark.parametrize(
    ("name", "options", "count", "studies"),
    [
        ("tpe", {}, 60, 5),
        pytest.param("transfer", {"prior": "none"}, 100, 5, marks=pytest.mark.more),
        pytest.param("gp", {}, 40, 3, marks=pytest.mark.more),
    ],
)
def test_a_good_prior_helps_and_a_misleading_one_washes_out(name, options, count, studies):
    none, good, wrong = (regrets(name, options, c, count, studies) for c in (None, GOOD, WRONG))
    assert good[19] < none[19]
    assert wrong[-1] < none[-1] + 0.005


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_who_does_not_read_priors_says_so(name):
    if find(name).reads_priors:
        return
    entry = {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}
    space = load_space({"x": entry | {"prior": {"centre": 0.2}}})
    told = make(name, space, horizon=10, changeable=frozenset("x")).cautions()
    assert told == ("this optimizer does not read the priors of the space",)
