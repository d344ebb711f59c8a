"""Importing Ray Tune's experiment folders, written here as Ray 2.60 writes them."""

import json

import pytest
from landscape_samples import imported
from refusals import expect_error

from autorl.core.types import InputError
from autorl.landscapes.importers import import_any

ID = "me/ppo/CartPole-v1"
OPTIONS = {"id": ID, "metric": "env_runners/return"}


def trial(folder, number, config, count=4, *, seed=None, steps=None, **more):
    """A trial folder with `count` results; the return is 10 x number + the result's number."""
    path = folder / f"train_{number:05d}_{number}"
    path.mkdir(parents=True)
    params = config if seed is None else {**config, "seed": seed}
    (path / "params.json").write_text(json.dumps(params, indent=2))
    rows = [
        {
            "env_runners": {"return": 10.0 * number + i, "length": i},
            "training_iteration": i,
            "timesteps_total": steps and steps * i,
            "trial_id": f"{number:05d}",
            "time_total_s": 0.5 * i,
            "config": params,
            **more,
        }
        for i in range(1, count + 1)
    ]
    (path / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def experiment(folder, trials):
    data = []
    for number, each in enumerate(trials):
        state = {"trial_id": f"{number:05d}", "status": each.pop("state", "TERMINATED")}
        data.append([json.dumps(state), "{}"])
        trial(folder, number, **each)
    states = folder / "experiment_state-2026-01-01_00-00-00.json"
    states.write_text(json.dumps({"trial_data": data}))
    return folder


@pytest.fixture
def two(tmp_path):
    return experiment(tmp_path / "exp", [{"config": {"lr": rate}} for rate in (0.1, 0.2)])


def test_trials_are_runs(tmp_path):
    settings = [
        {"lr": rate, "model": {"width": width}, "gamma": 0.99}
        for rate in (1e-4, 1e-2)
        for width in (8, 16)
    ]
    trials = [
        {"config": config, "seed": seed, "steps": 1000} for config in settings for seed in (0, 1)
    ]
    data = imported(experiment(tmp_path / "exp", trials), tmp_path / "out", **OPTIONS)
    done = data.manifest
    assert done.rows == {"configs": 4, "runs": 8, "evals": 32, "segments": 8}
    assert done.steps == (1000, 2000, 3000, 4000)
    assert done.seeds == {"tuning": (0,), "test": (1,)}
    assert data.space.names == ("lr", "model.width")
    assert any("equal in all trials were left out: gamma" in note for note in done.notes)
    last = data.sql("SELECT env_runners_return FROM evals WHERE step = 4000").fetchall()
    assert sorted(row[0] for row in last) == [10.0 * number + 4 for number in range(8)]
    assert data.sql("SELECT DISTINCT wall_seconds FROM runs").fetchall() == [(2.0,)]
    best = data.best(by="mean")
    assert (best.config["lr"], best.config["model.width"], best.value) == (1e-2, 16, 64.0)


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
    for number in (4, 5):
        (folder / f"train_{number:05d}_{number}" / "error.txt").write_text("Traceback")
    data = imported(folder, tmp_path / "out", **OPTIONS, direction="minimize")
    assert data.manifest.objective.direction == "minimize"
    found = [row[0] for row in data.sql("SELECT status FROM runs ORDER BY config_id").fetchall()]
    assert found == ["done", "stopped", "crash", "lost", "crash", "crash"]


def test_progress_tables_are_read_where_there_is_no_json(tmp_path, two):
    for number in (0, 1):
        path = two / f"train_0000{number}_{number}"
        (path / "result.json").write_text("")
        rows = f"score,training_iteration,trial_id\n{number}.5,1,0000{number}\n"
        (path / "progress.csv").write_text(rows)
    data = imported(two, tmp_path / "out", id=ID, metric="score", unit=500)
    found = data.sql("SELECT step, score FROM evals ORDER BY score").fetchall()
    assert found == [(500, 0.5), (500, 1.5)]


def test_step_and_seed_can_be_named(tmp_path):
    configs = [{"lr": 0.1 * (1 + number // 2), "trial_seed": number % 2} for number in range(4)]
    trials = [{"config": config, "agent_steps": 64, "count": 1} for config in configs]
    folder = experiment(tmp_path / "exp", trials)
    names = ("agent_steps=step", "trial_seed=seed")
    done = imported(folder, tmp_path / "out", **OPTIONS, map=names).manifest
    assert done.steps == (64,)
    assert done.seeds == {"tuning": (0,), "test": (1,)}
    with pytest.raises(InputError, match="expected NAME=step or NAME=seed, got 'lr=metric'"):
        import_any(folder, tmp_path / "out", **OPTIONS, map=("lr=metric",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": ID}, "--metric NAME"),
        ({"metric": "env_runners/return"}, "--id namespace"),
        ({"id": ID, "metric": "reward"}, r"result\.json:1: no result 'reward'; there are .*return"),
    ],
)
def test_wrong_options_are_refused(tmp_path, two, options, message):
    expect_error(message, import_any, two, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (2, '{"lr": 0.1}', '{"lr": 0.12}', r"result\.json:3: lr: changed while the trial ran"),
        (1, "}\n", "\n", r"result\.json:2: not JSON"),
    ],
)
def test_wrong_results_name_their_line(tmp_path, two, line, old, new, message):
    results = two / "train_00000_0" / "result.json"
    lines = results.read_text().splitlines(keepends=True)
    lines[line] = lines[line].replace(old, new)
    results.write_text("".join(lines))
    expect_error(message, import_any, two, tmp_path / "out", **OPTIONS)


def test_what_is_no_experiment_is_refused(tmp_path, two):
    next(two.glob("experiment_state*")).write_text("{}")
    expect_error("not an experiment state", import_any, two, tmp_path / "out", **OPTIONS)
