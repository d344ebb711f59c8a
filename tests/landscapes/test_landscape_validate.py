"""Every integrity rule finds its planted fault, and a sound data set passes all of them."""

import dataclasses
import json
from itertools import combinations

import duckdb
import numpy as np
import pandas as pd
import pytest
from landscape_samples import SPACE, manifest, tables

from autorl.core.types import FrozenMap, InputError
from autorl.landscapes import Landscape, Manifest, write_landscape
from autorl.landscapes._rules import equal_values
from autorl.landscapes.validate import RULES, SET_RULES, validate


def write(folder, rows=None, **changes):
    write_landscape(folder, rows if rows is not None else tables(), manifest(**changes), SPACE)
    return folder


def altered(table, function, rows=None):
    """The sample tables with one of them passed through `function`."""
    rows = rows if rows is not None else tables()
    return dataclasses.replace(rows, **{table: function(rows[table].copy())})


def where(column, mask, value):
    def change(frame):
        chosen = mask(frame)
        frame[column] = frame[column].astype(object).where(~chosen, value).infer_objects()
        return frame

    return change


def edit_manifest(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def assert_found(folder, rule, message):
    problems = [problem for problem in validate(folder) if problem.rule == rule]
    assert problems, f"{rule} found nothing"
    assert any(message in problem.message for problem in problems), [
        str(problem) for problem in problems
    ]


def test_a_sound_data_set_has_no_problems(tmp_path):
    assert validate(write(tmp_path / "x")) == []


def test_every_rule_is_explained_and_has_a_fault():
    assert all(rule.__doc__ for rule in (*RULES.values(), *SET_RULES.values()))
    assert set(RULES) == {*FAULTS, "files_match_manifest", "provenance_recorded"}


def copy_seed(frame, configs=range(12), steps=(100, 200, 300, 400)):
    """Seed 0 of configurations has the values of seed 1 at some steps."""
    for number in configs:
        kept = frame.step.isin(steps)
        values = frame.loc[(frame.run_id == 10 * number + 1) & kept, "eval_return"].to_numpy()
        frame.loc[(frame.run_id == 10 * number) & kept, "eval_return"] = values
    return frame


def shift_last(frame):
    last = frame.step == 400
    frame.loc[last, "eval_return"] = np.roll(frame.loc[last, "eval_return"].to_numpy(), 25)
    return frame


def twice(frame):
    rest = frame.columns[1:]
    frame.loc[frame.config_id == 5, rest] = frame.loc[frame.config_id == 4, rest].to_numpy()
    return frame


def of_run(*numbers, step=None):
    return lambda f: f.run_id.isin(numbers) & (True if step is None else f.step == step)


def width_of_3(value):
    return where("width", lambda f: f.config_id == 3, value)


def steps(count):
    return lambda f: f.assign(environment_steps=count)


# Faults of published data sets and their kin, by rule: the table that is changed, how, and what is said.
FAULTS = {
    "independent_seeds": [("evals", copy_seed, "seed 1 repeats seed 0 in 12 of 12 config")],
    "bounded_returns": [
        ("evals", where("eval_return", of_run(3), 2571.0), "4 values lie outside [0.0, 500.0], ")
    ],
    "counted_steps": [("runs", steps(655), "in 60 runs"), ("runs", steps(300), "in 60 runs")],
    "steps_increase": [
        ("evals", where("step", of_run(4), 100), "3 evaluations do not come after the one"),
        ("evals", where("step", of_run(4, step=400), 401), "does not list: [401]"),
        ("runs", where("start_step", of_run(4), 200), "2 evaluations lie at or before the start"),
    ],
    "distinct_curves": [
        ("evals", lambda f: copy_seed(f, [2, 5]), "seeds 0 and 1 have the same curve in 2 of 12"),
        ("evals", lambda f: copy_seed(f, steps=(100, 300)), "share 50% of their evaluations"),
    ],
    "complete_or_explained": [
        ("evals", lambda f: f[(f.run_id != 23) & ((f.run_id != 24) | (f.step < 300))], "run 23: 4"),
        ("runs", where("status", of_run(3), "finished"), "'finished'"),
    ],
    "adjacent_checkpoints_agree": [("evals", shift_last, "at step 400 rank unlike those at ")],
    "configs_keyed_by_hash": [
        ("configs", width_of_3(9), "configuration 3 does not have the hash"),
        ("configs", width_of_3(65), "configuration 3 is not in the space"),
        ("configs", twice, "4 and 5 are the same"),
    ],
    "failures_marked": [
        ("evals", where("eval_return", of_run(14), np.nan), "4 values are missing in runs that")
    ],
    "typed_columns": [
        ("configs", lambda f: f.assign(activation="['tanh', 'relu']"), "activation holds lists"),
        ("runs", where("algorithm", of_run(0), None), "runs.algorithm is null in 1 row"),
    ],
    "references_resolve": [
        ("runs", lambda f: f[f.run_id != 13], "evals has 4 rows with a run_id that is not in"),
        ("runs", where("run_id", of_run(1), 0), "runs has 1 row with a run_id that another row"),
    ],
    "seed_roles_agree": [
        ("runs", where("seed_role", lambda f: f.seed == 100, "tuning"), "100 is used as a tuning"),
        ("runs", where("seed_role", lambda f: f.seed == 100, "validation"), "'validation'"),
    ],
}


@pytest.mark.parametrize(
    ("rule", "fault"), [(rule, fault) for rule, faults in FAULTS.items() for fault in faults]
)
def test_a_planted_fault_is_found(tmp_path, rule, fault):
    table, change, message = fault
    assert_found(write(tmp_path / "x", altered(table, change)), rule, message)


def test_a_copied_seed_is_one_fault(tmp_path):
    folder = write(tmp_path / "x", altered("evals", copy_seed))
    assert "distinct_curves" not in {problem.rule for problem in validate(folder)}


def test_two_data_sets_with_the_same_scores(tmp_path):
    one = write(tmp_path / "a")
    shifted = tables()
    renumbered = {
        name: shifted[name].assign(run_id=lambda frame: 1000 - frame.run_id)
        for name in ("runs", "evals", "segments")
    }
    shifted = dataclasses.replace(shifted, **renumbered)
    two = write(tmp_path / "b", shifted, id="sample/a2c/CartPole-v1", algorithm="a2c")
    other = write(tmp_path / "c", tables(seed=1), id="sample/ppo/CartPole-v1", algorithm="ppo")
    found = [problem for problem in validate([one, two, other]) if problem.rule == "distinct_data"]
    assert [str(problem) for problem in found] == [
        "sample/a2c/CartPole-v1: distinct_data: holds the same scores as sample/dqn/CartPole-v1"
    ]


def test_saturated_curves_are_no_fault(tmp_path):
    rows = altered("evals", where("eval_return", lambda f: f.run_id < 60, 500.0))
    assert validate(write(tmp_path / "x", rows)) == []


def test_a_run_that_says_why_it_lacks_values_is_no_fault(tmp_path):
    cut = altered("runs", where("status", of_run(11), "timeout"))
    cut = altered("evals", lambda f: f[(f.run_id != 11) | (f.step < 300)], cut)
    assert validate(write(tmp_path / "a", cut)) == []
    lost = altered("runs", where("status", of_run(14), "crash"))
    lost = altered("evals", where("eval_return", of_run(14), np.nan), lost)
    assert validate(write(tmp_path / "b", lost)) == []


def test_one_task_under_two_names(tmp_path):
    names = ("LunarLanderContinuous-v2", "ContinuousLunarLander-v2", "LunarLander-v2")
    folders = [
        write(
            tmp_path / name,
            tables(environment=name, seed=place),
            environment=name,
            id=f"sample/dqn/{name}",
        )
        for place, name in enumerate(names)
    ]
    found = [problem for problem in validate(folders) if problem.rule == "one_name_per_task"]
    assert [problem.landscape for problem in found] == ["sample/dqn/ContinuousLunarLander-v2"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "croissant.json",
            lambda old: old.replace(b'"eval_return"', b'"performance"'),
            "croissant.json does not describe these files",
        ),
        ("croissant.json", lambda old: b"{", "not JSON"),
        ("croissant.json", lambda old: b"{}", "not a description"),
        ("evals/part-00000.parquet", lambda old: old + b" ", "its SHA-256 differs"),
        (
            "runs.parquet",
            lambda old: b"torn",
            "runs.parquet is not the file the manifest describes",
        ),
        (
            "manifest.json",
            lambda old: json.dumps({**json.loads(old), "rows": {"configs": 13}}).encode(),
            "configs has 12 rows, the manifest says 13",
        ),
        (
            "manifest.json",
            lambda old: json.dumps({**json.loads(old), "space_hash": "0"}).encode(),
            "space.yaml is not the space",
        ),
    ],
)
def test_metadata_that_describes_other_files(tmp_path, file, change, message):
    path = write(tmp_path / "x") / file
    path.write_bytes(change(path.read_bytes()))
    assert_found(tmp_path / "x", "files_match_manifest", message)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("* REPLACE (CAST(seed AS VARCHAR) AS seed)", "runs.seed is VARCHAR, expected INTEGER"),
        ("* EXCLUDE (wall_seconds)", "runs.wall_seconds is missing, expected DOUBLE"),
        ("*, 'x' AS note", "runs.note is VARCHAR, expected no such column"),
    ],
)
def test_columns_of_other_types(tmp_path, columns, message):
    path = write(tmp_path / "x") / "runs.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE old AS SELECT * FROM read_parquet('{path}')")
        connection.execute(f"COPY (SELECT {columns} FROM old) TO '{path}' (FORMAT parquet)")
    assert_found(tmp_path / "x", "typed_columns", message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"packages": FrozenMap(adastop={"version": "0.1.3"})},
            "package adastop is identified by its version alone",
        ),
        ({"packages": FrozenMap()}, "neither packages, sources nor a commit"),
        ({"sources": (FrozenMap(path="a.csv"),)}, "source 'a.csv' has no sha256"),
        ({"licence": ""}, "no licence"),
    ],
)
def test_14_provenance_without_a_hash(tmp_path, changes, message):
    assert_found(write(tmp_path / "x", **changes), "provenance_recorded", message)


