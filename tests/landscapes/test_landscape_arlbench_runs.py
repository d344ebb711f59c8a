"""Importing ARLBench's optimizer runs: made-up files for the details, the real ones where they are."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.landscapes.importers import import_any
from autorl.landscapes.importers.arlbench_runs import METHODS
from autorl.landscapes.importers.arlbench_spaces import arlbench_space
from autorl.landscapes.validate import validate

DATA = Path(__file__).parents[3] / "shared" / "data" / "arlbench" / "optimizer_runs"
NAME = "cc_cartpole_ppo.csv"


def proposals(configs, budgets, optimizer_seeds=(42, 43)):
    """Rows for proposals that train configuration number `configs[i]` for `budgets[i]` steps on seeds 0-2."""
    rng, rows = np.random.default_rng(0), []
    for optimizer_seed in optimizer_seeds:
        for number, (config, budget) in enumerate(zip(configs, budgets, strict=True)):
            sampled = arlbench_space("ppo", "cc").sample(
                np.random.default_rng(100 * optimizer_seed + config)
            )
            for seed in range(3):
                row = {
                    "config_id": number,
                    "budget": float(budget),
                    "performance": rng.uniform(0, 500),
                }
                row |= {f"hp_config.{name}": value for name, value in sampled.items()}
                rows.append({**row, "optimisation_seed": optimizer_seed, "seed": seed})
    return pd.DataFrame(rows)


def imported(folder, method, frame):
    (folder / method).mkdir()
    frame.to_csv(folder / method / NAME, index=False)
    manifest = import_any(folder, folder / "out")[0]
    return Landscape(folder / "out" / manifest.id)


def test_random_search(tmp_path):
    frame = proposals(range(4), [1000] * 4)
    data = imported(tmp_path, "rs", frame)
    assert data.manifest.id == "arlbench-random/ppo/CartPole-v1"
    assert data.manifest.rows == {"configs": 8, "runs": 24, "evals": 24, "segments": 24}
    assert any("pairs of configuration and score are not" in note for note in data.manifest.notes)
    found = data.sql("SELECT member, seed, eval_return FROM runs JOIN evals USING (run_id)").df()
    stored = found.set_index(["member", "seed"]).eval_return
    for row in frame.itertuples():
        score = stored[f"{row.optimisation_seed}/{row.config_id}", row.seed]
        assert score == pytest.approx(row.performance, rel=1e-6)
    assert validate(data.path) == []


def test_a_promoted_configuration_is_one_configuration_trained_twice(tmp_path):
    data = imported(
        tmp_path, "smac_mf", proposals([0, 1, 2, 1], [500, 500, 500, 1000], optimizer_seeds=(1,))
    )
    assert data.manifest.rows["configs"] == 3
    assert not any("pairs of configuration" in note for note in data.manifest.notes)
    assert data.manifest.steps == (500, 1000)
    promoted = data.sql(
        "SELECT DISTINCT config_id FROM evals JOIN runs USING (run_id) WHERE step = 1000"
    ).fetchall()
    assert len(promoted) == 1
    assert np.isnan(data.grid.values[:, :, 1]).all(axis=1).sum() == 2
    assert validate(data.path) == []


def test_pbt_generations_follow_each_other(tmp_path):
    data = imported(tmp_path, "pbt", proposals([0, 1] * 10, [100] * 20, optimizer_seeds=(0,)))
    assert data.manifest.steps == tuple(range(100, 1001, 100))
    starts = data.sql("SELECT start_step, count(*) FROM runs GROUP BY ALL ORDER BY ALL").fetchall()
    assert starts == [(100 * generation, 6) for generation in range(10)]
    assert any("parent_run is empty" in note for note in data.manifest.notes)
    assert validate(data.path) == []


def test_hyperparameters_that_were_not_published_are_noted(tmp_path):
    data = imported(tmp_path, "rs", proposals([0, 1], [10, 10]).drop(columns="hp_config.vf_coef"))
    assert data.config(0)["vf_coef"] == 0.5
    assert "set to their defaults: vf_coef" in data.manifest.notes[0]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            lambda frame: frame.drop(columns="optimisation_seed"),
            r"\['optimisation_seed'\] are missing",
        ),
        (lambda frame: pd.concat([frame, frame.head(1)]), "1 row repeats"),
        (lambda frame: frame.assign(**{"hp_config.clip_eps": 0.7}), "clip_eps"),
    ],
)
def test_wrong_files_are_refused(tmp_path, change, rule):
    with pytest.raises(InputError, match=rule):
        imported(tmp_path, "rs", change(proposals([0, 1], [10, 10])))


def test_a_folder_without_methods_is_refused(tmp_path):
    with pytest.raises(InputError, match="none of the folders rs, smac, smac_mf, pbt"):
        import_any(tmp_path, tmp_path / "out", format="arlbench-runs")


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="ARLBench's raw files are not beside the checkout")
def test_the_published_runs_import_in_one_command(tmp_path):
    manifests = import_any(DATA, tmp_path)
    assert len(manifests) == 19 * len(METHODS)
    rows = {
        name: [each for each in manifests if each.id.startswith(f"arlbench-{name}/")]
        for name in METHODS.values()
    }
    assert {name: {each.rows["runs"] for each in found} for name, found in rows.items()} == {
        "random": {480},
        "smac": {480},
        "smac-hyperband": {1050},
        "pbt": {4800},
    }
    assert validate([tmp_path / each.id for each in manifests]) == []
