"""Importing Ray Tune's experiment folders, written here as Ray 2.60 writes them."""

import json

import pytest

from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.landscapes.importers import import_any
from autorl.landscapes.validate import validate

ID = "me/ppo/CartPole-v1"
OPTIONS = {"id": ID, "metric": "env_runners/return"}


def trial(folder, number, config, count=4, *, seed=None, state="TERMINATED", steps=None, **more):
    """A trial folder with `count` results; the return is 10 x number + the result's number."""
    path = folder / f"train_{number:05d}_{number}"
    path.mkdir(parents=True)
    params = config if seed is None else {**config, "seed": seed}
    (path / "params.json").write_text(json.dumps(params, indent=2))
    lines = []
    for i in range(1, count + 1):
        row = {
            "env_runners": {"return": 10.0 * number + i, "length": i},
            "training_iteration": i,
            "timesteps_total": steps and steps * i,
            "trial_id": f"{number:05d}",
            "time_total_s": 0.5 * i,
            "done": i == count,
            "config": params,
            **more,
        }
        lines.append(json.dumps(row))
    (path / "result.json").write_text("".join(line + "\n" for line in lines))
    return state


def experiment(folder, trials):
    states = {number: trial(folder, number, **each) for number, each in enumerate(trials)}
    data = [
        [json.dumps({"trial_id": f"{number:05d}", "status": state}), "{}"]
        for number, state in states.items()
    ]
    (folder / "experiment_state-2026-01-01_00-00-00.json").write_text(
        json.dumps({"trial_data": data})
    )
    return folder


def test_trials_are_runs(tmp_path):
    settings = [
        {"lr": rate, "model": {"width": width}, "gamma": 0.99}
        for rate in (1e-4, 1e-2)
        for width in (8, 16)
    ]
    trials = [
        {"config": config, "seed": seed, "steps": 1000} for config in settings for seed in (0, 1)
    ]
    (done,) = import_any(experiment(tmp_path / "exp", trials), tmp_path / "out", **OPTIONS)
    data = Landscape(tmp_path / "out" / ID)
    assert done.rows == {"configs": 4, "runs": 8, "evals": 32, "segments": 8}
    assert done.steps == (1000, 2000, 3000, 4000)
    assert done.seeds == {"tuning": (0,), "test": (1,)}
    assert data.space.names == ("lr", "model.width")
    assert any("equal in all trials were left out: gamma" in note for note in done.notes)
    found = data.sql(
        "SELECT seed, env_runners_return, wall_seconds FROM runs JOIN evals USING (run_id) WHERE step = 4000"
    )
    assert sorted(row[1] for row in found.fetchall()) == [10.0 * number + 4 for number in range(8)]
    best = data.best(by="mean")
    assert (best.config["lr"], best.config["model.width"], best.value) == (1e-2, 16, 64.0)
    assert validate(data.path) == []


def test_how_trials_end(tmp_path):
    """The longest are done, shorter ones were stopped, failed ones crashed, unfinished ones are lost."""
    trials = [
        {"config": {"lr": 0.1}},
        {"config": {"lr": 0.2}, "count": 2},
        {"config": {"lr": 0.3}, "count": 1, "state": "ERROR"},
        {"config": {"lr": 0.4}, "count": 3, "state": "RUNNING"},
        {"config": {"lr": 0.5}, "count": 0, "state": "ERROR"},
        {"config": {"lr": 0.6}},
    ]
    folder = experiment(tmp_path / "exp", trials)
    (folder / "train_00005_5" / "error.txt").write_text("Traceback")
    (folder / "train_00004_4" / "error.txt").write_text("Traceback")
    import_any(folder, tmp_path / "out", **OPTIONS, direction="minimize")
    data = Landscape(tmp_path / "out" / ID)
    assert data.manifest.objective.direction == "minimize"
    assert data.sql("SELECT status FROM runs ORDER BY config_id").fetchall() == [
        ("done",),
        ("stopped",),
        ("crash",),
        ("lost",),
        ("crash",),
        ("crash",),
    ]
    assert validate(data.path) == []


def test_progress_tables_are_read_where_there_is_no_json(tmp_path):
    folder = experiment(tmp_path / "exp", [{"config": {"lr": rate}} for rate in (0.1, 0.2)])
    for number in (0, 1):
        path = folder / f"train_0000{number}_{number}"
        (path / "result.json").write_text("")
        (path / "progress.csv").write_text(
            f"score,training_iteration,trial_id\n{number}.5,1,0000{number}\n"
        )
    import_any(folder, tmp_path / "out", id=ID, metric="score", unit=500)
    data = Landscape(tmp_path / "out" / ID)
    assert data.sql("SELECT step, score FROM evals ORDER BY score").fetchall() == [
        (500, 0.5),
        (500, 1.5),
    ]


def test_step_and_seed_can_be_named(tmp_path):
    trials = [
        {"config": {"lr": 0.1 * (1 + number // 2), "trial_seed": number % 2}, "agent_steps": 64}
        for number in range(4)
    ]
    folder = experiment(tmp_path / "exp", [{**each, "count": 1} for each in trials])
    (done,) = import_any(
        folder, tmp_path / "out", **OPTIONS, map=("agent_steps=step", "trial_seed=seed")
    )
    assert done.steps == (64,)
    assert done.seeds == {"tuning": (0,), "test": (1,)}
    with pytest.raises(InputError, match="expected NAME=step or NAME=seed, got 'lr=metric'"):
        import_any(folder, tmp_path / "out", **OPTIONS, map=("lr=metric",))


def test_what_is_wrong_is_said(tmp_path):
    folder = experiment(tmp_path / "exp", [{"config": {"lr": rate}} for rate in (0.1, 0.2)])
    with pytest.raises(InputError, match="--metric NAME"):
        import_any(folder, tmp_path / "out", id=ID)
    with pytest.raises(InputError, match="--id namespace"):
        import_any(folder, tmp_path / "out", metric="env_runners/return")
    with pytest.raises(
        InputError, match=r"result\.json:1: no result 'reward'; there are .*env_runners/return"
    ):
        import_any(folder, tmp_path / "out", id=ID, metric="reward")
    with pytest.raises(InputError, match="no trial folders"):
        import_any(tmp_path, tmp_path / "out", **OPTIONS, format="ray")
    results = folder / "train_00000_0" / "result.json"
    lines = results.read_text().splitlines()
    results.write_text(
        "\n".join([*lines[:2], lines[2].replace('{"lr": 0.1}', '{"lr": 0.12}'), lines[3]])
    )
    with pytest.raises(InputError, match=r"result\.json:3: lr: changed while the trial ran"):
        import_any(folder, tmp_path / "out", **OPTIONS)
    results.write_text("\n".join([lines[0], "{", lines[2]]))
    with pytest.raises(InputError, match=r"result\.json:2: not JSON"):
        import_any(folder, tmp_path / "out", **OPTIONS)
    results.write_text(lines[0])
    next(folder.glob("experiment_state*")).write_text("{}")
    with pytest.raises(InputError, match="not an experiment state"):
        import_any(folder, tmp_path / "out", **OPTIONS)
