"""A study's folder as a landscape: equal to what its database says, also in the middle, and written out."""

import json
import shutil
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from landscape_samples import run_study
from refusals import expect_error
from small_studies import SMALL, TRAINER

from autorl import landscapes, load_landscape
from autorl.landscapes import Landscape, from_study
from autorl.landscapes.validate import validate
from autorl.store import Store
from autorl.study import Study
from autorl.study.results import landscape as study_landscape
from autorl.study.spec import load_spec

SPACE = {
    "hyperparameters": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "only_b": {"type": "int", "lower": 1, "upper": 9},
        "layers": {"type": "ordinal", "choices": [[16], [16, 16]]},
    },
    "conditions": {"only_b": "kind == b"},
}
STUDY = {
    **SMALL,
    "name": "small",
    "trainer": {"name": "synthetic", "kwargs": {**TRAINER, "optimum": {"x": 0.7}}},
    "space": SPACE,
    "fidelity": {"steps": 100, "evaluations": 5},
    "budget": {"configurations": 8},
    "seeds": {"tuning": 2, "test": 3},
    "optimizer": "sobol",
    "test": {"top": 8},
}


def run(folder, **changes):
    return run_study(folder, {**STUDY, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("study") / "study")


def database(folder, sql):
    with sqlite3.connect(folder / "study.sqlite") as connection:
        return connection.execute(sql).fetchall()


def test_tables_hold_what_the_database_holds(finished):
    data = load_landscape(finished)
    assert data.is_study
    assert data.manifest.rows["runs"] == 8 * 5
    reports = "SELECT run_id, step, value FROM reports WHERE metric = 'eval_return' ORDER BY 1, 2"
    stored = data.sql("SELECT run_id, step, eval_return FROM evals ORDER BY 1, 2").fetchall()
    assert np.array(stored) == pytest.approx(np.array(database(finished, reports)), rel=1e-6)
    for number, text in database(finished, "SELECT config_id, config FROM configurations"):
        assert json.loads(json.dumps(dict(data.config(number)))) == json.loads(text)
    types = {row[0]: row[1] for row in data.sql("DESCRIBE configs").fetchall()}
    assert (types["x"], types["only_b"], types["kind"]) == ("DOUBLE", "BIGINT", "VARCHAR")
    unlike = "SELECT count(*) FROM configs WHERE (kind = 'b') <> (only_b IS NOT NULL)"
    assert data.sql(unlike).fetchall() == [(0,)]
    assert data.manifest.seeds == {"tuning": (0, 1), "test": (100, 101, 102)}


def test_a_study_in_the_middle_can_be_read_and_is_not_touched(tmp_path):
    study = Study.create(load_spec(STUDY), tmp_path / "live")
    try:
        pool = study.advance()
        before = load_landscape(tmp_path / "live")
        assert before.manifest.rows["runs"] == 0
        assert before.metrics == ("eval_return",)
        assert before.sql("SELECT count(*) FROM scores").fetchall() == [(0,)]
        study.record(study.load(pool[0].trainer).train(pool[0], lambda report: None))
        after = load_landscape(tmp_path / "live")
        assert after.manifest.rows["runs"] == 1
        assert after.sql("SELECT count(eval_return) FROM evals").fetchall() == [(5,)]
        assert before.manifest.rows["runs"] == 0
    finally:
        study.close()


def test_reading_a_study_imports_no_module_that_it_names(finished, tmp_path, monkeypatch):
    (tmp_path / "spoiler.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    text = (finished / "study.yaml").read_text()
    for plain, named in [
        ("name: synthetic", "name: spoiler:Trainer"),
        ("name: sobol", "name: spoiler:Optimizer"),
    ]:
        assert plain in text
        text = text.replace(plain, named)
    Store.create(tmp_path / "s", text, "").close()
    data = load_landscape(tmp_path / "s")
    assert data.manifest.sampler["name"] == "spoiler:Optimizer"
    assert data.manifest.step_unit == "environment_steps"
    assert "spoiler" not in sys.modules


def test_the_door_of_the_landscapes_leads_to_the_study():
    assert landscapes.from_study is study_landscape.from_study
    with pytest.raises(AttributeError, match="no attribute 'from_nothing'"):
        landscapes.from_nothing  # noqa: B018


def newer(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (newer, "format 99 of another autorl"),
        (lambda file: file.write_bytes(b"not a database" * 100), "cannot be read"),
        (lambda file: file.unlink(), r"study.sqlite: is missing"),
    ],
)
def test_a_study_that_cannot_be_read_is_an_input_error(finished, tmp_path, damage, rule):
    shutil.copytree(finished, tmp_path / "copy")
    damage(tmp_path / "copy" / "study.sqlite")
    expect_error(rule, load_landscape, tmp_path / "copy")


def test_a_cost_objective_is_a_metric_of_the_last_evaluation(tmp_path):
    limits = [{"metric": "peak_memory_mb", "max": 1}, {"metric": "steps_per_second", "min": 0}]
    objective = {"metric": "wall_seconds", "direction": "minimize"}
    folder = run(tmp_path / "cost", objective=objective, constraints=limits)
    data = load_landscape(folder)
    columns = ["wall_seconds", "peak_memory_mb", "steps_per_second"]
    frame = data.sql(f"SELECT step, {', '.join(columns)} FROM evals").df()
    assert frame[frame.step < 100][columns].isna().all(axis=None)
    last = frame[frame.step == 100]
    assert (last[columns] > 0).all(axis=None)
    np.testing.assert_allclose(last.steps_per_second * last.wall_seconds, 100)
    with closing(Study.open(folder)) as study:
        said = "\n".join(study.run().caveats)
    assert "on tuning seeds the incumbent breaks peak_memory_mb <= 1" in said
    assert "on test seeds the incumbent breaks peak_memory_mb <= 1" in said
    assert data.best(by="mean").value > 0


def test_failed_runs_have_their_status_and_the_penalty(tmp_path):
    trainer = {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "nan": {"above": {"x": 0.6}}}}
    folder = run(tmp_path / "failing", trainer=trainer, failures={"penalty": -3.0})
    data = load_landscape(folder)
    failed = data.sql("SELECT count(*) FROM runs WHERE status = 'diverged'").fetchall()[0][0]
    assert failed > 0
    query = "SELECT DISTINCT value FROM scores JOIN runs USING (run_id) WHERE status = 'diverged' AND step = 100"
    assert data.sql(query).fetchall() == [(-3.0,)]