def test_a_continued_run_is_complete_from_its_start(tmp_path):
    rows = tables()
    child = rows.runs.iloc[[0]].assign(run_id=999, config_id=1, parent_run=0, start_step=200)
    evals = rows.evals[(rows.evals.run_id == 0) & (rows.evals.step > 200)]
    rows = dataclasses.replace(
        rows,
        runs=pd.concat([rows.runs, child]),
        evals=pd.concat([rows.evals.drop(evals.index), evals.assign(run_id=999)]),
    )
    found = {problem.rule for problem in validate(write(tmp_path / "x", rows))}
    assert not found & {"complete_or_explained", "steps_increase"}


def test_a_folder_that_is_no_landscape_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="not a landscape"):
        validate(tmp_path)
    assert Manifest.read(write(tmp_path / "x")).id == "sample/dqn/CartPole-v1"


def test_equal_evaluations_are_those_of_every_pair_compared():
    rng = np.random.default_rng(3)
    for size in (3, 30, 3000):
        values = rng.integers(0, size, (40, 5, 4)).astype(np.float32)
        values[rng.random(values.shape) < 0.1] = np.nan
        common = np.array([1, 2], dtype=np.float32)
        equal, comparable = equal_values(values, common)
        usable = ~np.isnan(values) & ~np.isin(values, common)
        for i, j in combinations(range(5), 2):
            both = usable[:, i] & usable[:, j]
            assert comparable[i, j] == both.sum()
            assert equal[i, j] == (values[:, i] == values[:, j])[both].sum()


def test_values_that_many_evaluations_have_are_found(tmp_path):
    rows = altered("evals", where("eval_return", lambda frame: frame.step == 100, 7.0))
    data = Landscape(write(tmp_path / "x", rows))
    count = int((rows.evals.step == 100).sum())
    assert data.queries.common_values(count - 1).tolist() == [7.0]
    assert data.queries.common_values(count).tolist() == []
