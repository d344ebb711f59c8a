"""Representative subsets: against scikit-learn live, against a plain loop, and against ARLBench's published subsets."""

from itertools import combinations

import numpy as np
import pytest
from analysis_samples import DATA, SPACE, arlbench, means, with_data, write_sample
from scipy.optimize import nnls
from scipy.stats import rankdata, spearmanr

from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.landscapes.analysis.subsets import k_fold, select_subset, size_table
from autorl.landscapes.analysis.tables import task_table
from autorl.landscapes.importers.arlbench import import_file

DQN = ["cc_acrobot", "atari_battle_zone", "minigrid_door_key", "minigrid_four_rooms"]
SAC = ["box2d_bipedal_walker", "brax_halfcheetah", "cc_pendulum", "cc_continuous_mountain_car"]


def made_up(n=40, m=6, seed=0):
    """Correlated scores on different scales."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    return (common + rng.normal(size=(n, m)) * np.linspace(0.3, 2, m)) * 10.0 ** np.arange(m)


def tie(selection, environments):
    return next(tie for tie in selection.near_ties if tie.environments == tuple(environments))


def by_hand(table, subset):
    """The published procedure as a loop."""
    columns = np.stack([rankdata(column) / len(column) for column in table.T], axis=1)
    target = columns.mean(axis=1)
    correlations = []
    for train, test in k_fold(len(columns)):
        weights, _ = nnls(columns[train][:, subset], target[train])
        correlations.append(spearmanr(columns[test][:, subset] @ weights, target[test]).statistic)
    return 1 - np.mean(correlations)


@pytest.mark.parametrize("n", [10, 128, 256, 33])
def test_folds_are_those_of_scikit_learn(n):
    selection = pytest.importorskip("sklearn.model_selection")
    expected = selection.KFold(5, shuffle=True, random_state=42).split(np.zeros(n))
    for (train, test), (their_train, their_test) in zip(k_fold(n), expected, strict=True):
        assert train.tolist() == their_train.tolist()
        assert test.tolist() == their_test.tolist()


def test_folds_without_scikit_learn():
    folds = k_fold(10)
    assert [test.tolist() for _, test in folds] == [[1, 8], [0, 5], [2, 7], [4, 9], [3, 6]]
    assert all(sorted([*train, *test]) == list(range(10)) for train, test in folds)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_error_is_that_of_the_plain_loop(k):
    table, names = made_up(), list("abcdef")
    found = select_subset(table, names, k, tolerance=10.0)
    expected = {subset: by_hand(table, list(subset)) for subset in combinations(range(6), k)}
    assert found.n_candidates == len(expected) == len(found.near_ties)
    for each in found.near_ties:
        assert each.error == pytest.approx(
            expected[tuple(names.index(name) for name in each.environments)], abs=1e-9
        )
    errors = [each.error for each in found.near_ties]
    assert errors == sorted(errors)
    assert found.best.error == pytest.approx(min(expected.values()))


def test_the_regression_is_that_of_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    table = made_up()
    columns = np.stack([rankdata(column) / len(column) for column in table.T], axis=1)
    target = columns.mean(axis=1)
    for each in select_subset(table, list("abcdef"), 3).near_ties:
        chosen = columns[:, ["abcdef".index(name) for name in each.environments]]
        theirs = linear.LinearRegression(positive=True, fit_intercept=False).fit(chosen, target)
        assert each.weights == pytest.approx(theirs.coef_)
        assert each.correlation == pytest.approx(
            spearmanr(theirs.predict(chosen), target).statistic
        )
        assert each.unweighted == pytest.approx(spearmanr(chosen.mean(axis=1), target).statistic)


def test_weights_are_not_negative():
    """An environment that least squares would subtract from another has the weight zero."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 60))
    table = np.stack([one, one + two, *(two + 0.1 * rng.normal(size=(3, 60)))], axis=1)
    found = select_subset(table, list("abcde"), 2, tolerance=10.0)
    both = tie(found, "ab")
    assert both.weights[0] == 0.0 < both.weights[1]
    assert both.error == pytest.approx(by_hand(table, [0, 1]), abs=1e-9)


def test_near_ties_are_within_the_tolerance_and_the_cheapest_is_among_them():
    table, names = made_up(), list("abcdef")
    every = select_subset(table, names, 2, tolerance=10.0, costs=[6, 5, 4, 3, 2, 1])
    limit = every.near_ties[4].error - every.best.error
    few = select_subset(table, names, 2, tolerance=limit + 1e-12, costs=[6, 5, 4, 3, 2, 1])
    assert few.near_ties == every.near_ties[:5]
    assert few.cheapest.cost == min(each.cost for each in few.near_ties)
    assert every.cheapest.environments == ("e", "f")


def test_a_crashed_configuration_has_rank_zero():
    table = made_up()
    table[3, 0] = np.nan
    found = select_subset(table, list("abcdef"), 1, tolerance=10.0)
    column = np.zeros(40)
    known = ~np.isnan(table[:, 0])
    column[known] = rankdata(table[known, 0]) / 39
    columns = np.stack([column, *(rankdata(each) / 40 for each in table[:, 1:].T)], axis=1)
    first = tie(found, "a")
    assert first.correlation == pytest.approx(spearmanr(column, columns.mean(axis=1)).statistic)


