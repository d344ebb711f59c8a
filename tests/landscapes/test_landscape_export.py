"""Exports beyond the flat table: Optuna's storages, DeepCAVE's folders, the command."""

import optuna
import pytest
from landscape_samples import SPACE, STEPS, configs, manifest, tables

from autorl.landscapes import Landscape, write_landscape
from autorl.landscapes.export import export_optuna
from autorl.landscapes.importers import import_any
from autorl.space import to_yaml


@pytest.fixture
def landscape(tmp_path):
    write_landscape(tmp_path / "a", tables(), manifest(), SPACE)
    return Landscape(tmp_path / "a")


def load(file):
    if file.suffix == ".journal":
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        return optuna.load_study(
            study_name="sample/dqn/CartPole-v1", storage=optuna.storages.JournalStorage(backend)
        )
    return optuna.load_study(study_name="sample/dqn/CartPole-v1", storage=f"sqlite:///{file}")


@pytest.mark.parametrize("name", ["x.db", "x.journal"])
def test_both_storages_hold_the_study_and_can_go_on(tmp_path, landscape, name):
    assert export_optuna(landscape, tmp_path / name) == 12
    study = load(tmp_path / name)
    best = landscape.best(by="mean")
    assert study.best_value == pytest.approx(best.value)
    assert study.best_trial.user_attrs["config_id"] == best.config_id
    for trial in study.trials:
        number = trial.user_attrs["config_id"]
        config = configs()[number]
        assert set(trial.params) == set(config)
        assert trial.params["learning_rate"] == pytest.approx(config["learning_rate"])
        assert trial.value == trial.intermediate_values[STEPS[-1]]
        means = [
            landscape.grid.lookup(number, (0, 1, 2), step).astype(float).mean() for step in STEPS
        ]
        assert [trial.intermediate_values[step] for step in STEPS] == pytest.approx(means)
    study.sampler = optuna.samplers.RandomSampler(seed=0)
    study.optimize(
        lambda trial: trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True), n_trials=1
    )
    assert [trial.number for trial in study.trials] == list(range(13))


def test_an_exported_study_comes_back(tmp_path, landscape):
    export_optuna(landscape, tmp_path / "x.db", seeds="test")
    (done,) = import_any(tmp_path / "x.db", tmp_path / "out")
    assert done.id == landscape.manifest.id
    back = Landscape(tmp_path / "out" / done.id)
    assert back.best(by="mean").value == pytest.approx(
        landscape.best("test", "mean").value, rel=1e-6
    )
    assert back.manifest.steps == STEPS
    assert "target" in to_yaml(back.space).split("conditions:")[1]
