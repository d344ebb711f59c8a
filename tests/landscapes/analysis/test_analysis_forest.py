"""A forest on hyperparameters: closed forms of known functions, plain loops, and the tables."""

import numpy as np
import pytest
from analysis_samples import SPACE
from refusals import expect_error

from autorl.landscapes.analysis.forest import (
    dependence_surface,
    dependence_table,
    fit_forest,
    individual_dependence,
    interaction_strength,
    interaction_table,
    local_importance,
    tuning_gains,
)
from autorl.landscapes.regression import encode
from autorl.space import load_space

ROWS = np.random.default_rng(0).random((40, 3))
CONFIGS = [SPACE.sample(np.random.default_rng(number)) for number in range(150)]
UNIT = SPACE.hyperparameters["learning_rate"].to_unit


def additive(rows):
    return 2 * rows[:, 0] + np.sin(rows[:, 1])


def multiplied(rows):
    return (rows[:, 0] - 0.5) * (rows[:, 1] - 0.5) + rows[:, 2]


@pytest.fixture(scope="module")
def forest():
    scores = [
        10 * UNIT(each["learning_rate"]) * (each["activation"] == "relu") + each["width"] / 64
        for each in CONFIGS
    ]
    return fit_forest(SPACE, CONFIGS, scores, trees=32)


def mean_dependence(forest, columns, points):
    return individual_dependence(forest.predict, forest.rows, columns, points).mean(axis=0)


def test_individual_curves_by_loop():
    points = np.array([[0.1, 0.9], [0.5, 0.2]])
    found = individual_dependence(multiplied, ROWS, [2, 0], points)
    assert found.shape == (40, 2)
    for i, row in enumerate(ROWS):
        for j, (third, first) in enumerate(points):
            assert found[i, j] == pytest.approx((first - 0.5) * (row[1] - 0.5) + third)


def test_interaction_of_known_functions():
    assert interaction_strength(additive, ROWS, 0, 1) == pytest.approx(0.0, abs=1e-20)
    # the first column acts through the second only
    assert interaction_strength(multiplied, ROWS, 0, 2) < 0.05
    centred = ROWS - ROWS.mean(axis=0)
    product = interaction_strength(lambda rows: rows[:, 0] * rows[:, 1], centred, 0, 1)
    assert product == pytest.approx(1.0)  # both partial dependences are flat
    assert interaction_strength(lambda rows: np.full(len(rows), 1e6), ROWS, 0, 1) == 0.0


def test_interaction_by_loop():
    def predict(rows):
        return rows[:, 0] * rows[:, 1] + rows[:, 0] + rows[:, 2] ** 2

    def at(column_values):
        moved = ROWS.copy()
        for column, value in column_values.items():
            moved[:, column] = value
        return predict(moved).mean()

    joint = np.array([at({0: row[0], 1: row[1]}) for row in ROWS])
    one, two = (np.array([at({column: row[column]}) for row in ROWS]) for column in (0, 1))
    joint, one, two = (each - each.mean() for each in (joint, one, two))
    expected = ((joint - one - two) ** 2).sum() / (joint**2).sum()
    assert interaction_strength(predict, ROWS, 0, 1) == pytest.approx(expected)


def test_tables_of_dependence(forest):
    table = dependence_table(forest, "learning_rate", points=10)
    assert table["value"].is_monotonic_increasing
    assert table["mean"].iloc[-1] - table["mean"].iloc[0] > 1.5
    assert ((table.low <= table["mean"]) & (table["mean"] <= table.high)).all()
    expected = mean_dependence(forest, [0], forest.grid("learning_rate", 10)[:, None])
    assert table["mean"].to_numpy() == pytest.approx(expected)
    assert dependence_table(forest, "activation")["value"].tolist() == ["tanh", "relu", "silu"]
    surface = dependence_surface(forest, "learning_rate", "activation", points=6)
    assert surface["activation"].tolist() == [
        choice for choice in ("tanh", "relu", "silu") for _ in range(6)
    ]
    corner = mean_dependence(forest, [0, 2], np.array([[11 / 12, 0.5]]))
    assert surface["mean"].iloc[11] == pytest.approx(corner[0])


def test_the_interacting_pair_comes_first(forest):
    table = interaction_table(forest)
    assert len(table) == 10
    assert set(table.loc[0, ["first", "second"]]) == {"learning_rate", "activation"}
    assert table.interaction.is_monotonic_decreasing
    few = interaction_table(forest, "width", "learning_rate")
    both = (table["first"] == "learning_rate") & (table.second == "width")
    assert few.interaction[0] == pytest.approx(table.interaction[both].item())


def test_an_inactive_hyperparameter_has_its_default():
    config = {**CONFIGS[0], "target": False, "width": 8}
    config.pop("interval", None)
    names = tuple(name for name in SPACE.names if name != "version")
    row = encode(SPACE, names, [config])[0]
    expected = SPACE.to_unit(SPACE.config(config))[[SPACE.names.index(name) for name in names]]
    known = ~np.isnan(expected)
    assert row[known] == pytest.approx(expected[known])
    assert row[names.index("interval")] == SPACE.hyperparameters["interval"].to_unit(10)


