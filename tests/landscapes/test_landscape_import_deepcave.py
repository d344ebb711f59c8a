"""Importing DeepCAVE runs written here, and the way there and back."""

import json

import ConfigSpace
import numpy as np
import pytest
from landscape_samples import SPACE, N, configs, imported, manifest, tables
from refusals import expect_error

from autorl.core.types import FrozenMap, InputError
from autorl.landscapes import Landscape, Objective, Tables, write_landscape
from autorl.landscapes.export_deepcave import export_deepcave
from autorl.landscapes.importers import import_any
from autorl.landscapes.validate import validate

ID = "me/ppo/CartPole-v1"
LIMITS = {"lower": 0, "upper": 1, "lock_lower": True, "lock_upper": True}
ACCURACY = {"name": "accuracy", "optimize": "upper", **LIMITS}
CONFIGS = {"0": {"x": 0.25, "kind": "a"}, "1": {"x": 0.5, "kind": "b"}}
HISTORY = [
    [0, 10, 7, [0.1], 0.0, 1.0, 1, {}],
    [0, 20, 7, [0.2], 1.0, 2.0, 1, {}],
    [1, 10, 7, [0.3], 0.0, 1.0, 1, {}],
    [1, 20, 7, [None], 1.0, 2.0, 4, {"traceback": "..."}],
]


def run_folder(folder, history=HISTORY, configs=CONFIGS, objectives=(ACCURACY,), meta=True):
    folder.mkdir()
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    (folder / "configs.json").write_text(json.dumps(configs))
    (folder / "origins.json").write_text(json.dumps(dict.fromkeys(configs)))
    if meta:
        (folder / "meta.json").write_text(json.dumps({"objectives": objectives}))
    return folder


@pytest.mark.parametrize("layout", ["short", "long"])
def test_a_run_of_the_short_and_of_the_long_layout(tmp_path, layout):
    rows = [[*row[:4], *([0.5] if layout == "long" else []), *row[4:]] for row in HISTORY]
    data = imported(run_folder(tmp_path / "run", rows), tmp_path / "out", id=ID)
    assert data.manifest.objective.metric == "accuracy"
    assert data.manifest.return_bounds == (0, 1)
    runs = data.sql("SELECT config_id, seed, status FROM runs ORDER BY run_id").fetchall()
    assert runs == [(0, 7, "done"), (1, 7, "crash")]
    evals = data.sql("SELECT step, accuracy FROM evals ORDER BY run_id, step").fetchall()
    assert [step for step, _ in evals] == [10, 20, 10, 20]
    assert [score for _, score in evals] == [*map(pytest.approx, (0.1, 0.2, 0.3)), None]
    assert dict(data.config(1)) == {"x": 0.5, "kind": "b"}


def test_logs_without_a_space_and_with_fractions_of_a_run(tmp_path):
    """ARLBench's logs: costs without a name, budgets in (0, 1], empty cells where a hyperparameter is inactive."""
    settings = {"0": {"a": "on", "b": 3}, "1": {"a": "off", "b": None}}
    rows = [
        [i, budget, seed, [-100 * budget + i], 0, 0, 1, {}]
        for i in (0, 1)
        for seed in (0, 1)
        for budget in (0.5, 1.0)
    ]
    folder = run_folder(tmp_path / "run", rows, settings, meta=False)
    rule = r"line 1: the budget 0\.5 is not a whole number of steps; --unit"
    expect_error(rule, import_any, folder, tmp_path / "out", id=ID)
    data = imported(folder, tmp_path / "out", id=ID, unit=1000)
    objective = data.manifest.objective
    assert data.manifest.steps == (500, 1000)
    assert (objective.metric, objective.direction) == ("cost", "minimize")
    assert "b" not in data.config(1)
    assert data.best(by="mean").config_id == 0


def test_one_of_several_objectives(tmp_path):
    time = {**ACCURACY, "name": "time", "lock_upper": False, "optimize": "lower"}
    rows = [[*row[:3], [*row[3], 2.0 + row[0]], *row[4:]] for row in HISTORY]
    folder = run_folder(tmp_path / "run", rows, objectives=(ACCURACY, time))
    data = imported(folder, tmp_path / "out", id=ID, metric="time")
    assert data.metrics == ("accuracy", "time")
    assert data.manifest.return_bounds == (0, None)
    assert data.best(by="mean").config_id == 0
    with pytest.raises(InputError, match="no objective 'loss'; allowed: accuracy, time"):
        import_any(folder, tmp_path / "out", id=ID, metric="loss")


