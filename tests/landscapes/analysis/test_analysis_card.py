"""The report card: by hand, and against loops over the sets, the ranks and scikit-learn's forest."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from analysis_samples import DATA, SPACE, with_data, write_sample

from autorl.core.types import InputError
from autorl.landscapes import Landscape, analysis
from autorl.landscapes.analysis import card
from autorl.landscapes.importers import import_any


def test_scores_and_sensitivity_by_hand():
    """Row 1 is best on average; without the second environment row 0 is."""
    table = np.array([[4.0, 0.0], [3.0, 2.0], [0.0, 3.0]])
    best, peaks, once = card.tuned_scores(table, table - 1, np.array([[0.5, 0.5], [1.0, 0.0]]))
    assert (best, peaks.tolist(), once.tolist()) == (1, [3.0, 2.0], [1.5, 3.0])
    scaled = card.percentile_scores(np.array([[10.0, 7.0]]), np.linspace([0, 7], [20, 7], 21))
    assert scaled[0, 0] == 0.5
    assert np.isnan(scaled[0, 1])


def test_dimensionality_by_hand():
    """The second of three hyperparameters alone reaches 9.6 of 10, in the first environment 5 of 10."""
    sets = card.tuned_sets(3)
    assert sets.sum(axis=1).tolist() == [0, 1, 1, 1, 2, 2, 2, 3]
    reached = np.array([[0, 1], [3, 3], [5, 14.2], [4, 4], [9, 12], [8, 8], [7, 13], [10, 10.0]])
    best, curve, enough = card.dimensionality(reached, sets, np.array([[0.5, 0.5], [1.0, 0.0]]))
    assert best.tolist() == [0, 2, 4, 7]
    assert curve.tolist() == [[0.5, 0], [9.6, 5], [10.5, 9], [10, 10]]
    assert enough.tolist() == [1, 3]


def test_many_hyperparameters_leave_large_sets_out(monkeypatch):
    monkeypatch.setattr(card, "_MOST_SETS", 22)
    assert card.tuned_sets(6).sum(axis=1).tolist() == [0] + [1] * 6 + [6]


def test_ranks_and_inconsistency_by_hand():
    ranks = card.interval_ranks(np.array([1.0, 9.0, 5.0, 5.5]), np.array([0.5, 1.0, 0.5, 0.25]))
    assert ranks.tolist() == [4, 1, 2.5, 2.5]
    # A wide interval on top ties with all that it reaches; between themselves these differ.
    wide = card.interval_ranks(np.array([5.0, 8.0, 2.0]), np.array([5.0, 0.5, 0.5]))
    assert wide.tolist() == [2, 1.5, 2]
    one = np.array([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]])
    places = np.arange(3)
    assert card.inconsistency([one, 5 * one], places).max() == 0
    assert card.inconsistency([one, one[::-1]], places)[0] == pytest.approx(2 / 3)
    # Of two settings, each of several configurations: ranks change places.
    settings = np.array([0, 1, 1])
    assert card.inconsistency([one, one[::-1]], settings)[0] == 1.0


def test_seeds_and_their_median():
    rng = np.random.default_rng(0)
    levels = np.arange(20.0)[:, None]
    few, many = (card.seeds_needed(levels + sd * rng.normal(size=(20, 10))) for sd in (3, 12))
    # By the formula 2 (1.96 + 0.84)^2 (3 / 9)^2 is about 2.
    assert 2 <= few <= 5 < 20 < many < 1000
    equal = np.where(levels > 5, 1.0, 0.0) + np.zeros((20, 3))
    assert card.seeds_needed(equal) == 1000
    shares = np.array([[1, 1, 1], [0, 0, 3], [2, 1, 0]]) / 3
    assert card.middle([4, 1, 9], shares).tolist() == [4, 9, 4]


FOREST = {"max_features": 5 / 6, "min_samples_leaf": 3, "max_leaf_nodes": 512, "random_state": 0}


def brute_force(landscapes, choose, show):
    """Scores, dimensionality and inconsistency of configurations, in loops over tables of SQL."""
    forest = pytest.importorskip("sklearn.ensemble").RandomForestRegressor

    def final(data, role):
        rows = data.sql(f"SELECT * FROM scores WHERE step = {data.manifest.steps[-1]}").df()
        rows = rows if role == "all" else rows[rows.seed_role == role]
        return rows.pivot(index="config_id", columns="seed", values="value").dropna()

    roles = {role: [final(data, role) for data in landscapes] for role in (choose, show)}
    shared = sorted(set.intersection(*(set(each.index) for each in roles[choose] + roles[show])))

    def normalised(role):
        means = np.array([each.loc[shared].mean(axis=1) for each in roles[role]])
        low, high = (np.percentile(means, share, axis=1) for share in (5, 95))
        with np.errstate(invalid="ignore", divide="ignore"):
            return (means - low[:, None]) / (high - low)[:, None], low, high

    (chosen, *_), (scores, low, high) = normalised(choose), normalised(show)
    usable = [n for n in range(len(landscapes)) if np.isfinite(chosen[n] + scores[n]).all()]
    once = int(np.argmax(np.mean([chosen[n] for n in usable], axis=0)))

    def units(data, config_ids):
        items = [item for item in data.space.hyperparameters.values() if item.type != "constant"]
        configs = [data.config(int(config_id)) for config_id in config_ids]
        return np.array([[x.to_unit(c.get(x.name, x.default)) for x in items] for c in configs])

    (reference,) = units(landscapes[0], [shared[once]])
    fitted = []
    for n in usable:
        rows = units(landscapes[n], roles[show][n].index)
        model = forest(64, **FOREST)
        fitted.append((n, rows, model.fit(rows.astype("f4"), roles[show][n].mean(axis=1))))

    def reach(size):
        """The best mean over environments of tuning some set of this size."""
        sets = [list(chosen) for chosen in combinations(range(len(reference)), size)]
        total = np.zeros(len(sets))
        for n, rows, model in fitted:
            mixed = np.tile(reference, (len(sets), len(rows), 1))
            for place, chosen in enumerate(sets):
                mixed[place][:, chosen] = rows[:, chosen]
            predicted = model.predict(mixed.reshape(-1, len(reference)).astype("f4"))
            best = predicted.reshape(len(sets), -1).max(axis=1)
            total += (best - low[n]) / (high[n] - low[n]) / len(fitted)
        return total.max()

    goal = 0.95 * reach(len(reference))
    size = next(size for size in range(len(reference) + 1) if reach(size) >= goal)
    ranks = []
    for n in usable:
        table = roles[show][n].loc[shared].to_numpy()
        bottom, top = (table.mean(axis=1) + sign * table.std(axis=1) for sign in (-1, 1))
        order = sorted(range(len(table)), key=lambda row: -top[row])
        ranks.append(np.empty(len(table)))
        for row in order:
            beside = [bottom[i] <= top[row] and bottom[row] <= top[i] for i in order]
            tied = 1 + np.flatnonzero(beside)
            ranks[-1][row] = (min(tied) + max(tied)) / 2
    often = np.mean([scores[n][np.argmax(chosen[n])] for n in usable])
    single = np.mean([scores[n][once] for n in usable])
    return [often, single, often - single, size, np.ptp(ranks, axis=0).mean() / (len(shared) - 1)]


def check(landscapes, seeds=None):
    answer = analysis.analyse(landscapes, "card", seeds=seeds)
    assert answer.table.value[:5].tolist() == pytest.approx(
        brute_force(landscapes, answer.about["chosen_on"], answer.about["seeds"])
    )
    assert (answer.table.low <= answer.table.high).all()
    return answer


def sample(folder, name, shift):
    def level(config):
        rate = SPACE.hyperparameters["learning_rate"].to_unit(config["learning_rate"])
        return 100 * -abs(rate - shift) + config["width"]

    return write_sample(folder / name, level, environment=name, noise=3.0)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    shifts = {"A-v0": 0.2, "B-v0": 0.5, "C-v0": 0.9}
    return [sample(folder, name, shift) for name, shift in shifts.items()]


@pytest.mark.parametrize("seeds", [None, "all"])
def test_a_landscape_of_one_hyperparameter_to_tune(samples, seeds):
    """Environments differ in the learning rate that is best, and in nothing else."""
    answer = check(samples, seeds)
    assert answer.about["to_tune"] == "learning_rate"
    assert np.mean([*answer.about["gains"].values()]) == pytest.approx(answer.table.value[2])
    assert answer.table.value[2] > 0.1
    assert [seeds is not None] == [
        "same seeds" in note for note in answer.notes
    ] or not answer.notes
    assert analysis.chart_of(answer).marks[0].y.tolist() == answer.detail["curve"].value.tolist()


def test_bad_input_is_one_line(samples, tmp_path, monkeypatch):
    flat = write_sample(tmp_path / "flat", lambda _: 0.0, environment="Flat-v0", noise=0.0)
    with pytest.raises(InputError, match="at least 2 landscapes, got 1"):
        analysis.analyse(samples[:1], "card")
    with pytest.raises(InputError, match="two environments whose scores differ: Flat-v0"):
        analysis.analyse([samples[0], flat], "card")
    notes = analysis.analyse([*samples[:2], flat], "card").notes
    assert notes == ("Flat-v0 is left out: nine tenths of its configurations score the same",)
    monkeypatch.setattr(samples[0], "manifest", replace(samples[0].manifest, algorithm="ppo"))
    with pytest.raises(InputError, match="card is of one algorithm, got dqn, ppo"):
        analysis.analyse(samples, "card")


@with_data
@pytest.mark.more
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_arlbench(tmp_path, algorithm):
    """All sets of hyperparameters, the smallest first, on ARLBench's tables."""
    for path in sorted(DATA.glob(f"*_{algorithm}.csv*")):
        import_any(path, tmp_path)
    check([Landscape(each) for each in sorted(tmp_path.glob(f"arlbench/{algorithm}/*"))])