def test_sizes_are_compared():
    table, names = made_up(), list("abcdef")
    found = size_table(table, names)
    assert found.k.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]
    best = select_subset(table, names, 2, tolerance=10.0).near_ties
    assert found[found.k == 2].environments.tolist() == [each.environments for each in best[:3]]
    assert found[found.k == 2].error.tolist() == [each.error for each in best[:3]]
    assert found[found.place == 1].error.is_monotonic_decreasing


def test_mistakes_are_named():
    table, names = made_up(), list("abcdef")
    for k in (0, 6):
        with pytest.raises(InputError, match="1 to 5"):
            select_subset(table, names, k)
    with pytest.raises(InputError, match="at least 10 configurations"):
        select_subset(table[:9], names, 2)
    with pytest.raises(InputError, match="expected 6 costs"):
        select_subset(table, names, 2, costs=[1.0])
    with pytest.raises(InputError, match="as many columns"):
        select_subset(table, names[:5], 2)
    with pytest.raises(InputError, match="too many to compare"):
        select_subset(made_up(m=40), [str(each) for each in range(40)], 20)


def test_landscapes_in_one_call(tmp_path):
    def unit(config, name):
        return SPACE.hyperparameters[name].to_unit(config[name])

    tasks = {
        "A-v0": lambda config: 10 * unit(config, "learning_rate"),
        "B-v0": lambda config: 10 * unit(config, "width"),
        "C-v0": lambda config: 10 * unit(config, "learning_rate") + 10 * unit(config, "width"),
    }
    folders = [
        write_sample(tmp_path / name, tasks[name], environment=name, configs=24) for name in tasks
    ]
    table = task_table(folders)
    found = select_subset(table.values, table.environments, 1, costs=table.costs)
    assert found.best.environments == ("C-v0",)
    assert found.best.cost == 300.0
    assert found == select_subset(table.values, table.environments, 1, costs=(300.0,) * 3)


def place(found, environments):
    """Where a subset stands among the near-ties: 1 is the best."""
    return 1 + [set(tie.environments) for tie in found.near_ties].index(set(environments))


@with_data
def test_arlbenchs_dqn_subset_is_found():
    names, table = means("dqn")
    found = select_subset(
        table[:128], names, 4
    )  # ARLBench kept the first 128: Atari had no more then
    assert found.n_candidates == 715
    assert place(found, DQN) == 1
    assert 1 - found.best.error == pytest.approx(0.9371, abs=5e-5)


@pytest.mark.slow
@with_data
def test_imported_landscapes_give_the_published_subset(tmp_path):
    landscapes = [
        Landscape(tmp_path / import_file(path, tmp_path, 5, "arlbench", False).id)
        for path in sorted(DATA.glob("*_dqn.csv*"))
    ]
    table = task_table(landscapes, first=128)
    assert table.values.shape == (128, 13)
    found = select_subset(table.values, table.environments, 4, costs=table.costs)
    published = ["Acrobot-v1", "BattleZone-v5", "MiniGrid-DoorKey-5x5", "MiniGrid-FourRooms"]
    assert place(found, published) == 1
    assert len(found.near_ties) > 1
    assert found.cheapest.cost <= found.best.cost


@with_data
def test_the_reference_run_without_clipping_is_reproduced_to_the_digit():
    names, table = means("dqn", clipped=False)
    found = select_subset(table[:128], names, 4)
    assert place(found, DQN) == 2
    assert 1 - found.near_ties[1].error == pytest.approx(0.9245, abs=5e-5)
    assert 1 - found.best.error == pytest.approx(0.9283, abs=5e-5)
    assert set(found.best.environments) == {
        "atari_double_dunk",
        "atari_qbert",
        "cc_mountain_car",
        "minigrid_four_rooms",
    }


@with_data
def test_fit_on_all_configurations_agrees_with_an_independent_refit():
    """0.950, 0.930 and 0.960 come from a least-squares fit with other details, hence the tolerance."""
    names, table = means("dqn")
    every = select_subset(table, names, 4, tolerance=1.0)
    published = every.near_ties[place(every, DQN) - 1]
    assert published.correlation == pytest.approx(0.950, abs=0.005)
    assert published.unweighted == pytest.approx(0.930, abs=0.005)
    assert max(each.correlation for each in every.near_ties) == pytest.approx(0.960, abs=0.005)


@with_data
def test_arlbenchs_sac_subset():
    if len(arlbench("sac")) < 8:
        pytest.skip("the SAC landscapes are not in the data folder")
    names, table = means("sac")
    found = select_subset(table[:128], names, 4)
    assert place(found, SAC) == 1
    assert 1 - found.best.error == pytest.approx(0.9466, abs=5e-5)
    weights = dict(zip(found.best.environments, found.best.weights, strict=True))
    assert [weights[name] for name in SAC] == pytest.approx([0.401, 0.277, 0.153, 0.171], abs=1e-3)