def test_neighbours_differ_in_one_hyperparameter_and_what_it_switches_off(forest):
    assert forest.names == ("learning_rate", "width", "activation", "target", "interval")
    config = next(each for each in CONFIGS if each.get("interval", 10) != 10)
    base = forest.encode([config])[0]
    rows = forest.encode(forest.moved(config, "target", 8))
    assert rows[0] == pytest.approx(base)  # target true
    assert np.flatnonzero(rows[1] != base).tolist() == [3, 4]
    moved = forest.encode(forest.moved(config, "learning_rate", 5))
    assert moved[:, 0] == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert (moved[:, 1:] == base[1:]).all()


def test_grid_points():
    space = load_space(
        {
            "hyperparameters": {
                "n": {"type": "int", "lower": 1, "upper": 6},
                "c": {"type": "categorical", "choices": list("abcde")},
            }
        }
    )
    configs = [space.sample(np.random.default_rng(number)) for number in range(40)]
    forest = fit_forest(space, configs, [config["n"] for config in configs], trees=32)
    assert forest.values("n", forest.grid("n", 64)) == [1, 2, 3, 4, 5, 6]
    assert len(forest.grid("n", 4)) == 4
    assert forest.values("c", forest.grid("c", 2)) == list("abcde")


def test_local_importance_is_the_variance_along_each_axis(forest):
    config = next(each for each in CONFIGS if each["target"])
    table = local_importance(forest, config).set_index("hyperparameter").importance
    assert table.sum() == pytest.approx(1.0)
    variances = {}
    for column, name in enumerate(forest.names):
        values = forest.values(name, forest.grid(name, 64))
        rows = np.repeat(forest.encode([config]), len(values), axis=0)
        rows[:, column] = [SPACE.hyperparameters[name].to_unit(value) for value in values]
        if name == "target":
            rows[1, forest.names.index("interval")] = SPACE.hyperparameters["interval"].to_unit(10)
        variances[name] = forest.predict(rows).var()
    for name, value in variances.items():
        assert table[name] == pytest.approx(value / sum(variances.values()), rel=1e-6, abs=1e-9)
    off = next(each for each in CONFIGS if not each["target"])
    table = local_importance(forest, off).set_index("hyperparameter").importance
    assert table["interval"] == 0.0


def test_gains_are_those_of_the_best_neighbour(forest):
    """Gains of moving one hyperparameter, by a loop over single predictions of the same forest."""
    reference = SPACE.default()
    table = tuning_gains(forest, reference).set_index("hyperparameter")
    base = forest.predict(forest.encode([reference]))[0]
    for name in ("learning_rate", "width", "activation", "interval"):
        points = forest.values(name, forest.grid(name, 64))
        options = [SPACE.config({**reference, name: value}) for value in points]
        predicted = [forest.predict(forest.encode([each]))[0] for each in options]
        assert table.gain[name] == pytest.approx(max(0.0, max(predicted) - base))
        if table.gain[name] > 0:
            assert table.best[name] == options[int(np.argmax(predicted))][name]
    assert table.best["activation"] == "relu"
    assert table.reference["learning_rate"] == 1e-3
    off = next(each for each in CONFIGS if "interval" not in each)
    assert tuning_gains(forest, off).set_index("hyperparameter").gain["interval"] == 0.0


def test_what_the_space_forbids_is_no_gain():
    space = load_space(
        {
            "hyperparameters": {
                "a": {"type": "int", "lower": 1, "upper": 8, "default": 2},
                "b": {"type": "int", "lower": 1, "upper": 8, "default": 4},
            },
            "constraints": ["a <= b"],
        }
    )
    configs = [space.sample(np.random.default_rng(number)) for number in range(100)]
    forest = fit_forest(space, configs, [each["a"] for each in configs])
    table = tuning_gains(forest, space.default()).set_index("hyperparameter")
    assert table.best["a"] <= 4


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda forest: dependence_table(forest, "widht"), "did you mean 'width'"),
        (lambda forest: dependence_table(forest, "version"), "unknown key 'version'"),  # a constant
        (lambda forest: dependence_surface(forest, "width", "width"), "twice"),
        (lambda forest: interaction_table(forest, "width"), "two different"),
        (lambda forest: local_importance(forest, {**CONFIGS[0], "width": 1000}), "width"),
        (lambda forest: tuning_gains(forest, {**CONFIGS[0], "width": 1000}), "width"),
        (lambda _: fit_forest(SPACE, CONFIGS[:9], range(9)), "at least 10 configurations"),
        (lambda _: fit_forest(SPACE, CONFIGS, np.ones(150)), "nothing to explain"),
    ],
)
def test_mistakes_are_named(forest, ask, message):
    assert message in str(expect_error("", ask, forest))
