"""Forecasts: a known law is found, an open one refused, and a study searches the ranges."""

import shutil

import numpy as np
import pytest
from cli_support import as_json, autorl
from made_landscapes import write
from refusals import expect_error

from autorl.core.types import Config
from autorl.landscapes import Objective, forecast
from autorl.landscapes.forecast import Group, Law, Study, forecasts, left_out, read
from autorl.space import Space, load_space
from autorl.study.spec.study_file import load_spec, thaw

pytestmark = pytest.mark.usefixtures("few_draws")
SPACE = load_space(
    {
        "learning_rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log"},
        "gamma": {"type": "float", "lower": 0.0, "upper": 1.0},
    }
)
STEPS = (10, 20, 40, 80)
ROLES = [("tuning", 0), ("tuning", 1), ("test", 100), ("test", 101), ("test", 102)]


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr(forecast, "DRAWS", 60)


def groups(optimum, steps=STEPS, sizes=(3.0, 3.5, 4.0), noise=0.0, n=24, seeds=3):
    """Make scores that fall with the square of the distance to an optimum."""
    rng = np.random.default_rng(0)
    found = []
    for size in sizes:
        units = {"learning_rate": (np.arange(n) + rng.random(n)) / n, "gamma": rng.random(n)}
        for step in np.log10(steps):
            score = -((units["learning_rate"] - optimum(step, size)) ** 2)
            scores = score[:, None] + noise * rng.normal(size=(n, seeds))
            axes = np.tile([step, size], (n, 1))
            found.append(Group(str(size), np.arange(n), scores, score, units, axes))
    return tuple(found)


def moving(step, size):
    return 1.1 - 0.2 * step - 0.15 * (size - 3)


def study(made):
    return Study(dict(SPACE.hyperparameters), made)


def test_a_law_is_found():
    law = Law.fit(groups(moving, noise=0.02), "learning_rate")
    for axis, slope in (("steps", -0.2), ("parameters", -0.15)):
        low, high, sure = law.slopes()[axis]
        assert low - 0.06 < slope < high + 0.06
        assert sure
    low, high = law.range_at(np.array([np.log10(160), 4.2]))
    assert low < moving(np.log10(160), 4.2) < high
    assert high - low < 0.4


def test_the_line_is_the_vertex_of_the_weighted_quadratic():
    rng = np.random.default_rng(1)
    units, weights = rng.random(30), rng.integers(1, 4, 30).astype(float)
    ranks = 1 - (units - 0.4) ** 2 + 0.01 * rng.random(30)
    axes = np.column_stack([rng.random(30), np.full(30, np.nan)])
    line = forecast._line([(units, ranks, weights, axes, ranks)], [0], np.zeros(1))
    # Weights that are whole numbers are rows said several times.
    rows = np.repeat(np.arange(30), weights.astype(int))
    u, x = units[rows], axes[rows, 0]
    terms = np.stack([u, u**2, u * x, x, np.ones_like(u)], 1)
    b, c, d, *_ = np.linalg.solve(terms.T @ terms, terms.T @ ranks[rows])
    assert c < 0
    assert line == pytest.approx([-b / (2 * c), -d / (2 * c)])


def test_a_valley_has_no_best_place():
    units = np.linspace(0, 1, 20)
    part = (units, (units - 0.5) ** 2, np.ones(20), np.zeros((20, 2)), units)
    assert np.isnan(forecast._line([part], [], np.zeros(0))).all()


def test_what_is_left_out_is_the_longest_and_the_largest():
    made = groups(moving)
    kept, held = left_out(made)
    every = {(x, size) for x in np.log10(STEPS) for size in (3.0, 3.5, 4.0)}
    far = {(group.axes[0, 0], group.axes[0, 1]) for group in held}
    assert far == {(x, size) for x, size in every if x > 1.9 or size > 3.9}
    assert len(kept) + len(held) == len(made)
    # One length and one size: nothing is left to fit to.
    assert left_out(groups(moving, steps=(10,), sizes=(3.0,)))[0] == []


def test_a_sure_law_narrows_and_what_does_not_matter_is_kept():
    found = forecasts(study(groups(moving, noise=0.002)), 160, 10**4.5)
    rate, gamma = found["learning_rate"], found["gamma"]
    assert rate.refused == ()
    assert rate.covered >= 0.85 * rate.cells == 0.85 * 6
    assert gamma.refused
    space = forecast.narrowed(SPACE, study(()), found)["hyperparameters"]
    assert space["gamma"] == SPACE.hyperparameters["gamma"].to_dict()
    item, narrow = SPACE.hyperparameters["learning_rate"], space["learning_rate"]
    bounds = [item.from_unit(unit) for unit in (rate.low, rate.high)]
    assert [narrow["lower"], narrow["upper"]] == bounds


def test_an_optimum_that_stays_is_followed_no_further_than_it_was_seen():
    still = study(groups(lambda step, size: 0.5, noise=0.02))
    refused = forecasts(still, 800)["learning_rate"].refused
    assert "the sign of the slope in steps is open" in refused
    assert not any("slope" in why for why in forecasts(still)["learning_rate"].refused)


def test_a_range_that_failed_where_it_was_tried_is_refused():
    def jumping(step, size):
        return 0.3 + 0.05 * step if step < 1.9 else 0.95

    (why,) = forecasts(study(groups(jumping, sizes=(3.0,))), 80)["learning_rate"].refused
    assert why == "where it was tried it held 0 of 1"


