"""The trainer `surrogate`: conformance, the forest against scikit-learn's own, its score, its noise, whole studies."""

import itertools
import pickle
import re
from contextlib import closing
from pathlib import Path

import made_landscapes
import numpy as np
import pytest
import segments
from refusals import expect_error
from replay_space import SPACE
from scipy.stats import spearmanr

from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, Status, TrainerSpec
from autorl.landscapes import Landscape, Objective
from autorl.landscapes.benchmark import Surrogate
from autorl.landscapes.importers import import_any
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.testing.trainers import Case, Runner, TrainerConformance
from autorl.trainers import load

ensemble = pytest.importorskip("sklearn.ensemble", reason="the forest is scikit-learn's")

ARLBENCH = Path(__file__).parents[3] / "shared/data/arlbench/landscapes"
STEPS = (100, 200, 300, 400)
SEEDS = {"tuning": (0, 1, 2, 3, 4), "test": (50, 51, 52, 53, 54)}
N = 128
SIGMA = 4.0


def level(config):
    """Score at the last step without noise: best at x = 0.7, rate = 0.1, kind b with only_b = 9."""
    rate = np.log10(config["rate"])
    bonus = 10.0 * config["only_b"] / 9 if config["kind"] == "b" else 0.0
    return 100.0 - 80 * abs(config["x"] - 0.7) - 10 * abs(rate + 1) + bonus


def crashes(config):
    return config["x"] < 0.15


def write(folder, *, sigma=SIGMA, shared=0.0, crash=True, levels=level, seeds=SEEDS, **fields):
    """A landscape with independent noise (sd `sigma`) and noise of the seed that all configurations share."""
    rng = np.random.default_rng(0)
    configs = {number: SPACE.sample(rng) for number in range(N)}
    common = {seed: shared * rng.normal() for role in seeds for seed in seeds[role]}
    runs = []
    cells = ((number, role, seed) for number in range(N) for role in seeds for seed in seeds[role])
    for number, role, seed in cells:
        config = configs[number]
        failed = crash and crashes(config) and rng.random() < 0.5
        steps = 250 if failed else 400
        noise = common[seed] + sigma * rng.normal()
        curve = {
            step: {"eval_return": levels(config) * step / 400 + noise, "length": step / 1.0}
            for step in STEPS
            if step <= steps
        }
        seconds = steps * (2.0 if config["kind"] == "c" else 1.0)
        runs.append((number, role, seed, "crash" if failed else "done", steps, seconds, curve))
    return made_landscapes.write(folder, SPACE, configs, runs, steps=STEPS, seeds=seeds, **fields)


@pytest.fixture(scope="module")
def landscape(tmp_path_factory):
    return write(tmp_path_factory.mktemp("landscapes"))


@pytest.fixture(scope="module")
def surrogate(landscape):
    return Surrogate(landscape)


@pytest.fixture(scope="module")
def spec(landscape):
    return TrainerSpec("surrogate", FrozenMap(landscape=str(landscape.path)))


def segment(spec, config, **changes):
    of_run = {"id": "0.0", "until": 400, "horizon": 400, "evaluate_at": STEPS, "seed": 0}
    return segments.segment(spec, config=config, **of_run | changes)


def train(spec, config, **changes):
    return load(spec).train(segment(spec, config, **changes), lambda report: None)


class TestSurrogate(TrainerConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _case(cls, landscape):
        config = SPACE.config({"x": 0.62, "rate": 0.07, "kind": "a"})
        spec = TrainerSpec("surrogate", FrozenMap(landscape=str(landscape.path)))
        two = (config, config)
        cls.case = Case(spec, configs=two, horizon=400, passes=True, fixed=("kind", "c"))

    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls, _case, tmp_path_factory):
        return Runner(cls.case, tmp_path_factory.mktemp("conformance"))


def test_the_weights_are_those_of_the_forest(landscape, surrogate):
    """Oracle: scikit-learn's own prediction and out-of-bag prediction of a forest with the same options."""
    columns = [(name, SPACE.hyperparameters[name]) for name in SPACE.names]
    configs = [landscape.config(number) for number in range(N)]
    rows = [
        [item.to_unit(config.get(name, item.default)) for name, item in columns]
        for config in configs
    ]
    units = np.array(rows, dtype=np.float32)
    targets = landscape.grid.values.astype(np.float64).mean(axis=1)
    options = {"max_features": 5 / 6, "min_samples_leaf": 3, "oob_score": True, "random_state": 0}
    model = ensemble.RandomForestRegressor(n_estimators=128, **options).fit(units, targets)
    predicted = model.predict(units)
    for number in range(0, N, 9):
        weights = surrogate._predict(landscape.config(number)).weights
        assert weights.sum() == pytest.approx(1.0)
        assert weights @ targets == pytest.approx(predicted[number])
    unseen = model.oob_prediction_[:, -1]
    quality = surrogate.quality
    assert quality.configurations == N
    assert quality.correlation == pytest.approx(spearmanr(unseen, targets[:, -1]).statistic)
    total = ((targets[:, -1] - targets[:, -1].mean()) ** 2).sum()
    assert quality.r2 == pytest.approx(1 - ((unseen - targets[:, -1]) ** 2).sum() / total)
    assert quality.correlation > 0.8


