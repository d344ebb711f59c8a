"""fANOVA against brute-force integration of the same trees and functions with known shares."""

from itertools import product

import numpy as np
import pytest
from analysis_samples import DATA, arlbench, with_data

from autorl.landscapes import Landscape
from autorl.landscapes.analysis.forest import fit_forest, landscape_forest
from autorl.landscapes.analysis.variance import fanova, forest_leaves, variance_shares
from autorl.landscapes.importers import import_any
from autorl.space import load_space

MIXED = load_space(
    {
        "hyperparameters": {
            "x": {"type": "float", "lower": 0, "upper": 1},
            "n": {"type": "int", "lower": 1, "upper": 6},
            "c": {"type": "categorical", "choices": ["a", "b", "c", "d", "e"]},
            "z": {"type": "float", "lower": 0, "upper": 1},
        }
    }
)


def fitted(space, function, n=200, trees=32):
    configs = [space.sample(np.random.default_rng(number)) for number in range(n)]
    return fit_forest(space, configs, [function(config) for config in configs], trees=trees)


def cells(estimator, column, item):
    """Representative points of a column and their weights: what a tree cannot tell apart, or the values themselves."""
    if item.type != "float":
        count = item.n_choices or int(item.upper - item.lower) + 1
        return (np.arange(count) + 0.5) / count, np.full(count, 1 / count)
    inner = estimator.tree_.threshold[estimator.tree_.feature == column]
    edges = np.unique([0.0, *inner, 1.0])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def by_brute_force(estimator, space):
    """Shares of all single columns and pairs, from the tree's predictions on the whole product grid."""
    items = list(space.hyperparameters.values())
    axes = [cells(estimator, column, item) for column, item in enumerate(items)]
    grid = np.array(list(product(*(points for points, _ in axes))), dtype=np.float32)
    values = estimator.predict(grid).reshape([len(points) for points, _ in axes])
    weights = [weight for _, weight in axes]

    def marginal(kept):
        result = values
        for column in reversed(range(len(items))):
            if column not in kept:
                result = np.tensordot(result, weights[column], axes=(column, 0))
        return result

    def variance(kept):
        table = marginal(kept)
        measure = np.ones(())
        for column in kept:
            measure = np.multiply.outer(measure, weights[column])
        return float((measure * (table - (measure * table).sum()) ** 2).sum())

    total = variance(range(len(items)))
    single = [variance([column]) for column in range(len(items))]
    pairs = {
        (a, b): variance([a, b]) - single[a] - single[b]
        for a in range(len(items))
        for b in range(a + 1, len(items))
    }
    return {(column,): value / total for column, value in enumerate(single)} | {
        pair: value / total for pair, value in pairs.items()
    }


def test_shares_equal_brute_force_integration_of_every_tree():
    forest = fitted(
        MIXED, lambda c: c["x"] * c["n"] + (c["c"] in "ad") * 3 + np.sin(5 * c["z"]), n=60
    )
    for leaves, estimator in zip(forest_leaves(forest), forest.model.estimators_, strict=True):
        expected = by_brute_force(estimator, MIXED)
        assert variance_shares(leaves, list(expected)) == pytest.approx(
            list(expected.values()), abs=1e-9
        )
        sizes = (leaves.high - leaves.low).prod(axis=1)
        assert sizes.sum() == pytest.approx(1.0)


def test_a_full_factorial_grid_has_the_shares_of_its_analysis_of_variance():
    """Classical variance decomposition of the table itself; the trees, which average 3 runs, come within 0.03 of it."""
    space = load_space(
        {
            "hyperparameters": {
                "a": {"type": "int", "lower": 1, "upper": 8},
                "b": {"type": "int", "lower": 1, "upper": 6},
                "c": {"type": "categorical", "choices": ["x", "y", "z"]},
            }
        }
    )
    a, b, c = np.meshgrid(np.arange(1.0, 9), np.arange(1.0, 7), np.arange(3.0), indexing="ij")
    table = 2 * np.abs(a - 4) + 0.5 * (a - 4.5) * (b - 3.5) + np.where(c == 1, 4.0, 0.0)
    configs = [
        {"a": int(i), "b": int(j), "c": "xyz"[int(k)]}
        for i, j, k in zip(a.flat, b.flat, c.flat, strict=True)
    ]
    repeated = [config for config in configs for _ in range(4)]
    forest = fit_forest(space, repeated, np.repeat(table.ravel(), 4))
    found = fanova(forest, pairs=True)
    marginals = {
        "a": table.mean(axis=(1, 2)),
        "b": table.mean(axis=(0, 2)),
        "c": table.mean(axis=(0, 1)),
    }
    total = table.var()
    joint = {
        ("a", "b"): table.mean(axis=2),
        ("a", "c"): table.mean(axis=1),
        ("b", "c"): table.mean(axis=0),
    }
    expected = {(name, None): marginal.var() / total for name, marginal in marginals.items()}
    expected |= {
        pair: (values.var() - marginals[pair[0]].var() - marginals[pair[1]].var()) / total
        for pair, values in joint.items()
    }
    assert sum(expected.values()) == pytest.approx(1.0)  # there is no interaction of all three
    rows = found[["hyperparameter", "with", "importance"]].itertuples(index=False, name=None)
    shares = {(one, other if isinstance(other, str) else None): share for one, other, share in rows}
    assert shares == pytest.approx(expected, abs=0.03)


def test_an_interaction_is_found_as_one():
    table = fanova(
        fitted(MIXED, lambda c: float((c["x"] > 0.5) ^ (c["z"] > 0.5)), n=600), pairs=True
    )
    largest = table.loc[table.importance.idxmax()]
    assert {largest["hyperparameter"], largest["with"]} == {"x", "z"}
    assert largest["importance"] > 0.8
    assert table["with"].notna().is_monotonic_increasing, "main effects first"
    assert table.groupby(table["with"].notna()).importance.is_monotonic_decreasing.all()
    assert fanova(fitted(MIXED, lambda c: c["x"]))["with"].isna().all()


def test_a_forest_is_the_same_every_time_and_says_how_well_it_fits():
    one, two = (fitted(MIXED, lambda c: c["x"]) for _ in range(2))
    assert fanova(one).equals(fanova(two))
    assert one.out_of_bag > 0.95
    rng = np.random.default_rng(0)
    assert abs(fitted(MIXED, lambda _: rng.normal()).out_of_bag) < 0.3


@with_data
@pytest.mark.parametrize("name", ["cc_cartpole_dqn", "cc_acrobot_dqn", "cc_cartpole_ppo"])
def test_the_learning_rate_matters_most_in_arlbenchs_landscapes(tmp_path, name):
    (manifest,) = import_any(DATA / f"{name}.csv.gz", tmp_path)
    data = Landscape(tmp_path / manifest.id)
    forest = landscape_forest(data)
    assert len(forest.targets) == len(arlbench(name[-3:])[name[:-4]]) == 256
    table = fanova(forest)
    assert table.loc[0, "hyperparameter"] == "learning_rate"
    assert table.loc[0, "importance"] > 0.7
    assert forest.out_of_bag > 0.8