def test_one_length_has_nothing_to_try_it_on():
    once = study(groups(moving, steps=(80,), sizes=(3.0,)))
    assert forecasts(once, 160)["learning_rate"].refused == (
        "the sign of the slope in steps is open",
        "nothing is left to try it on: runs have one length and one size",
    )


def test_a_ceiling_is_said_where_a_sigmoid_beats_the_last_value():
    steps = np.geomspace(1, 1000, 24)
    rising = [(steps, top / (1 + (30 / steps) ** 1.5)) for top in (0.5, 0.8, 1.0)]
    assert forecast.ceiling(Study({}, (), rising)) == pytest.approx(1.0, abs=0.02)
    flat = np.minimum(steps, 30.0) / 30.0
    assert forecast.ceiling(Study({}, (), [(steps, flat), (steps, 2 * flat)])) is None
    assert forecast.ceiling(Study({}, (), [(steps[:4], steps[:4])])) is None


def landscape(folder, hidden, *, sizes=True, space: Space = SPACE):
    """Write a landscape of one size whose best rate falls with steps and size."""
    rng = np.random.default_rng(hidden)
    configs = {
        n: Config(learning_rate=10 ** (-4 * (n + rng.random()) / 24), gamma=0.5) for n in range(24)
    }
    runs = []
    for number, config in configs.items():
        unit = SPACE.hyperparameters["learning_rate"].to_unit(config["learning_rate"])
        for role, seed in ROLES:
            curve = {
                step: {
                    "score": -((unit - moving(np.log10(step), np.log10(hidden))) ** 2)
                    + 0.02 * rng.normal()
                }
                | ({"parameters": float(hidden)} if sizes else {})
                for step in STEPS
            }
            runs.append((number, role, seed, "done", STEPS[-1], 1.0, curve))
    return write(
        folder,
        space,
        configs,
        runs,
        steps=STEPS,
        seeds={"tuning": [0, 1], "test": [100, 101, 102]},
        id=f"toys/toy/size-{hidden}",
        environment=f"size-{hidden}",
        objective=Objective("score", "maximize"),
        trainer={"name": "toy", "kwargs": {"policy_kwargs": {"net_arch": [hidden, hidden]}}},
    )


def test_sizes_are_recorded_or_those_of_the_network(tmp_path):
    recorded = read([landscape(tmp_path / "a", 1000)])
    assert recorded.seen == pytest.approx((np.log10(80), 3.0))
    network = read([landscape(tmp_path / "b", 64, sizes=False)])
    assert network.seen[1] == pytest.approx(np.log10(8 * 64 + 64 * 64 + 64 * 8))
    assert len(network.groups) == len(STEPS)
    assert len(read([landscape(tmp_path / "c", 64)], ends=True).groups) == 1


def test_studies_of_other_bounds_are_refused(tmp_path):
    wider = load_space({"learning_rate": "log(1e-5, 1)", "gamma": "uniform(0, 1)"})
    sources = [landscape(tmp_path, 1000), landscape(tmp_path, 2000, space=wider)]
    expect_error("other bounds", read, sources)


def test_the_command_and_a_study_that_searches_the_range(tmp_path):
    for hidden in (1000, 3000, 10_000):
        landscape(tmp_path / "data", hidden)
    target = ("--steps", 160, "--parameters", 15_000)
    document = as_json("forecast", tmp_path / "data", *target)
    rate = document["hyperparameters"]["learning_rate"]
    assert rate["refused"] == []
    assert rate["low"] < 10 ** (4 * moving(np.log10(160), np.log10(15_000)) - 4) < rate["high"]
    assert "yes" in autorl("forecast", tmp_path / "data", *target).stdout
    folders = [f"data/toys/toy/size-{hidden}" for hidden in (1000, 3000, 10_000)]
    file = {
        "trainer": "synthetic",
        "path": str(tmp_path),
        "space": {"forecast": folders, "parameters": 15_000},
        "fidelity": {"steps": 160},
        "budget": {"runs": 3},
        "name": "next",
    }
    spec = load_spec(file)
    item = spec.search_space.hyperparameters["learning_rate"]
    assert (item.lower, item.upper) == (rate["low"], rate["high"])
    assert spec.given_way[0] == "forecast of learning_rate: narrowed"
    frozen = spec.freeze()
    shutil.rmtree(tmp_path / "data")
    assert thaw(frozen, "study.yaml").search_space.hash == spec.search_space.hash


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"forecast": "no/such/thing"}, "space.forecast: no study and no landscape"),
        ({"forecast": "trl/dpo/letters-pairs", "step": 3}, "space: unknown key 'step'"),
        ({"forecast": "trl/dpo/letters-pairs", "steps": "x"}, "space.steps: expected a number"),
        ({"forecast": "trl/dpo/letters-pairs", "parameters": 9}, "the size of no run is known"),
    ],
)
def test_what_cannot_be_forecast_is_one_line(space, message):
    file = {"trainer": "trl/dpo", "environment": "letters-pairs", "space": space, "name": "x"}
    expect_error(message, load_spec, file | {"fidelity": {"steps": 64}, "budget": {"runs": 1}})
