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
from autorl.landscapes._rules import equal_values, pairs_together
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


def test_there_are_at_least_the_fourteen_rules_and_each_is_explained():
    assert len(RULES) + len(SET_RULES) >= 14
    assert all(rule.__doc__ for rule in (*RULES.values(), *SET_RULES.values()))


# the order of the faults is that of the list in the reference


def copy_seed(frame, source=1, target=0, configs=range(12)):
    for number in configs:
        values = frame.loc[frame.run_id == 10 * number + source, "eval_return"].to_numpy()
        frame.loc[frame.run_id == 10 * number + target, "eval_return"] = values
    return frame


def test_1_a_seed_that_copies_another(tmp_path):
    folder = write(tmp_path / "x", altered("evals", copy_seed))
    assert_found(folder, "independent_seeds", "seed 1 repeats seed 0 in 12 of 12 configurations")
    assert not [problem for problem in validate(folder) if problem.rule == "distinct_curves"]


def test_2_two_data_sets_with_the_same_scores(tmp_path):
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


def test_3_values_of_another_environment(tmp_path):
    rows = altered("evals", where("eval_return", lambda frame: frame.run_id == 3, 2571.0))
    assert_found(
        write(tmp_path / "x", rows),
        "bounded_returns",
        "4 values lie outside [0.0, 500.0], from 2571.0",
    )


@pytest.mark.parametrize("steps", [655, 300])
def test_4_nominal_steps_that_are_not_counted_steps(tmp_path, steps):
    rows = altered("runs", lambda frame: frame.assign(environment_steps=steps))
    assert_found(write(tmp_path / "x", rows), "counted_steps", "in 60 runs")


def test_5_steps_that_reset_repeat_or_are_unknown(tmp_path):
    repeated = altered(
        "evals", lambda frame: frame.assign(step=frame.step.where(frame.run_id != 4, 100))
    )
    assert_found(
        write(tmp_path / "a", repeated),
        "steps_increase",
        "3 evaluations do not come after the one before",
    )
    unknown = altered(
        "evals", where("step", lambda frame: (frame.run_id == 4) & (frame.step == 400), 401)
    )
    assert_found(write(tmp_path / "b", unknown), "steps_increase", "does not list: [401]")
    early = altered("runs", where("start_step", lambda frame: frame.run_id == 4, 200))
    assert_found(
        write(tmp_path / "c", early), "steps_increase", "2 evaluations lie at or before the start"
    )


def test_6_copied_curves_and_shared_evaluation_episodes(tmp_path):
    few = altered("evals", lambda frame: copy_seed(frame, configs=[2, 5]))
    assert_found(
        write(tmp_path / "a", few),
        "distinct_curves",
        "seeds 0 and 1 have the same curve in 2 of 12",
    )

    def share_half(frame):
        for number in range(12):
            copied = (frame.run_id == 10 * number + 1) & frame.step.isin([100, 300])
            source = (frame.run_id == 10 * number) & frame.step.isin([100, 300])
            frame.loc[copied, "eval_return"] = frame.loc[source, "eval_return"].to_numpy()
        return frame

    assert_found(
        write(tmp_path / "b", altered("evals", share_half)),
        "distinct_curves",
        "share 50% of their evaluations",
    )


def test_6_saturated_curves_are_no_fault(tmp_path):
    rows = altered(
        "evals",
        lambda frame: frame.assign(eval_return=frame.eval_return.where(frame.run_id >= 60, 500.0)),
    )
    assert validate(write(tmp_path / "x", rows)) == []


def test_7_a_curve_cut_short_without_a_status(tmp_path):
    cut = altered(
        "evals",
        lambda frame: frame[(frame.run_id != 23) & ((frame.run_id != 24) | (frame.step < 300))],
    )
    assert_found(
        write(tmp_path / "a", cut),
        "complete_or_explained",
        "2 runs are marked done without all evaluations, e.g. run 23: 4",
    )
    unknown = altered("runs", where("status", lambda frame: frame.run_id == 3, "finished"))
    assert_found(write(tmp_path / "b", unknown), "complete_or_explained", "'finished'")
    explained = altered("runs", where("status", lambda frame: frame.run_id == 11, "timeout"))
    explained = altered(
        "evals", lambda frame: frame[(frame.run_id != 11) | (frame.step < 300)], explained
    )
    assert validate(write(tmp_path / "c", explained)) == []


def test_8_last_rows_that_belong_to_other_runs(tmp_path):
    def shift(frame):
        last = frame.step == 400
        frame.loc[last, "eval_return"] = np.roll(frame.loc[last, "eval_return"].to_numpy(), 25)
        return frame

    rows = altered("evals", shift)
    assert_found(
        write(tmp_path / "x", rows),
        "adjacent_checkpoints_agree",
        "at step 400 rank unlike those at step 300",
    )


def test_9_configurations_that_are_not_their_hash(tmp_path):
    changed = altered(
        "configs", lambda frame: frame.assign(width=frame.width.where(frame.config_id != 3, 9))
    )
    assert_found(
        write(tmp_path / "a", changed),
        "configs_keyed_by_hash",
        "configuration 3 does not have the hash",
    )

    def twice(frame):
        frame.loc[frame.config_id == 5, frame.columns[1:]] = frame.loc[
            frame.config_id == 4, frame.columns[1:]
        ].to_numpy()
        return frame

    assert_found(
        write(tmp_path / "b", altered("configs", twice)),
        "configs_keyed_by_hash",
        "4 and 5 are the same",
    )
    outside = altered(
        "configs", lambda frame: frame.assign(width=frame.width.where(frame.config_id != 3, 65))
    )
    assert_found(
        write(tmp_path / "c", outside),
        "configs_keyed_by_hash",
        "configuration 3 is not in the space",
    )


