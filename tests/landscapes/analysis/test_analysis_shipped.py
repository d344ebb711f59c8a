"""The shipped landscapes answer without a network, and every answer is that of brute force over their Parquet files.

Brute force: pandas and loops over the files alone, without this package's readers. Skipped in a checkout without them.
"""

import json
import socket
from itertools import combinations

import duckdb
import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.optimize import nnls
from scipy.stats import rankdata, spearmanr, trim_mean
from typer.testing import CliRunner

from autorl.cli import app
from autorl.landscapes import Landscape, analysis, list_landscapes, shipped_root
from autorl.landscapes.analysis.forest import landscape_forest
from autorl.landscapes.analysis.subsets import k_fold

ROOT = shipped_root()
SHIPPED = list_landscapes(ROOT) if ROOT is not None else {}


def has_several_starts(folder):
    files = str(folder / "runs.parquet")
    return (
        duckdb.sql(f"SELECT count(DISTINCT start_step) FROM read_parquet('{files}')").fetchall()[0][
            0
        ]
        > 1
    )


def in_phases(folder):
    return "phases" in json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["sampler"]


PHASES = [name for name, folder in SHIPPED.items() if in_phases(folder)]
FLAT = [
    name for name, folder in SHIPPED.items() if not has_several_starts(folder)
]  # a lineage is neither
GROUPS = sorted({name.rsplit("/", 1)[0] for name in FLAT})
ALIKE = {}  # environments over the same hyperparameters can be compared
for name in FLAT:
    space = yaml.safe_load((SHIPPED[name] / "space.yaml").read_text(encoding="utf-8"))
    ALIKE.setdefault((name.rsplit("/", 1)[0], *space["hyperparameters"]), []).append(name)
FIRST = {next(name for name in FLAT if name.startswith(group + "/")) for group in GROUPS}
COSTLY = [pytest.param(name, marks=[] if name in FIRST else pytest.mark.slow) for name in FLAT]
pytestmark = [
    pytest.mark.skipif(not SHIPPED, reason="no shipped landscapes in this checkout"),
    pytest.mark.usefixtures("offline"),
]


