"""Scores of more seeds count more: in the densities of TPE, the noise of the GP, the forest of SMAC."""

import dataclasses

import numpy as np
import pytest

from autorl.core.types import Config, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers.base import Record, seed_counts
from autorl.testing.optimizers import space_of

CONTINUOUS = space_of("continuous")
TYPES = space_of("types")


def asked(name, space, counts, *, weigh, pending=0, draws=1, **options):
    """Return proposals of an optimizer that knows a score for each count, for some generators."""
    rng = np.random.default_rng(0)
    optimizer = make(name, space, horizon=10, budget=40, **options)
    optimizer.problem = dataclasses.replace(optimizer.problem, weigh_seeds=weigh)
    configs = [space.default(), *(space.sample(rng) for _ in counts)]
    for number, config in enumerate(configs[: len(counts) + pending]):
        optimizer.observe(Proposed(number, Proposal(config, 10)))
    for number, count in enumerate(counts):
        optimizer.observe(Scored(number, (float(rng.normal()),), n_seeds=count, reached=10))
    return [optimizer.ask(np.random.default_rng(draw)).config for draw in range(draws)]


def record(number, result):
    return Record(number, Proposal(Config(x=1.0), 10), result)


def test_counts_have_no_common_divisor_and_what_has_no_score_counts_as_the_fewest():
    results = [
        Scored(0, (1.0,), n_seeds=2),
        Scored(1, (1.0,), n_seeds=6),
        None,
        Failed(3, Status.CRASH, ()),
    ]
    assert seed_counts(map(record, range(4), results)) == [1, 3, 1, 1]
    assert seed_counts([record(0, Scored(0, (1.0,), n_seeds=3))]) == [1]
    assert seed_counts([record(0, None)]) == [1]
    assert seed_counts([]) == []


@pytest.mark.parametrize("space", [CONTINUOUS, TYPES], ids=["continuous", "conditions"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("tpe", {"draws": 10}), ("gp", {"draws": 30}), ("smac", {})],
    ids=["tpe", "gp", "smac"],
)
def test_seeds_that_are_equal_change_no_proposal_and_others_do(name, options, space):
    if name == "smac":
        pytest.importorskip("smac")
    options = {"startup": 4, **options}
    equal = [2] * 12
    plain = asked(name, space, equal, weigh=False, **options)
    same = asked(name, space, equal, weigh=True, **options)
    assert plain == same
    more = [2, 20] * 6
    unweighed = asked(name, space, more, weigh=False, **options)
    assert unweighed == plain, "a study that does not weigh proposes what it did"
    weighed = asked(name, space, more, weigh=True, **options)
    assert weighed != plain


def test_the_forest_is_fitted_to_a_row_for_each_seed(monkeypatch):
    pytest.importorskip("smac")
    from smac.model.random_forest.random_forest import RandomForest

    seen = []
    original = RandomForest._train

    def spy(self, X, y):
        seen.append(np.unique(np.nan_to_num(X, nan=-1), axis=0, return_counts=True)[1])
        return original(self, X, y)

    monkeypatch.setattr(RandomForest, "_train", spy)
    asked("smac", TYPES, [1, 3, 1, 1, 2], weigh=True, startup=4)
    assert sorted(seen[0].tolist()) == [1, 1, 1, 2, 3]
