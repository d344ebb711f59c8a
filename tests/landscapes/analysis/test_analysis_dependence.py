"""Partial dependence and interaction: closed forms of known functions, plain loops, and the tables."""

import numpy as np
import pytest
from analysis_samples import SPACE

from autorl.core.types import InputError
from autorl.landscapes.analysis.dependence import (
    dependence_surface,
    dependence_table,
    individual_dependence,
    interaction_strength,
    interaction_table,
    partial_dependence,
)
from autorl.landscapes.analysis.forest import fit_forest

ROWS = np.random.default_rng(0).random((40, 3))


def additive(rows):
    return 2 * rows[:, 0] + np.sin(rows[:, 1])


def multiplied(rows):
    return (rows[:, 0] - 0.5) * (rows[:, 1] - 0.5) + rows[:, 2]


@pytest.fixture(scope="module")
def forest():
    pytest.importorskip("sklearn")
    configs = [SPACE.sample(np.random.default_rng(number)) for number in range(150)]
    unit = SPACE.hyperparameters["learning_rate"].to_unit
    scores = [
        10 * unit(each["learning_rate"]) * (each["activation"] == "relu") + each["width"] / 64
        for each in configs
    ]
    return fit_forest(SPACE, configs, scores, trees=32)


def test_closed_forms():
    grid = np.linspace(0, 1, 5)[:, None]
    assert partial_dependence(additive, ROWS, [0], grid) == pytest.approx(
        2 * grid[:, 0] + np.sin(ROWS[:, 1]).mean()
    )
    pair = np.array([[0.0, 1.0], [1.0, 1.0]])
    assert partial_dependence(multiplied, ROWS, [0, 1], pair) == pytest.approx(
        np.array([-0.25, 0.25]) + ROWS[:, 2].mean()
    )


def test_individual_curves_by_loop():
    points = np.array([[0.1, 0.9], [0.5, 0.2]])
    found = individual_dependence(multiplied, ROWS, [2, 0], points)
    assert found.shape == (40, 2)
    for i, row in enumerate(ROWS):
        for j, (third, first) in enumerate(points):
            assert found[i, j] == pytest.approx((first - 0.5) * (row[1] - 0.5) + third)


def test_interaction_of_known_functions():
    assert interaction_strength(additive, ROWS, 0, 1) == pytest.approx(0.0, abs=1e-20)
    assert (
        interaction_strength(multiplied, ROWS, 0, 2) < 0.05
    )  # the first column acts through the second only
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


def test_tables(forest):
    table = dependence_table(forest, "learning_rate", points=10)
    assert len(table) == 10
    assert table["value"].is_monotonic_increasing
    assert table["mean"].iloc[-1] - table["mean"].iloc[0] > 1.5
    assert ((table.low <= table["mean"]) & (table["mean"] <= table.high)).all()
    expected = partial_dependence(
        forest.predict, forest.rows, [0], forest.grid("learning_rate", 10)[:, None]
    )
    assert table["mean"].to_numpy() == pytest.approx(expected)
    assert dependence_table(forest, "activation")["value"].tolist() == ["tanh", "relu", "silu"]
    surface = dependence_surface(forest, "learning_rate", "activation", points=6)
    assert surface.shape == (6, 3)
    assert surface.columns.tolist() == ["tanh", "relu", "silu"]
    corner = partial_dependence(forest.predict, forest.rows, [0, 2], np.array([[11 / 12, 0.5]]))
    assert surface["relu"].iloc[-1] == pytest.approx(corner[0])


def test_the_interacting_pair_comes_first(forest):
    table = interaction_table(forest, sample=32)
    assert len(table) == 10
    assert set(table.loc[0, ["first", "second"]]) == {"learning_rate", "activation"}
    assert table.interaction.is_monotonic_decreasing
    few = interaction_table(forest, ["width", "learning_rate"], sample=32)
    both = (table["first"] == "learning_rate") & (table.second == "width")
    assert few.interaction[0] == pytest.approx(table.interaction[both].item())


def test_mistakes_are_named(forest):
    with pytest.raises(InputError, match="did you mean 'width'"):
        dependence_table(forest, "widht")
    with pytest.raises(InputError, match="twice"):
        dependence_surface(forest, "width", "width")
    with pytest.raises(InputError, match="two different"):
        interaction_table(forest, ["width"])
    with pytest.raises(InputError, match="unknown key 'version'"):
        dependence_table(forest, "version")  # a constant