def test_written_out_it_is_a_valid_landscape_with_the_same_rows(finished, tmp_path):
    facts = {"licence": "CC0", "bounds": (-2.0, 2.0)}
    manifest = from_study(finished, tmp_path, "my/synthetic/bowl", **facts)
    assert [str(problem) for problem in validate(tmp_path / "my/synthetic/bowl")] == []
    written, live = Landscape(tmp_path / "my/synthetic/bowl"), load_landscape(finished)
    assert not written.is_study
    assert (manifest.algorithm, manifest.environment) == ("synthetic", "bowl")
    assert manifest.return_bounds == (-2.0, 2.0)
    for table in ("configs", "evals", "segments"):
        query = f"SELECT * FROM {table} ORDER BY ALL"
        pd.testing.assert_frame_equal(written.sql(query).df(), live.sql(query).df())
    assert written.best().config == live.best().config
    assert manifest.packages["numpy"]["sha256"]
    expect_error("is there already", from_study, finished, tmp_path, "my/synthetic/bowl")


@pytest.mark.parametrize("optimizer", ["hyperband", "asha", "pbt"])
def test_studies_with_rungs_and_changes_are_whole(tmp_path, optimizer):
    items = SPACE["hyperparameters"]
    space = {**SPACE, "hyperparameters": {**items, "x": {**items["x"], "changeable": True}}}
    folder = run(tmp_path / "study", optimizer=optimizer, budget={"runs": 30}, space=space)
    assert [str(problem) for problem in validate(folder)] == []
    data = load_landscape(folder)
    changed = data.sql("SELECT * FROM runs WHERE start_step > 0 AND parent_run IS NOT NULL")
    assert (len(changed) > 0) == (optimizer == "pbt")
    assert set(data.manifest.steps) >= {20, 40, 60, 80, 100}


def test_whole_rollouts_are_said_to_be_so(tmp_path):
    trainer = {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1, "rollout": 64}}
    folder = run(tmp_path / "rollouts", trainer=trainer)
    evaluation = load_landscape(folder).manifest.evaluation
    assert (evaluation["overshoot"], evaluation["undershoot"]) == (0, 36)
    assert "counted_steps" not in {problem.rule for problem in validate(folder)}


def test_an_algorithm_choice_has_prefixed_columns(tmp_path):
    part = {"trainer": STUDY["trainer"], "space": {"x": SPACE["hyperparameters"]["x"]}}
    changes = {"algorithms": {"one": part, "two": part}, "optimizer": "random"}
    study = {key: value for key, value in STUDY.items() if key not in ("trainer", "space")}
    drawn = Study.create(load_spec({**study, **changes}), tmp_path / "choice")
    drawn.run()
    drawn.close()
    data = load_landscape(tmp_path / "choice")
    query = "SELECT count(*) FROM configs WHERE (algorithm = 'one') <> (\"one.x\" IS NOT NULL)"
    assert data.sql(query).fetchall() == [(0,)]
    assert from_study(tmp_path / "choice", tmp_path, "my/choice/bowl").rows["configs"] == 8


def test_what_cannot_be_written_is_refused(finished, tmp_path):
    expect_error("unknown field", from_study, finished, tmp_path, "my/synthetic/bowl", author="me")
    expect_error("namespace/algorithm/environment", from_study, finished, tmp_path, "bowl")
    assert not list(tmp_path.iterdir())
    expect_error("no landscape", load_landscape, tmp_path)


def test_the_environment_of_the_id_is_the_studys(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "autorl.trainers.synthetic.Synthetic.check", lambda *_: None
    )  # it has no environment
    folder = run(tmp_path / "named", environment={"id": "CartPole-v1"})
    expect_error("CartPole-v1", from_study, folder, tmp_path, "my/synthetic/Acrobot-v1")
    assert from_study(folder, tmp_path, "my/synthetic/CartPole-v1").environment == "CartPole-v1"
    assert load_landscape(folder).manifest.id == "studies/synthetic/CartPole-v1"
