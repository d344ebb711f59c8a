"""Reading: SQL, best, top, curves, the grid of scores; failures and stops; brute force as oracle."""

import dataclasses
import gc
import multiprocessing
import os
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from landscape_samples import SPACE, STEPS, N, configs, manifest, tables
from patience import PATIENCE
from refusals import expect_error

from autorl.core.types import InputError
from autorl.landscapes import (
    Landscape,
    Objective,
    Tables,
    append,
    list_landscapes,
    load_landscape,
    write_landscape,
)
from autorl.statistics import cvar, iqm


@pytest.fixture(scope="module")
def rows():
    return tables()


@pytest.fixture(scope="module")
def landscape(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("landscapes") / "sample/dqn/CartPole-v1"
    write_landscape(folder, rows, manifest(), SPACE)
    return Landscape(folder)


def rewritten(tmp_path, rows, **changes):
    write_landscape(tmp_path / "x", rows, manifest(**changes), SPACE, replace=True)
    return Landscape(tmp_path / "x")


def values(rows, config_id, role, step):
    runs = rows.runs[
        (rows.runs.config_id == config_id) & ((rows.runs.seed_role == role) | (role == "all"))
    ]
    evals = rows.evals[rows.evals.run_id.isin(runs.run_id) & (rows.evals.step == step)]
    return evals.eval_return.to_numpy(np.float32).astype(np.float64)


@pytest.mark.parametrize("role", ["tuning", "test", "all"])
@pytest.mark.parametrize("by", ["mean", "iqm", "median", "quantile(0.25)", cvar(0.5)])
@pytest.mark.parametrize("step", [None, 200])
def test_best_and_top_equal_brute_force(landscape, rows, role, by, step):
    from autorl.statistics import parse_aggregate

    aggregate = parse_aggregate(by)
    scores = {
        number: aggregate(values(rows, number, role, step or STEPS[-1])) for number in range(N)
    }
    ranking = sorted(scores, key=scores.get, reverse=True)
    chosen = landscape.best(role, by, step)
    assert chosen.config_id == ranking[0]
    assert chosen.value == pytest.approx(scores[ranking[0]])
    assert chosen.config == configs()[ranking[0]]
    assert chosen.step == (step or STEPS[-1])
    for name in ("tuning", "test"):
        expected = aggregate(values(rows, ranking[0], name, chosen.step))
        assert getattr(chosen, name) == pytest.approx(expected)
    top = landscape.top(4, role, by, step)
    assert top.config_id.tolist() == ranking[:4]
    assert top[f"test_{aggregate.name}"][0] == pytest.approx(chosen.test)
    assert set(SPACE.names) <= set(top)


def test_curves_are_the_stored_ones(landscape, rows):
    frame = landscape.curves(3)
    assert frame.seed.unique().tolist() == [0, 1, 2, 100, 101]
    runs = rows.runs[rows.runs.config_id == 3]
    expected = rows.evals[rows.evals.run_id.isin(runs.run_id)].sort_values(["run_id", "step"])
    scores = expected.eval_return.astype(np.float32).tolist()
    assert frame.eval_return.tolist() == pytest.approx(scores)
    assert frame.step.tolist() == list(STEPS) * 5
    expect_error("no configuration 99", landscape.curves, 99)


def test_curves_of_runs_in_any_order(tmp_path, rows):
    """Run ids that do not follow configurations and seeds, evaluations in several parts, and a run without any."""
    order = np.random.default_rng(0).permutation(len(rows.runs))
    renamed = dict(zip(rows.runs.run_id, 1000 + 7 * order, strict=True))
    names = ("runs", "evals", "segments")
    mixed = {name: rows[name].assign(run_id=rows[name].run_id.map(renamed)) for name in names}
    mixed["evals"] = mixed["evals"][mixed["evals"].run_id != renamed[10 * 4]]
    whole = dataclasses.replace(rows, **mixed)

    def part(configs, chosen):
        parts = {name: frame[chosen(frame.run_id < 1000 + 7 * 30)] for name, frame in mixed.items()}
        return Tables(configs, **parts)

    first = part(rows.configs, lambda early: early)
    write_landscape(tmp_path / "x", first, manifest(), SPACE)
    append(tmp_path / "x", part(rows.configs.iloc[:0], lambda early: ~early))
    data = Landscape(tmp_path / "x")
    for number in range(N):
        frame = data.curves(number)
        runs = whole.runs[whole.runs.config_id == number]
        expected = whole.evals.merge(runs, on="run_id").sort_values(["seed", "run_id", "step"])
        for name in ("run_id", "seed", "seed_role", "status", "step"):
            assert frame[name].tolist() == expected[name].tolist()
        assert frame.eval_return.tolist() == expected.eval_return.astype(np.float32).tolist()
    assert sorted(data.curves(4).seed.unique()) == [1, 2, 100, 101]


def test_landscapes_of_one_process_do_not_see_each_other(tmp_path, landscape, rows):
    other = rewritten(tmp_path, dataclasses.replace(rows, evals=rows.evals.assign(eval_return=1.0)))
    assert other.sql("SELECT max(value) FROM scores").fetchall() == [(1.0,)]
    assert landscape.sql("SELECT max(value) FROM scores").fetchall()[0][0] > 100
    assert other.best().value == 1.0 < landscape.best().value
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda data: (data.best().value, len(data.curves(3))), [other, landscape] * 20)
        )
    assert found == [(1.0, 20), (landscape.best().value, 20)] * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_opens_landscapes_of_its_own(landscape):
    expected = landscape.best().value
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(Landscape(landscape.path).best().value))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert answers.get() == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_may_collect_landscapes_of_its_parent(landscape):
    """A DuckDB that ends in a child waits for threads that only its parent has: a SIGSEGV."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            garbage = Landscape(landscape.path)
            garbage.sql("SELECT count(*) FROM runs").fetchall()
            garbage.top(2)
            garbage.itself = garbage
        del garbage
        child = multiprocessing.get_context("fork").Process(target=gc.collect)
        child.start()
        child.join()
    finally:
        gc.enable()
    assert child.exitcode == 0


def test_grid_lookup_equals_sql(landscape):
    grid = landscape.grid
    assert grid.values.shape == (N, 5, len(STEPS))
    assert grid.values.dtype == np.float32
    assert grid.roles == ("tuning",) * 3 + ("test",) * 2
    expected = landscape.sql("SELECT config_id, seed, step, value FROM scores").fetchnumpy()
    found = grid.lookup(expected["config_id"], expected["seed"], expected["step"])
    assert np.array_equal(found, expected["value"])


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda data: data.best("validation"), "no seeds of role 'validation'"),
        (lambda data: data.best(by="max"), "unknown name 'max'"),
        (lambda data: data.best(step=250), "the nearest is 200"),
        (lambda data: data.grid.lookup(0, 5, 100), "seed: 5 is not"),
        (lambda data: data.grid.lookup([0, 99], 0, 100), "config_id: 99 is not"),
        (lambda data: data.sql("SELECT nonsense FROM runs"), "nonsense"),
        (lambda data: data.sql("CREATE TABLE x AS SELECT 1"), "one query that reads"),
        (lambda data: data.sql(""), "one query that reads"),
    ],
)
def test_refusals(landscape, call, rule):
    expect_error(rule, call, landscape)


def crash(rows, run_id, from_step, keep_rows):
    """Run `run_id` fails at `from_step`: its later values are empty, or its later rows are absent."""
    lost = (rows.evals.run_id == run_id) & (rows.evals.step >= from_step)
    evals = rows.evals[~lost]
    if keep_rows:
        evals = rows.evals.assign(eval_return=rows.evals.eval_return.mask(lost))
    status = rows.runs.status.mask(rows.runs.run_id == run_id, "crash")
    return dataclasses.replace(rows, evals=evals, runs=rows.runs.assign(status=status))


@pytest.mark.parametrize("keep_rows", [True, False])
@pytest.mark.parametrize("penalty", [None, -7.0])
def test_a_failed_run_scores_the_penalty_and_is_never_dropped(
    tmp_path, landscape, rows, keep_rows, penalty
):
    best = landscape.best().config_id
    failed = crash(rows, 10 * best, 300, keep_rows)
    data = rewritten(tmp_path, failed, objective=Objective(penalty=penalty))
    worst = float(rows.evals.eval_return.astype(np.float32).min())
    expected = worst if penalty is None else penalty
    row = data.grid.values[best, 0]
    assert row[:2].tolist() == landscape.grid.values[best, 0, :2].tolist()
    assert row[2:].tolist() == pytest.approx([expected, expected])
    mean = data.sql(
        f"SELECT avg(value) FROM scores WHERE config_id = {best} AND step = 400 AND seed_role = 'tuning'"
    )
    others = landscape.grid.values[best, 1:3, -1].astype(float)
    assert mean.fetchall()[0][0] == pytest.approx((expected + others.sum()) / 3)
    assert data.best().config_id != best


def test_a_stopped_run_keeps_its_last_value(tmp_path, landscape, rows):
    failed = crash(rows, 20, 300, keep_rows=False)
    runs = failed.runs.assign(status=failed.runs.status.replace("crash", "stopped"))
    data = rewritten(tmp_path, dataclasses.replace(failed, runs=runs))
    first, second = landscape.grid.values[2, 0, :2]
    assert data.grid.values[2, 0].tolist() == [first, second, second, second]


def test_an_incomplete_configuration_does_not_compete(tmp_path, landscape, rows):
    best = landscape.best().config_id
    lost = dataclasses.replace(rows, runs=rows.runs[rows.runs.run_id != 10 * best])
    data = rewritten(tmp_path, lost)
    assert np.isnan(data.grid.values[best, 0]).all()
    assert data.best("tuning").config_id != best
    assert data.best("test").config_id == landscape.best("test").config_id
    nothing = dataclasses.replace(rows, runs=rows.runs[rows.runs.seed != rows.runs.config_id % 3])
    with pytest.raises(InputError, match="no configuration has a score for every tuning seed"):
        rewritten(tmp_path, nothing).best("tuning")


def test_floor_comes_before_any_aggregate(tmp_path, rows):
    scores = rows.evals.eval_return.mask(rows.evals.run_id == 0, -1e22)
    low = dataclasses.replace(rows, evals=rows.evals.assign(eval_return=scores))
    data = rewritten(tmp_path, low, objective=Objective(floor=-200.0))
    assert data.grid.values[0, 0].tolist() == [-200.0] * 4
    assert data.grid.values.min() == -200.0
    assert data.sql("SELECT min(eval_return) FROM evals").fetchall()[0][0] < -1e21


def test_minimise_turns_the_ranking_around(tmp_path, rows):
    data = rewritten(tmp_path, rows, objective=Objective(direction="minimize"))
    scores = {number: -iqm(-values(rows, number, "tuning", 400)) for number in range(N)}
    chosen = data.best()
    assert chosen.config_id == min(scores, key=scores.get)
    assert chosen.value == pytest.approx(min(scores.values()))
    assert chosen.value > 0


def test_continued_runs_are_not_mistaken_for_runs_from_scratch(tmp_path, landscape, rows):
    child = rows.runs.iloc[[0]].assign(run_id=999, config_id=1, parent_run=0, start_step=200)
    evals = rows.evals.iloc[2:4].assign(run_id=999, eval_return=499.0)
    more = {"runs": pd.concat([rows.runs, child]), "evals": pd.concat([rows.evals, evals])}
    data = rewritten(tmp_path, dataclasses.replace(rows, **more))
    assert np.array_equal(data.grid.values, landscape.grid.values)
    assert len(data.curves(1)) == 22


def test_two_runs_of_one_configuration_and_seed_are_an_error(tmp_path, rows):
    twice = rows.runs.assign(seed=rows.runs.seed.replace(1, 0))
    expect_error("trained twice", rewritten(tmp_path, dataclasses.replace(rows, runs=twice)).best)


def test_load_and_list(landscape):
    root = landscape.path.parents[2]
    assert load_landscape("sample/dqn/CartPole-v1", root).manifest == landscape.manifest
    assert load_landscape(landscape.path).manifest == landscape.manifest
    assert list_landscapes(root) == {"sample/dqn/CartPole-v1": landscape.path}
    expect_error("did you mean 'sample/dqn/CartPole-v1'", load_landscape, "sample/dqn/Pong", root)
    assert "sample/dqn/CartPole-v1" in repr(landscape)


def test_missing_and_torn_files_are_one_clear_line(tmp_path, rows):
    data = rewritten(tmp_path, rows)
    (tmp_path / "x" / "runs.parquet").write_bytes(b"torn")
    expect_error("cannot be read", data.best)
    (tmp_path / "x" / "runs.parquet").unlink()
    expect_error(r"runs.parquet", Landscape(tmp_path / "x").best)


def test_a_query_larger_than_its_memory_uses_a_private_folder(landscape, monkeypatch):
    monkeypatch.setattr("autorl.landscapes._views.GUARDED_BYTES", 24 * 2**20)
    data = Landscape(landscape.path)
    asked = "SELECT count(*) FROM (SELECT range AS n FROM range(3000000) ORDER BY hash(n) OFFSET 1)"
    assert data.sql(asked).fetchall() == [(2999999,)]
    ((folder,),) = data.sql("SELECT current_setting('temp_directory')").fetchall()
    assert stat.S_IMODE(os.stat(folder).st_mode) == stat.S_IRWXU
    del data
    gc.collect()
    assert not os.path.exists(folder)


ENDLESS = {
    # 10**18 rows: thirty years of a core.
    "rows": f"SELECT sum(a.range * b.range) AS total FROM range({10**9}) AS a, range({10**9}) AS b",
    # Its columns are computed when it is asked, before a row is fetched.
    "pivot": f"PIVOT (SELECT a.range % 2 AS kind, b.range AS n FROM range({10**9}) AS a, "
    f"range({10**9}) AS b) ON kind USING sum(n)",
    # DuckDB looks for no interrupt inside a call.
    "one call": "SELECT length(repeat('x', 4000000000))",
}


@pytest.mark.parametrize("case", ENDLESS)
@pytest.mark.parametrize("limit", [10, None])
def test_a_query_that_would_not_end_is_ended_at_its_limit(landscape, case, limit):
    with pytest.raises(InputError) as caught:
        list(landscape.rows(ENDLESS[case], limit, seconds=0.05)[1])
    assert caught.value.key == "sql"
    assert "no answer within 0.05 seconds" in str(caught.value)
    assert "--seconds" in str(caught.value)


def test_a_query_that_takes_more_memory_than_it_may_is_ended(landscape, monkeypatch):
    monkeypatch.setattr("autorl.landscapes.query_process.QUERY_BYTES", 2**28)
    assert list(landscape.rows("SELECT 1 AS x", seconds=None)[1]) == [(1,)]
    with pytest.raises(InputError) as caught:
        list(landscape.rows("SELECT list_sum(range(50000000))", seconds=None)[1])
    assert caught.value.key == "sql"
    assert "emory" in str(caught.value)


@pytest.mark.slow  # the limit has room for a process that a busy machine starts
def test_what_a_reader_does_between_rows_takes_none_of_the_limit(landscape):
    # More than a pipe holds: the process waits for its reader longer than it may take.
    _, rows = landscape.rows("SELECT range FROM range(100000)", seconds=20.0)
    assert next(rows) == (0,)
    time.sleep(20.1)
    assert sum(1 for _ in rows) == 99_999


def test_the_process_of_an_answer_ends_with_its_reader(landscape, monkeypatch):
    started = []

    class Noted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    _, rows = landscape.rows("SELECT range FROM range(100000000)")
    next(rows)
    assert [process.poll() for process in started] == [None]
    del rows
    assert [process.returncode for process in started] == [-signal.SIGKILL]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_of_a_query_is_a_time(landscape, seconds):
    expect_error("seconds: expected a number above 0", landscape.rows, "SELECT 1", seconds=seconds)