def changed(place, value):
    return [*HISTORY[0][:place], value, *HISTORY[0][place + 1 :]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([HISTORY[0], [0, 20]], r"history\.jsonl:2: expected \[configuration, budget, seed"),
        ([changed(0, 9)], r"history\.jsonl:1: configuration 9 is not in configs\.json"),
        ([changed(3, [1, 2])], r"history\.jsonl:1: 2 costs, but the objectives are accuracy"),
        ([changed(6, 17)], r"history\.jsonl:1: status 17 is not one of 1 to 9"),
        ([changed(2, "a")], "expected integers"),
        ([HISTORY[0]] * 2, r"history\.jsonl:2: another row has the same configuration, seed and"),
        ([changed(6, 6)], "no evaluation was found"),
    ],
)
def test_wrong_histories_name_their_line(tmp_path, rows, message):
    expect_error(message, import_any, run_folder(tmp_path / "run", rows), tmp_path / "out", id=ID)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("meta.json", '{"objectives": [{"name": "a", "optimize": "up"}]}', r"objectives\[0\]\.opt"),
        ("meta.json", "{", "not JSON"),
        ("configspace.json", "[]", "ConfigSpace cannot read it"),
        ("configs.json", None, r"configs\.json: missing"),
    ],
)
def test_wrong_files_are_named(tmp_path, file, text, message):
    folder = run_folder(tmp_path / "run")
    expect_error("--id namespace", import_any, folder, tmp_path / "out")
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    expect_error(message, import_any, folder, tmp_path / "out", id=ID, format="deepcave")


def test_there_and_back_the_scores_are_the_same(tmp_path):
    made = tables()
    crashed, stopped, lost = 3, 7, 11
    for place, status in ((crashed, "crash"), (stopped, "stopped"), (lost, "lost")):
        made.runs.loc[place, "status"] = status
    ids = made.runs["run_id"]
    cut = (made.evals["run_id"].isin([ids[crashed], ids[stopped]])) & (made.evals["step"] >= 300)
    evals = made.evals[~cut].copy()
    evals.loc[(evals["run_id"] == ids[lost]) & (evals["step"] == 400), "eval_return"] = np.nan
    kept = Tables(made.configs, made.runs, evals, made.segments)
    write_landscape(tmp_path / "a", kept, manifest(), SPACE)
    original = Landscape(tmp_path / "a")
    rows = export_deepcave(original, tmp_path / "run")
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert rows == len(history) == len(evals) + 2
    assert {len(json.loads(row)) for row in history} == {8}, "DeepCAVE loads these"
    theirs = ConfigSpace.ConfigurationSpace.from_json(tmp_path / "run" / "configspace.json")
    stored = json.loads((tmp_path / "run" / "configs.json").read_text())
    assert all(ConfigSpace.Configuration(theirs, values=values) for values in stored.values())
    (done,) = import_any(tmp_path / "run", tmp_path / "out")
    back = Landscape(tmp_path / "out" / done.id)
    for query in (
        "SELECT config_id, seed, seed_role, step, value FROM scores ORDER BY ALL",
        "SELECT config_id, seed, status FROM runs ORDER BY ALL",
    ):
        assert back.sql(query).fetchall() == original.sql(query).fetchall()
    assert {number: back.config(number) for number in range(N)} == configs()
    for field in ("id", "objective", "licence"):
        assert getattr(done, field) == getattr(original.manifest, field)
    assert validate(back.path) == validate(original.path)


def test_floor_and_penalty_come_back(tmp_path):
    aim = Objective(floor=100.0, penalty=-5.0)
    described = manifest(objective=aim, return_bounds=(100.0, None))
    write_landscape(tmp_path / "a", tables(), described, SPACE)
    export_deepcave(Landscape(tmp_path / "a"), tmp_path / "run")
    (done,) = import_any(tmp_path / "run", tmp_path / "out", replace=True)
    assert done.objective == aim
    assert done.return_bounds == (100.0, None)
    assert done.seeds == FrozenMap(manifest().seeds)
    expect_error("is there already", export_deepcave, Landscape(tmp_path / "a"), tmp_path / "run")