@pytest.fixture
def offline(monkeypatch):
    """Any connection is an error."""

    def refuse(*_arguments):
        raise AssertionError("a shipped landscape needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def run(*arguments):
    """A command on a shipped landscape; its standard output as JSON."""
    found = CliRunner().invoke(app, ["landscape", *(str(each) for each in arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def metric(name):
    """The objective's column of evaluations."""
    return json.loads((SHIPPED[name] / "manifest.json").read_text(encoding="utf-8"))["objective"][
        "metric"
    ]


def frame(name, table):
    """A table as it lies on disk; evaluations with the objective once more as `score`."""
    pattern = str(SHIPPED[name] / ("evals/*.parquet" if table == "evals" else f"{table}.parquet"))
    found = duckdb.sql(f"FROM read_parquet('{pattern}')").df()
    return found.assign(score=found[metric(name)]) if table == "evals" else found


def scores(name, role=None):
    """Configurations x seeds at the last step, complete rows only; a failed run has the worst recorded value."""
    evals, runs = frame(name, "evals"), frame(name, "runs")
    last = evals[evals.step == evals.step.max()][["run_id", "score"]]
    rows = runs.merge(last, on="run_id", how="left")
    failed = ~rows.status.isin(["done", "stopped"]) & rows.score.isna()
    rows.loc[failed, "score"] = evals.score.min()
    rows = rows if role is None else rows[rows.seed_role == role]
    return rows.pivot(index="config_id", columns="seed", values="score").dropna().astype(np.float32)


def subset_error(table, subset):
    """The published procedure as a loop: 1 - Spearman of the cross-validated prediction of the mean rank."""
    columns = np.stack([rankdata(column) / len(column) for column in table.T], axis=1)
    target, correlations = columns.mean(axis=1), []
    for train, test in k_fold(len(columns)):
        weights, _ = nnls(columns[train][:, subset], target[train])
        correlations.append(
            spearmanr(np.round(columns[test][:, subset] @ weights, 12), target[test]).statistic
        )
    return 1 - np.mean(correlations)


def test_list_shows_them_all():
    found = {row["landscape"]: row for row in run("list", "shipped")}
    assert set(found) == set(SHIPPED)
    for name, row in found.items():
        assert row["configurations"] == len(frame(name, "configs"))
        assert row["evaluations"] == len(frame(name, "evals"))


@pytest.mark.parametrize("name", FLAT)
def test_best(name):
    found = run("best", name, "--by", "iqm", "--seeds", "tuning")
    table = scores(name, "tuning").astype(np.float64)
    order = pd.DataFrame(
        {
            "iqm": trim_mean(table, 0.25, axis=1),
            "mean": table.mean(axis=1),
            "sd": -table.std(axis=1),
        }
    )
    order.index = table.index
    best = order.sort_values(["iqm", "mean", "sd"], ascending=False, kind="stable").index[0]
    assert found["config_id"] == best
    assert found["tuning"] == pytest.approx(order.iqm[best])
    assert found["test"] == pytest.approx(trim_mean(scores(name, "test").loc[best], 0.25))
    stored = frame(name, "configs").set_index("config_id").loc[best]
    for hyperparameter, value in found["config"].items():
        assert stored[hyperparameter] == value


@pytest.mark.parametrize("name", FLAT)
def test_curve(name):
    best = run("best", name)["config_id"]
    found = pd.DataFrame(run("curve", name, best))
    runs = frame(name, "runs").query("config_id == @best")
    expected = frame(name, "evals").merge(runs, on="run_id").sort_values(["seed", "step"])
    assert len(found) == len(expected) > 0
    for column in ("seed", "step", metric(name)):
        assert found[column].to_numpy(float) == pytest.approx(
            expected[column].to_numpy(float), nan_ok=True
        )


@pytest.mark.parametrize("name", COSTLY)
def test_importance(name):
    """The largest share of the forest, by moving that one through its range in 4,000 drawn configurations."""
    pytest.importorskip("sklearn")
    found = run("importance", name)
    assert found["configurations"] == len(scores(name))
    forest = landscape_forest(Landscape(SHIPPED[name]))
    assert sorted(forest.targets) == pytest.approx(sorted(scores(name).mean(axis=1)), rel=1e-5)
    first = found["rows"][0]
    rng = np.random.default_rng(0)
    rows = np.stack(
        [rng.choice(forest.grid(each, 512), 8000) for each in forest.names], axis=1
    ).astype(np.float32)
    column, grid = forest.column(first["hyperparameter"]), forest.grid(first["hyperparameter"], 128)
    moved = np.repeat(rows[:4000], len(grid), axis=0)
    moved[:, column] = np.tile(grid, 4000)
    shares = []
    for tree in forest.model.estimators_:
        effect = tree.predict(moved).reshape(4000, len(grid)).mean(axis=0)
        shares.append(effect.var() / tree.predict(rows).var())
    assert first["importance"] == pytest.approx(np.mean(shares), abs=0.03)


@pytest.mark.parametrize(
    "names", [names for names in ALIKE.values() if len(names) > 1], ids="+".join
)
def test_subset(names):
    size = 2 if len(names) > 2 else 1
    (found,) = run("subset", *names, "--size", size, "--tolerance", 10)
    # By configuration, in the order of the first: some count their ids from 1, others from 0.
    ids = frame(names[0], "configs").set_index("config_hash").config_id
    tables = []
    for name in names:
        hashes = frame(name, "configs").set_index("config_id").config_hash
        table = scores(name).astype(np.float64).mean(axis=1)
        table = table.set_axis(ids.reindex(hashes[table.index]).to_numpy())
        tables.append(table[table.index.notna()])
    shared = sorted(set.intersection(*(set(table.index) for table in tables)))
    table = np.stack([each[shared].to_numpy(np.float64) for each in tables], axis=1)
    environments = [name.rsplit("/", 1)[1] for name in names]
    expected = {
        frozenset(environments[column] for column in subset): subset_error(table, list(subset))
        for subset in combinations(range(len(names)), size)
    }
    assert {frozenset(row["environments"]): row["error"] for row in found["rows"]} == pytest.approx(
        expected
    )
    assert expected[frozenset(found["best"])] == pytest.approx(min(expected.values()))


@pytest.mark.parametrize("group", GROUPS)
def test_environments_over_other_hyperparameters_are_answered_apart(group):
    alike = [
        names for (algorithm, *_), names in ALIKE.items() if algorithm == group and len(names) > 1
    ]
    if not alike:
        pytest.skip("a subset needs two environments over the same hyperparameters")
    answers = run("subset", group, "--size", 1, "--tolerance", 1000)
    found = [sorted(row["environments"][0] for row in answer["rows"]) for answer in answers]
    assert found == [sorted(name.rsplit("/", 1)[1] for name in names) for names in alike]


@pytest.mark.parametrize("name", COSTLY)
def test_plot(name, tmp_path):
    """The drawn curve of the best configuration is its mean over the test seeds."""
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    file = tmp_path / "a.png"
    assert run("plot", name, "curves", "--out", file)["file"] == str(file)
    assert file.read_bytes().startswith(b"\x89PNG")
    axes = analysis.figure_of(analysis.analyse(Landscape(SHIPPED[name]), "curves")).axes[0]
    best = scores(name, "tuning").astype(np.float64).mean(axis=1).idxmax()
    drawn = next(line for line in axes.lines if line.get_label() == f"configuration {best}")
    runs = frame(name, "runs").query("config_id == @best and seed_role == 'test'")
    expected = frame(name, "evals").merge(runs, on="run_id").groupby("step").score.mean()
    assert drawn.get_xdata().tolist() == expected.index.tolist()
    assert drawn.get_ydata() == pytest.approx(expected.to_numpy(), rel=1e-5)


@pytest.mark.parametrize("name", PHASES)
def test_phases(name):
    found = run("analyse", name, "phases", "--seeds", "tuning")
    runs = frame(name, "runs").query("seed_role == 'tuning'")
    evals = frame(name, "evals").merge(runs, on="run_id")
    ends = evals.groupby("start_step").step.max()
    tables = [
        evals[(evals.start_step == start) & (evals.step == end)]
        .pivot_table(index="config_id", columns="seed", values="score")
        .dropna()
        .mean(axis=1)
        for start, end in ends.items()
    ]
    shared = sorted(set.intersection(*(set(table.index) for table in tables)))
    tables = [table[shared] for table in tables]
    assert found["ends"] == ends.tolist()
    for row in found["rows"]:
        source, target = tables[row["best_in"] - 1], tables[row["used_in"] - 1]
        missed = (target.max() - target[source.idxmax()]) / (target.max() - target.min())
        assert row["regret"] == pytest.approx(missed, abs=1e-5)
