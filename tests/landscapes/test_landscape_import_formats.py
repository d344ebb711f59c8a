"""Recognising formats, inferring spaces, ARLBench's files outside its own tasks and as they lie on Hugging Face."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from autorl.cli.app import app
from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.landscapes.importers import FORMATS, import_any
from autorl.landscapes.importers.arlbench_spaces import arlbench_space
from autorl.landscapes.importers.common import seed_roles
from autorl.landscapes.importers.inference import clean_name, flatten, infer_space, table_rows
from autorl.landscapes.validate import validate


def table(names=("alpha", "mode"), configs=6, seeds=4, prefix="hp_config."):
    """Rows as in a raw file, over hyperparameters nobody knows; `beta` is there where mode is b."""
    rng, rows = np.random.default_rng(0), []
    for number in range(configs):
        values = {"alpha": float(10 ** -(1 + number)), "mode": "ab"[number % 2], "beta": 3 + number}
        values = {
            name: values[name] for name in (*names, *(["beta"] if values["mode"] == "b" else []))
        }
        for seed in range(seeds):
            for budget in (100, 200, 300):
                row = {
                    "config_id": number,
                    "training_steps": budget,
                    "performance": rng.uniform(0, 1),
                    "seed": seed,
                }
                rows.append(row | {f"{prefix}{name}": value for name, value in values.items()})
    return pd.DataFrame(rows)


def ppo_table():
    frame = table(names=("alpha", "mode")).drop(
        columns=["hp_config.alpha", "hp_config.mode", "hp_config.beta"]
    )
    configs = [
        arlbench_space("ppo", "cc").sample(np.random.default_rng(number)) for number in range(6)
    ]
    for name in configs[0]:
        frame[f"hp_config.{name}"] = [configs[number][name] for number in frame.config_id]
    return frame


@pytest.mark.parametrize(
    "name", ["cc_cartpole_a2c.csv", "mujoco_ant_ppo.csv.gz", "atari_qbert_sac.csv"]
)
def test_a_file_of_another_algorithm_or_task_has_an_inferred_space(tmp_path, name):
    frame = table()
    frame.to_csv(tmp_path / name, index=False)
    (manifest,) = import_any(tmp_path / name, tmp_path / "out")
    task, algorithm = {
        "cc_cartpole_a2c.csv": ("CartPole-v1", "a2c"),
        "atari_qbert_sac.csv": ("Qbert-v5", "sac"),
    }.get(name, ("mujoco_ant", "ppo"))
    assert manifest.id == f"arlbench/{algorithm}/{task}"
    data = Landscape(tmp_path / "out" / manifest.id)
    assert data.space.names == ("alpha", "mode", "beta")
    assert data.space.hyperparameters["alpha"].scale == "log"
    assert data.space.hyperparameters["beta"].type == "int"
    assert [dict(data.config(number)) for number in (2, 3)] == [
        {"alpha": 1e-3, "mode": "a"},
        {"alpha": 1e-4, "mode": "b", "beta": 6},
    ]
    assert data.grid.lookup(frame.config_id, frame.seed, frame.training_steps) == pytest.approx(
        frame.performance.to_numpy(np.float32)
    )
    assert any("inferred" in note for note in manifest.notes)
    assert validate(data.path) == []


def test_a_known_task_with_a_new_hyperparameter_keeps_it(tmp_path):
    ppo_table().assign(**{"hp_config.new": 1.5}).to_csv(
        tmp_path / "cc_cartpole_ppo.csv", index=False
    )
    (manifest,) = import_any(tmp_path, tmp_path / "out")
    data = Landscape(tmp_path / "out" / manifest.id)
    assert set(data.space.names) == {*arlbench_space("ppo", "cc").names, "new"}
    assert data.config(0)["new"] == 1.5


def test_hugging_faces_folder_has_landscapes_and_runs(tmp_path):
    frame = ppo_table()
    (tmp_path / "landscapes").mkdir(), (tmp_path / "smac_mf").mkdir(), (tmp_path / "pbt").mkdir()
    frame.to_csv(tmp_path / "landscapes" / "cc_cartpole_ppo.csv", index=False)
    runs = frame[frame.training_steps == 300].assign(optimization_seed=7)
    proposals = runs.rename(columns={"config_id": "optimization_step"})
    proposals.to_csv(tmp_path / "smac_mf" / "cc_cartpole_ppo.csv", index=False)
    generations = pd.concat(
        [runs[runs.config_id < 2].assign(optimization_step=step) for step in range(10)]
    )
    generations.to_csv(tmp_path / "pbt" / "cc_cartpole_ppo.csv", index=False)
    done = {each.id: each for each in import_any(tmp_path, tmp_path / "out")}
    assert {name.split("/")[0] for name in done} == {
        "arlbench",
        "arlbench-smac-hyperband",
        "arlbench-pbt",
    }
    assert done["arlbench/ppo/CartPole-v1"].rows["runs"] == 24
    found = Landscape(tmp_path / "out" / "arlbench-smac-hyperband/ppo/CartPole-v1")
    assert found.sql("SELECT DISTINCT member FROM runs ORDER BY member").fetchall() == [
        (f"7/{number}",) for number in range(6)
    ]
    tuned = Landscape(tmp_path / "out" / "arlbench-pbt/ppo/CartPole-v1")
    starts = tuned.sql(
        "SELECT start_step, count(*) FROM runs GROUP BY start_step ORDER BY start_step"
    ).fetchall()
    assert starts == [(300 * generation, 2 * 4) for generation in range(10)]
    assert validate([tmp_path / "out" / name for name in done]) == []


def test_what_nobody_knows_is_one_clear_line(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    result = CliRunner().invoke(
        app, ["landscape", "import", str(tmp_path / "notes.txt"), "--out", str(tmp_path)]
    )
    assert result.exit_code == 2
    text = result.stderr.strip()
    assert len(text.splitlines()) == 1
    assert "not recognised" in text
    assert all(name in text for name in FORMATS)
    with pytest.raises(InputError, match="unknown format 'xml'; allowed: arlbench, "):
        import_any(tmp_path, tmp_path / "out", format="xml")
    with pytest.raises(InputError, match="no such file"):
        import_any(tmp_path / "absent", tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "expected maximize or minimize"),
        ({"unit": 0}, "above 0"),
        ({"id": "one/two"}, "namespace/algorithm/environment"),
        ({"about": {"license": "MIT"}}, "unknown; allowed: description, licence"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        import_any(tmp_path, tmp_path / "out", **options)


def test_the_same_row_twice_names_its_line(tmp_path):
    frame = ppo_table()
    pd.concat([frame, frame.iloc[[4]]]).to_csv(tmp_path / "cc_cartpole_ppo.csv", index=False)
    with pytest.raises(InputError, match="1 row repeats") as caught:
        import_any(tmp_path, tmp_path / "out")
    assert caught.value.line == len(frame) + 2


def test_half_of_the_seeds_tune():
    assert seed_roles([4, 2, 9], None) == {2: "tuning", 4: "tuning", 9: "test"}
    assert seed_roles([4, 2, 9], 1) == {2: "tuning", 4: "test", 9: "test"}
    with pytest.raises(InputError, match=r"1\.\.3, got 4"):
        seed_roles([4, 2, 9], 4)


def test_an_inferred_space_holds_every_configuration():
    rng = np.random.default_rng(1)
    configs = []
    for _ in range(60):
        config = {
            "lr": float(10 ** rng.uniform(-5, -1)),
            "decay": float(rng.uniform(0.001, 1)),
            "width": int(rng.integers(1, 9)),
            "flag": bool(rng.integers(2)),
            "layers": int(rng.integers(1, 4)),
            "shape": ((16,), (32, 32))[rng.integers(2)],
            "fixed": "x",
        }
        config |= {"second": 0.5 + rng.random()} if config["layers"] >= 2 else {}
        config |= {"rate": rng.random()} if config["flag"] else {}
        configs.append(config)
    space = infer_space(configs)
    kinds = {name: (item.type, item.scale) for name, item in space.hyperparameters.items()}
    assert kinds == {
        "lr": ("float", "log"),
        "decay": ("float", "linear"),
        "width": ("int", "linear"),
        "flag": ("categorical", "linear"),
        "layers": ("int", "linear"),
        "shape": ("categorical", "linear"),
        "fixed": ("constant", "linear"),
        "second": ("float", "linear"),
        "rate": ("float", "linear"),
    }
    assert all(set(space.config(config)) == set(config) for config in configs)


def test_what_cannot_be_inferred_is_said():
    with pytest.raises(
        InputError, match="missing in 1 of 2 configurations, and no other"
    ) as caught:
        infer_space([{"a": 1, "b": 2}, {"a": 1}])
    assert caught.value.key == "b"
    with pytest.raises(InputError, match="not a finite number"):
        infer_space([{"a": float("inf")}, {"a": 1.0}])
    with pytest.raises(InputError, match="no hyperparameters"):
        infer_space([{}])


def test_foreign_names_and_cells():
    assert flatten({"model": {"net width": 3, "1": 2}, "lr:0": 1}) == {
        "model.net_width": 3,
        "model.1": 2,
        "lr_0": 1,
    }
    assert [clean_name(name) for name in ("1st", "a b", "_x", "a..b")] == [
        "_1st",
        "a_b",
        "_x",
        "a.b",
    ]
    rows = table_rows(
        {"a": [1.0, float("nan"), 3.0], "b": [0.5, 1.0, 2.0], "c": ["x", float("nan"), "y"]}
    )
    assert (
        json.dumps(rows)
        == '[{"a": 1, "b": 0.5, "c": "x"}, {"b": 1.0}, {"a": 3, "b": 2.0, "c": "y"}]'
    )
