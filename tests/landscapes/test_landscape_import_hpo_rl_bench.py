"""Importing HPO-RL-Bench's files, made up here: a grid of three hyperparameters, schedules, extended grids."""

import json
from itertools import product

import numpy as np
import pytest
from landscape_samples import imported
from refusals import expect_error

from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.landscapes.importers import import_any
from autorl.landscapes.validate import validate


def write(folder, name, seed, count=5, ending="_eval", **more):
    """A file of a run whose i-th return is drawn with the seed of its name."""
    rng = np.random.default_rng([seed, *name.encode()])
    values = {
        "returns_eval": rng.uniform(0, 450, count).tolist(),
        "std_returns_eval": rng.uniform(0, 9, count).tolist(),
        "timestamps_eval": [50.0 * (i + 1) for i in range(count)],
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_seed{seed}{ending}.json").write_text(json.dumps(values))
    return values


def static(folder, algorithm="PPO", extra="_clip_0.2"):
    return {
        (rate, gamma, seed): write(
            folder, f"Enduro-v0_{algorithm}_random_lr_{rate}_gamma_{gamma}{extra}", seed
        )
        for rate, gamma, seed in product((-6, -4, -2), (0.8, 0.99), range(3))
    }


def test_the_grid(tmp_path):
    written = static(tmp_path / "data")
    data = imported(tmp_path / "data", tmp_path / "out")
    done = data.manifest
    assert done.id == "hpo-rl-bench/ppo/Enduro-v0"
    assert done.rows == {"configs": 6, "runs": 18, "evals": 90, "segments": 18}
    assert done.steps == tuple(range(10_000, 60_000, 10_000))
    assert done.seeds == {"tuning": (0, 1), "test": (2,)}
    assert data.space.hyperparameters["learning_rate"].scale == "log"
    for number, seed in product(range(6), range(3)):
        config = data.config(number)
        key = round(np.log10(config["learning_rate"])), config["gamma"], seed
        curve = data.grid.lookup(number, seed, done.steps)
        assert curve == pytest.approx(np.float32(written[key]["returns_eval"]))
    costs = data.sql("SELECT DISTINCT wall_seconds, environment_steps FROM runs").fetchall()
    assert costs == [(250.0, None)]
    assert data.metrics == ("eval_return", "eval_return_std")


def test_every_kind_of_space_is_a_landscape_of_its_own(tmp_path):
    static(tmp_path, "A2C", extra="")
    static(tmp_path)
    for rate, layers in ((-3, 2), (-4, 3)):
        name = f"Hopper-v2_PPO_lr_{rate}_gamma_0.9_clip_0.1_layers_{layers}_units_64"
        write(tmp_path / "PPO", name, 0, ending="")
    for last in (-3, -5):
        name = f"Enduro-v0_PPO_random_lr_-3-4{last}_gamma_0.950.980.98"
        phases = {"learning_rate": [-3, -4, last], "gamma": [0.95, 0.98, 0.98]}
        write(tmp_path / "PPO", name, 0, **phases, switch_every=3, configs=[[]])
    done = {each.id: each for each in import_any(tmp_path, tmp_path / "out")}
    assert sorted(done) == [
        "hpo-rl-bench-dynamic/ppo/Enduro-v0",
        "hpo-rl-bench-extended/ppo/Hopper-v2",
        "hpo-rl-bench/a2c/Enduro-v0",
        "hpo-rl-bench/ppo/Enduro-v0",
    ]
    schedules, larger = (Landscape(tmp_path / "out" / name) for name in sorted(done)[:2])
    rates = [schedules.config(number)["learning_rate_3"] for number in (0, 1)]
    assert rates == pytest.approx([1e-3, 1e-5])
    assert sorted(larger.config(number)["n_layers"] for number in (0, 1)) == [2, 3]
    assert validate([tmp_path / "out" / name for name in done]) == []
    expect_error("--id names one landscape", import_any, tmp_path, tmp_path / "other", id="a/b/c")


def test_a_cut_curve_is_lost_and_copies_are_left_out(tmp_path):
    folder = tmp_path / "data"
    static(folder)
    name = "Enduro-v0_PPO_random_lr_-6_gamma_0.8_clip_0.2"
    write(folder, name, 1, count=2)
    copy = (folder / f"{name}_seed2_eval.json").read_text()
    (folder / f"{name}_seed2_eval_1.json").write_text(copy)
    data = imported(folder, tmp_path / "out")
    cut = data.sql("SELECT config_id, seed, status FROM runs WHERE status != 'done'").fetchall()
    ((number, seed, status),) = cut
    assert (seed, status) == (1, "lost")
    assert dict(data.config(number)) == pytest.approx(
        {"learning_rate": 1e-6, "gamma": 0.8, "clip_range": 0.2}
    )
    worst = data.sql("SELECT min(eval_return) FROM evals").fetchall()[0][0]
    assert data.grid.lookup(number, 1, 50_000) == worst
    assert data.manifest.rows["runs"] == 18
    for part in ("1 curve stops", "1 exact copies"):
        assert any(part in note for note in data.manifest.notes)
    (folder / f"{name}_seed2_eval_1.json").write_text(copy.replace("[", "[1.5, ", 2))
    with pytest.raises(InputError, match="trained twice with seed 2, with different results"):
        import_any(folder, tmp_path / "other")


NAME = "Pong-v0_PPO_random_lr_-4_gamma_0.9_clip_0.2"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (NAME, {"returns_eval": "none"}, "returns_eval: expected a list of numbers"),
        (NAME, {"returns_eval": [1.0, "x"]}, "returns_eval: expected a list of numbers"),
        (NAME, {"std_returns_eval": [1.0]}, "std_returns_eval: 1 values for 5 evaluations"),
        (NAME, {"configs": [], "learning_rate": -3}, "learning_rate: expected a list of numbers"),
        (NAME[:-13], {}, "expected pairs <name>_<value>, got 'lr_-4_gamma'"),
        (NAME, None, "not JSON"),
    ],
)
def test_wrong_files_are_named_with_their_key(tmp_path, name, change, message):
    write(tmp_path, name, 0, **(change or {}))
    if change is None:
        next(tmp_path.glob("*.json")).write_text("{")
    assert "seed0_eval.json" in str(expect_error(message, import_any, tmp_path, tmp_path / "out"))