def spread(objective, config, seeds):
    return np.std([objective(config, seed=seed) for seed in seeds], ddof=1)


def test_the_seed_noise_has_the_recorded_size(tmp_path):
    """200 draws: the standard deviation of their standard deviation is 5 %; that of the donors (50 runs) is 10 %."""
    objective = write(tmp_path, crash=False).surrogate()
    config = SPACE.config({"x": 0.5, "rate": 0.03, "kind": "a"})
    assert 0.7 * SIGMA < spread(objective, config, range(200)) < 1.35 * SIGMA
    mean = objective._predict(config).curves[0, -1]
    assert abs(np.mean([objective(config, seed=seed) for seed in range(200)]) - mean) < 1.5


def correlation(landscape):
    """Correlate the scores of pairs of configurations over the recorded seeds."""
    objective = landscape.surrogate()
    rng = np.random.default_rng(7)
    configs = [SPACE.sample(rng) for _ in range(30)]
    table = np.array([[objective(config, seed=seed) for seed in range(5)] for config in configs])
    table = table - table.mean(axis=1, keepdims=True)
    common, total = table.mean(axis=0).var(), table.var()
    return common / total


def test_noise_is_paired_as_far_as_the_data_say(tmp_path):
    assert correlation(write(tmp_path / "one", sigma=SIGMA, shared=0.0, crash=False)) < 0.25
    assert correlation(write(tmp_path / "two", sigma=1.0, shared=SIGMA, crash=False)) > 0.75


def test_a_draw_depends_on_configuration_seed_and_role_alone(landscape, surrogate):
    config = SPACE.config({"x": 0.62})
    other = Surrogate(Landscape(landscape.path))
    for seed, role in itertools.product((0, 3, 11), ("tuning", "test")):
        first = surrogate.score(config, seed, role, 400)
        surrogate.score(SPACE.config({"x": 0.1}), seed, role, 400)
        for one in (other, surrogate):
            assert one.score(config, seed, role, 400) == first
    draws = {surrogate.score(config, seed, "tuning", 400) for seed in range(40)}
    assert len(draws) > 30  # seeds past the recorded ones draw runs of their own


def test_failures_happen_as_often_as_recorded(surrogate, spec):
    bad, good = SPACE.config({"x": 0.05}), SPACE.config({"x": 0.6})
    outcomes = [train(spec, bad, seed=seed) for seed in range(100)]
    failed = [outcome for outcome in outcomes if outcome.status is Status.CRASH]
    assert 30 <= len(failed) <= 70
    for outcome in failed:
        assert outcome.reached == 250
        assert [report.step for report in outcome.reports] == [100, 200]
        assert outcome.checkpoint is None
        pattern = r"predicted crash, as configuration (\d+) with seed \d+ was recorded"
        donor = re.fullmatch(pattern, outcome.message)
        assert crashes(surrogate.landscape.config(int(donor[1])))
    assert all(train(spec, good, seed=seed).status is Status.DONE for seed in range(100))
    seed = outcomes.index(failed[0])
    worst = float(surrogate.landscape.grid.values.min())
    assert surrogate.score(bad, seed, "tuning", 400) == pytest.approx(worst)


def test_the_cost_is_simulated_and_the_score_is_stated(spec, landscape):
    quick, slow = (train(spec, SPACE.config({"x": 0.6, "kind": kind})) for kind in ("a", "c"))
    assert quick.cost["environment_steps"] == 400
    assert 300 < quick.cost["wall_seconds"] < 500 < 700 < slow.cost["wall_seconds"] <= 800.001
    quality = landscape.surrogate().quality
    assert quick.notes == (f"predicted by a surrogate of toys/toy/Toy-v0: {quality}",)
    assert f"rank correlation {quality.correlation:.2f} over 128 configurations" in str(quality)


def test_values_stay_within_those_recorded(tmp_path):
    data = write(tmp_path, levels=lambda config: min(level(config), 70.0), sigma=0.0, crash=False)
    objective, rng = data.surrogate(), np.random.default_rng(1)
    found = [objective(SPACE.sample(rng), seed=seed) for seed in range(200)]
    assert max(found) <= np.float32(70.0)
    assert min(found) >= data.grid.values[:, :, -1].min()


