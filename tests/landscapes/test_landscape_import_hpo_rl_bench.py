"""Importing HPO-RL-Bench's files, made up here: a grid of three hyperparameters, schedules, extended grids."""

import json

import numpy as np
import pytest

from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.landscapes.importers import import_any
from autorl.landscapes.validate import validate

EVALUATIONS = 5


def write(folder, name, seed, count=EVALUATIONS, ending="_eval", **more):
    """A file of a run whose i-th return is drawn with the seed of its name."""
    rng = np.random.default_rng([seed, *name.encode()])
    values = {
        "returns_eval": rng.uniform(0, 450, count).tolist(),
        "std_returns_eval": rng.uniform(0, 9, count).tolist(),
        "timesteps_eval": rng.integers(0, 9000, count).tolist(),
        "timestamps_eval": [50.0 * (i + 1) for i in range(count)],
        "returns_train": [1.0] * 7,
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_seed{seed}{ending}.json").write_text(json.dumps(values))
    return values


def static(folder, algorithm="PPO", extra="clip_0.2", environment="Enduro-v0", **options):
    written = {}
    for rate in (-6, -4, -2):
        for gamma in (0.8, 0.99):
            for seed in range(3):
                name = f"{environment}_{algorithm}_random_lr_{rate}_gamma_{gamma}_{extra}".rstrip(
                    "_"
                )
                written[rate, gamma, seed] = write(
                    folder / algorithm / environment, name, seed, **options
                )
    return written


def test_the_grid(tmp_path):
    written = static(tmp_path / "data")
    (done,) = import_any(tmp_path / "data", tmp_path / "out")
    assert done.id == "hpo-rl-bench/ppo/Enduro-v0"
    assert done.rows == {"configs": 6, "runs": 18, "evals": 90, "segments": 18}
    assert done.steps == tuple(range(10_000, 60_000, 10_000))
    assert done.seeds == {"tuning": (0, 1), "test": (2,)}
    data = Landscape(tmp_path / "out" / done.id)
    assert data.space.hyperparameters["learning_rate"].scale == "log"
    for number in range(6):
        config = data.config(number)
        key = round(np.log10(config["learning_rate"])), config["gamma"]
        for seed in range(3):
            curve = data.grid.lookup(number, seed, done.steps)
            assert curve == pytest.approx(np.float32(written[(*key, seed)]["returns_eval"]))
    assert data.sql("SELECT DISTINCT wall_seconds, environment_steps FROM runs").fetchall() == [
        (250.0, None)
    ]
    assert data.metrics == ("eval_return", "eval_return_std")
    assert validate(data.path) == []


def test_every_kind_of_space_is_a_landscape_of_its_own(tmp_path):
    static(tmp_path, "A2C", extra="")
    static(tmp_path, extra="clip_0.2")
    write(
        tmp_path / "PPO", "Hopper-v2_PPO_lr_-3_gamma_0.9_clip_0.1_layers_2_units_64", 0, ending=""
    )
    write(
        tmp_path / "PPO", "Hopper-v2_PPO_lr_-4_gamma_0.9_clip_0.1_layers_3_units_64", 0, ending=""
    )
    for last in (-3, -5):
        name = f"Enduro-v0_PPO_random_lr_-3-4{last}_gamma_0.950.980.98"
        phases = {
            "learning_rate": [-3, -4, last],
            "gamma": [0.95, 0.98, 0.98],
            "switch_every": 3,
            "configs": [[]],
        }
        write(tmp_path / "PPO", name, 0, **phases)
    done = {each.id: each for each in import_any(tmp_path, tmp_path / "out")}
    assert sorted(done) == [
        "hpo-rl-bench-dynamic/ppo/Enduro-v0",
        "hpo-rl-bench-extended/ppo/Hopper-v2",
        "hpo-rl-bench/a2c/Enduro-v0",
        "hpo-rl-bench/ppo/Enduro-v0",
    ]
    schedules = Landscape(tmp_path / "out" / "hpo-rl-bench-dynamic/ppo/Enduro-v0")
    assert [schedules.config(number)["learning_rate_3"] for number in (0, 1)] == pytest.approx(
        [1e-3, 1e-5]
    )
    larger = Landscape(tmp_path / "out" / "hpo-rl-bench-extended/ppo/Hopper-v2")
    assert sorted(larger.config(number)["n_layers"] for number in (0, 1)) == [2, 3]
    assert validate([tmp_path / "out" / name for name in done]) == []
    with pytest.raises(InputError, match="--id names one landscape"):
        import_any(tmp_path, tmp_path / "other", id="a/b/c")


def test_a_cut_curve_is_lost_and_copies_are_left_out(tmp_path):
    static(tmp_path / "data")
    folder = tmp_path / "data" / "PPO" / "Enduro-v0"
    name = "Enduro-v0_PPO_random_lr_-6_gamma_0.8_clip_0.2"
    write(folder, name, 1, count=2)
    copy = (folder / f"{name}_seed2_eval.json").read_text()
    (folder / f"{name}_seed2_eval_1.json").write_text(copy)
    (done,) = import_any(tmp_path / "data", tmp_path / "out")
    data = Landscape(tmp_path / "out" / done.id)
    assert data.sql("SELECT seed, status FROM runs WHERE status != 'done'").fetchall() == [
        (1, "lost")
    ]
    worst = data.sql("SELECT min(eval_return) FROM evals").fetchall()[0][0]
    number = next(
        n
        for n in range(6)
        if data.config(n)["learning_rate"] < 1e-5 and data.config(n)["gamma"] == 0.8
    )
    assert data.grid.lookup(number, 1, 50_000) == worst
    assert done.rows["runs"] == 18
    assert any("1 curve stops" in note for note in done.notes)
    assert any("1 exact copies" in note for note in done.notes)
    assert validate(data.path) == []
    (folder / f"{name}_seed2_eval_1.json").write_text(copy.replace("[", "[1.5, ", 2))
    with pytest.raises(InputError, match="trained twice with seed 2, with different results"):
        import_any(tmp_path / "data", tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"returns_eval": "none"}, "returns_eval: expected a list of numbers"),
        ({"returns_eval": [1.0, "x"]}, "returns_eval: expected a list of numbers"),
        ({"std_returns_eval": [1.0]}, "std_returns_eval: 1 values for 5 evaluations"),
        ({"configs": [], "learning_rate": -3}, "learning_rate: expected a list of numbers"),
    ],
)
def test_wrong_files_are_named_with_their_key(tmp_path, change, message):
    write(tmp_path / "data", "Pong-v0_PPO_random_lr_-4_gamma_0.9_clip_0.2", 0, **change)
    with pytest.raises(InputError, match=message) as caught:
        import_any(tmp_path / "data", tmp_path / "out")
    assert "seed0_eval.json" in str(caught.value)


def test_wrong_names_and_broken_files(tmp_path):
    write(tmp_path, "Pong-v0_PPO_random_lr_-4_gamma", 0)
    with pytest.raises(InputError, match="expected pairs <name>_<value>, got 'lr_-4_gamma'"):
        import_any(tmp_path, tmp_path / "out")
    next(tmp_path.glob("*.json")).write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        import_any(tmp_path, tmp_path / "out")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no files <environment>_<ALGORITHM>"):
        import_any(tmp_path / "none", tmp_path / "out", format="hpo-rl-bench")