def test_10_one_task_under_two_names(tmp_path):
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


def test_11_metadata_that_describes_other_files(tmp_path):
    folder = write(tmp_path / "a")
    text = (folder / "croissant.json").read_text().replace('"eval_return"', '"performance"')
    (folder / "croissant.json").write_text(text)
    assert_found(folder, "files_match_manifest", "croissant.json does not describe these files")
    for text, message in (("{", "not JSON"), ("{}", "not a description")):
        (folder / "croissant.json").write_text(text)
        assert_found(folder, "files_match_manifest", message)
    other = write(tmp_path / "b", tables(seed=3))
    (write(tmp_path / "c") / "evals/part-00000.parquet").write_bytes(
        (other / "evals/part-00000.parquet").read_bytes()
    )
    assert_found(tmp_path / "c", "files_match_manifest", "its SHA-256 differs")
    counted = edit_manifest(write(tmp_path / "d"), rows={"configs": 13})
    assert_found(counted, "files_match_manifest", "configs has 12 rows, the manifest says 13")
    respaced = edit_manifest(write(tmp_path / "e"), space_hash="0")
    assert_found(respaced, "files_match_manifest", "space.yaml is not the space")
    torn = write(tmp_path / "f")
    (torn / "runs.parquet").write_bytes(b"torn")
    assert_found(
        torn, "files_match_manifest", "runs.parquet is not the file the manifest describes"
    )


def test_12_a_missing_value_in_a_run_that_is_not_marked(tmp_path):
    lost = altered(
        "evals", lambda frame: frame.assign(eval_return=frame.eval_return.mask(frame.run_id == 14))
    )
    assert_found(
        write(tmp_path / "a", lost),
        "failures_marked",
        "4 values are missing in runs that are not marked",
    )
    marked = altered("runs", where("status", lambda frame: frame.run_id == 14, "crash"), lost)
    assert not [
        problem
        for problem in validate(write(tmp_path / "b", marked))
        if problem.rule == "failures_marked"
    ]


def rewrite(path, query):
    """Replace a Parquet file by a query over its `old` content."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE old AS SELECT * FROM read_parquet('{path}')")
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def test_13_lists_as_text_and_wrong_types(tmp_path):
    listed = altered("configs", lambda frame: frame.assign(activation="['tanh', 'relu']"))
    assert_found(write(tmp_path / "a", listed), "typed_columns", "configs.activation holds lists")
    folder = write(tmp_path / "b")
    rewrite(folder / "runs.parquet", "SELECT * REPLACE (CAST(seed AS VARCHAR) AS seed) FROM old")
    assert_found(folder, "typed_columns", "runs.seed is VARCHAR, expected INTEGER")
    folder = write(tmp_path / "c")
    rewrite(folder / "runs.parquet", "SELECT * EXCLUDE (wall_seconds), 'x' AS note FROM old")
    assert_found(folder, "typed_columns", "runs.wall_seconds is missing, expected DOUBLE")
    assert_found(folder, "typed_columns", "runs.note is VARCHAR, expected no such column")
    empty = altered("runs", where("algorithm", lambda frame: frame.run_id == 0, None))
    assert_found(write(tmp_path / "d", empty), "typed_columns", "runs.algorithm is null in 1 row")


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


def test_rows_that_point_nowhere(tmp_path):
    lost = altered("runs", lambda frame: frame[frame.run_id != 13])
    assert_found(
        write(tmp_path / "a", lost),
        "references_resolve",
        "evals has 4 rows with a run_id that is not in runs",
    )
    twice = altered("runs", where("run_id", lambda frame: frame.run_id == 1, 0))
    assert_found(
        write(tmp_path / "b", twice),
        "references_resolve",
        "runs has 1 row with a run_id that another row has",
    )


def test_seeds_in_the_wrong_role(tmp_path):
    swapped = altered("runs", where("seed_role", lambda frame: frame.seed == 100, "tuning"))
    assert_found(
        write(tmp_path / "a", swapped), "seed_roles_agree", "seed 100 is used as a tuning seed"
    )
    unknown = altered("runs", where("seed_role", lambda frame: frame.seed == 100, "validation"))
    assert_found(write(tmp_path / "b", unknown), "seed_roles_agree", "'validation'")


def test_a_continued_run_is_complete_from_its_start(tmp_path):
    rows = tables()
    child = rows.runs.iloc[[0]].assign(run_id=999, config_id=1, parent_run=0, start_step=200)
    evals = rows.evals[(rows.evals.run_id == 0) & (rows.evals.step > 200)]
    rows = dataclasses.replace(
        rows,
        runs=pd.concat([rows.runs, child]),
        evals=pd.concat([rows.evals.drop(evals.index), evals.assign(run_id=999)]),
    )
    assert not [
        p
        for p in validate(write(tmp_path / "x", rows))
        if p.rule in ("complete_or_explained", "steps_increase")
    ]


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


@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_seeds_that_are_together_are_counted_as_one_by_one(seed):
    """A landscape whose thousand seeds were copies was not validated within 200 s."""
    rng = np.random.default_rng(seed)
    groups = [rng.permutation(7)[: rng.integers(1, 8)] for _ in range(5_000)]
    expected = np.zeros((7, 7), dtype=int)
    for members in groups:
        if len(members) > 1:
            expected[np.ix_(members, members)] += 1
    numbers = np.repeat(np.arange(len(groups)), [len(members) for members in groups])
    assert (pairs_together(numbers, np.concatenate(groups), 7) == expected).all()
    assert (pairs_together(numbers[:0], numbers[:0], 7) == 0).all()