def test_noise_without_structure_is_refused_unless_forced(tmp_path):
    folder = write(tmp_path, levels=lambda config: 50.0, crash=False).path
    plain = load(TrainerSpec("surrogate", FrozenMap(landscape=str(folder))))
    with pytest.raises(InputError, match=r"correlation of -?0\.\d\d, below 0.7; `force: true`"):
        plain.check(EnvironmentSpec(), ())
    expect_error(r"below 0\.7", Landscape(folder).surrogate)
    Landscape(folder).surrogate(min_correlation=-1.0)
    forced = TrainerSpec("surrogate", FrozenMap(landscape=str(folder), force=True))
    load(forced).check(EnvironmentSpec(), ())
    assert train(forced, SPACE.default()).notes[0].endswith("(forced)")
    expect_error(r"below 0\.7", Study.create, study_over(folder), tmp_path / "study")


def test_phases_are_refused(tmp_path, monkeypatch):
    data = write(tmp_path, crash=False)
    monkeypatch.setattr(Landscape, "phases", (0, 200))
    expect_error("in phases: runs from scratch end at step 200", Surrogate, data)


def test_one_seed_has_no_noise_and_a_role_that_is_missing_borrows(tmp_path):
    data = write(tmp_path, seeds={"tuning": (0,)}, crash=False)
    objective, config = data.surrogate(), SPACE.config({"x": 0.5})
    assert spread(objective, config, range(20)) == 0.0
    assert objective(config, seed=100, role="test") == objective(config, seed=0)


def test_minimised_landscapes_fail_at_the_worst(tmp_path):
    data = write(tmp_path, objective=Objective(direction="minimize"))
    objective = data.surrogate()
    assert objective.direction == "minimize"
    bad = SPACE.config({"x": 0.05})
    found = [objective(bad, seed=seed) for seed in range(40)]
    assert max(found) == data.grid.values.max()


def test_the_objective_is_pickled_by_name(landscape):
    objective = landscape.surrogate(min_correlation=0.1)
    copy = pickle.loads(pickle.dumps(objective))
    assert (copy.space, copy.horizon, copy.quality) == (objective.space, 400, objective.quality)
    config = SPACE.sample(np.random.default_rng(2))
    expected = objective(config, seed=3, until=250)
    assert copy(config, seed=3, until=250) == expected == objective(config, seed=3, until=200)
    expect_error("nothing before step 100", objective, config, until=99)


def study_over(folder, **changes):
    values = {"trainer": {"name": "surrogate", "kwargs": {"landscape": str(folder)}}}
    values |= {"space": SPACE.to_dict(), "fidelity": {"steps": 400, "evaluations": 4}}
    values |= {"budget": {"runs": 60}, "seeds": {"tuning": 3, "test": 20}, "test": {"top": 1}}
    return load_spec({**values, **changes})


@pytest.mark.parametrize(("optimizer", "runs"), [("random", 60), ("asha", 15)])
def test_a_study_over_a_surrogate_finds_a_good_configuration(landscape, tmp_path, optimizer, runs):
    """Test seeds past the recorded ones draw runs of their own."""
    spec = study_over(landscape.path, optimizer=optimizer, budget={"runs": runs})
    with closing(Study.create(spec, tmp_path / "study")) as study:
        result = study.run()
        notes = study.store.query("SELECT DISTINCT notes FROM segments")
    rng = np.random.default_rng(0)
    levels = [level(SPACE.sample(rng)) for _ in range(200)]
    assert level(result.incumbent.config) >= np.quantile(levels, 0.7)
    assert len(set(result.test.seeds.values())) > 10
    quality = landscape.surrogate().quality
    ((note,),) = notes
    assert note == f"predicted by a surrogate of toys/toy/Toy-v0: {quality}"


def test_the_same_study_gives_the_same_result_with_processes(landscape):
    results = []
    for executor in ({"name": "in_process"}, {"name": "processes", "workers": 2}):
        few = {"budget": {"runs": 4}, "seeds": {"tuning": 2, "test": 2}}
        spec = study_over(landscape.path, executor=executor, **few)
        with closing(Study.in_memory(spec)) as study:
            found = study.run()
        results.append((found.incumbent, found.tuning, found.test.value))
    assert results[0] == results[1]


@pytest.mark.skipif(not ARLBENCH.is_dir(), reason="needs the ARLBench files beside the checkout")
def test_arlbench_surrogates(tmp_path):
    """Real landscapes on both sides of the bar, conditionals included."""
    options = {"tuning_seeds": 5, "namespace": "arlbench", "replace": False}
    for name in ("cc_cartpole_dqn", "minigrid_unlock_dqn"):
        import_any(ARLBENCH / f"{name}.csv.gz", tmp_path, **options)
    data = Landscape(tmp_path / "arlbench/dqn/CartPole-v1")
    objective = data.surrogate()
    assert objective.quality.correlation > 0.85
    rng = np.random.default_rng(0)
    scores = [objective(objective.space.sample(rng), seed=0) for _ in range(50)]
    assert 0.0 < min(scores) < 100 < max(scores) <= 500.0
    expect_error(r"below 0\.7", Landscape(tmp_path / "arlbench/dqn/MiniGrid-Unlock").surrogate)
