"""Importing Optuna studies from SQLite and journal files made here."""

import sqlite3

import optuna
import pytest
from landscape_samples import imported
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from refusals import expect_error

from autorl.core.types import InputError
from autorl.landscapes.importers import import_any
from autorl.space import to_yaml

ID = "me/ppo/CartPole-v1"
UNIT = FloatDistribution(0, 1)


def storage(folder, journal=False):
    if journal:
        return JournalStorage(JournalFileBackend(str(folder / "study.log")))
    return f"sqlite:///{folder}/study.db"


def objective(trial):
    """Reports 0, 1, 2; every fourth is pruned at 1, the sixth crashes. `depth` is there for trees only."""
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    kind = trial.suggest_categorical("kind", ["tree", "line"])
    depth = trial.suggest_int("depth", 1, 5) if kind == "tree" else 0
    for step in range(3):
        trial.report(trial.number + rate * step + depth, step)
        if trial.number % 4 == 3 and step == 1:
            raise optuna.TrialPruned
    if trial.number == 5:
        raise ValueError
    return trial.number + rate * 2 + depth


@pytest.fixture(params=["sqlite", "journal"])
def study(request, tmp_path):
    sampler = optuna.samplers.RandomSampler(seed=1)
    kept = storage(tmp_path, request.param == "journal")
    made = optuna.create_study(storage=kept, sampler=sampler, direction="maximize")
    made.optimize(objective, n_trials=10, catch=(ValueError,))
    made.enqueue_trial({"rate": 1e-3})
    return made


def test_trials_are_runs_and_reports_evaluations(tmp_path, study):
    (file,) = (path for path in tmp_path.iterdir() if path.name in ("study.db", "study.log"))
    before = file.read_bytes()
    data = imported(file, tmp_path / "out", id=ID)
    assert file.read_bytes() == before
    counts = data.sql("SELECT status, count(*) FROM runs GROUP BY ALL ORDER BY ALL").fetchall()
    assert counts == [("crash", 1), ("done", 7), ("stopped", 2)]
    assert data.manifest.steps == (1, 2, 3)
    assert data.manifest.objective.direction == "maximize"
    for trial in study.trials[:10]:
        assert dict(data.config(trial.number)) == pytest.approx(trial.params)
        values = data.curves(trial.number)["value"].tolist()
        assert values == pytest.approx(list(trial.intermediate_values.values()), rel=1e-6)
    rate = data.space.hyperparameters["rate"]
    assert (rate.bounds, rate.scale) == ((1e-5, 1e-1), "log")
    assert "tree" in to_yaml(data.space).split("conditions:")[1]
    assert data.best(by="mean").config_id == study.best_trial.number
    assert any("1 trial that had not ended" in note for note in data.manifest.notes)


def test_the_attribute_seed_is_the_seed(tmp_path):
    study = optuna.create_study(storage=storage(tmp_path), study_name="a/b/C-v1")

    def loss(trial):
        trial.set_user_attr("seed", trial.number % 2 + 3)
        return trial.suggest_float("x", 0, 1) + trial.number

    for x in (0.0, 0.0, 1.0, 1.0):
        study.enqueue_trial({"x": x})
    study.optimize(loss, n_trials=4)
    data = imported(tmp_path / "study.db", tmp_path / "out")
    assert data.manifest.id == "a/b/C-v1"
    assert data.manifest.seeds == {"tuning": (3,), "test": (4,)}
    assert data.grid.values[:, :, 0].tolist() == [[0.0, 1.0], [3.0, 4.0]]
    assert data.best(by="mean").config["x"] == 0.0


def test_repetitions_without_a_seed_are_numbered(tmp_path):
    study = optuna.create_study(storage=storage(tmp_path), direction="maximize")
    study.add_trials([trial(value) for value in (1.0, 2.0, 3.0)])
    data = imported(tmp_path / "study.db", tmp_path / "out", id=ID, tuning_seeds=3)
    values = "SELECT seed, value FROM measured JOIN runs USING (run_id) ORDER BY seed"
    assert data.sql(values).fetchall() == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_a_value_that_is_not_the_last_report_counts(tmp_path):
    study = optuna.create_study(storage=storage(tmp_path), direction="maximize")

    def best_of(trial):
        trial.suggest_float("x", 0, 1)
        for step in (10, 20):
            trial.report(-step, step)
        return 5.0

    study.optimize(best_of, n_trials=2)
    data = imported(tmp_path / "study.db", tmp_path / "out", id=ID, unit=100)
    found = data.sql("SELECT DISTINCT step, value, reported FROM evals ORDER BY step").fetchall()
    assert found == [(1000, -10.0, -10.0), (2000, 5.0, -20.0)]
    assert any("2 trials" in note for note in data.manifest.notes)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_several_studies_and_several_objectives_need_a_name(tmp_path):
    directions = ["maximize", "minimize"]
    for name in ("one", "two"):
        study = optuna.create_study(
            storage=storage(tmp_path), study_name=name, directions=directions
        )
        study.set_metric_names(["score", "cost"])
        study.optimize(
            lambda trial: (trial.suggest_float("x", 0, 1), 7.0 + trial.number), n_trials=2
        )
    file, out = tmp_path / "study.db", tmp_path / "out"
    expect_error("--study must be one of: one, two", import_any, file, out, id=ID)
    expect_error("--metric one of score, cost", import_any, file, out, id=ID, study="two")
    data = imported(file, out, id=ID, study="two", metric="cost")
    objective = data.manifest.objective
    assert (objective.metric, objective.direction) == ("cost", "minimize")
    assert data.best(by="mean").value == 7.0


def trial(value=1.0, name="x", distribution=UNIT, **attributes):
    return optuna.trial.create_trial(
        value=value, params={name: 0.5}, distributions={name: distribution}, user_attrs=attributes
    )


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ([trial(seed="a")], "trial 0: the attribute seed must be an integer, got 'a'"),
        ([trial(seed=1), trial(2.0, seed=1)], "trained twice with seed 1"),
        ([trial(), trial(name="y")], "no other hyperparameter says when"),
        ([], "no parameters"),
        ([optuna.trial.create_trial(value=1.0)], "no parameters"),
    ],
)
def test_studies_that_cannot_be_a_landscape_are_refused(tmp_path, trials, message):
    optuna.create_study(storage=storage(tmp_path), direction="maximize").add_trials(trials)
    with pytest.raises(InputError, match=message) as caught:
        import_any(tmp_path / "study.db", tmp_path / "out", id=ID)
    assert "study.db" in str(caught.value)


def test_distributions_that_do_not_fit_together_are_refused(tmp_path):
    """SQLite storages refuse them; journals take what is written."""
    study = optuna.create_study(storage=storage(tmp_path, journal=True), direction="maximize")
    study.add_trials([trial(), trial(distribution=FloatDistribution(0.1, 1, log=True))])
    with pytest.raises(InputError, match="x: its trials drew from distributions that do not fit"):
        import_any(tmp_path / "study.log", tmp_path / "out", id=ID)


def test_files_that_are_no_storage_are_refused(tmp_path):
    optuna.create_study(storage=storage(tmp_path), direction="maximize").add_trial(trial())
    with pytest.raises(InputError, match="--id namespace/algorithm/environment"):
        import_any(tmp_path / "study.db", tmp_path / "out")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    expect_error("not recognised", import_any, tmp_path / "other.db", tmp_path / "out", id=ID)
    (tmp_path / "broken.log").write_text('{"op_code": 0}\nnonsense\n{"op_code": 1}\n')
    expect_error("cannot read it", import_any, tmp_path / "broken.log", tmp_path / "out", id=ID)
