"""Importing any CSV table by a mapping of its columns."""

import numpy as np
import pandas as pd
import pytest
from landscape_samples import SPACE, configs, imported, manifest, tables
from refusals import expect_error
from typer.testing import CliRunner

from autorl.cli.app import app
from autorl.landscapes import Landscape, write_landscape
from autorl.landscapes.export import export_table

ID = "me/ppo/CartPole-v1"
MAP = ("run=config_id", "hp.*=hyperparameter", "s=seed", "t=step", "ret=metric", "len=metric")


def table():
    rng = np.random.default_rng(0)
    rows = [
        (10 + number, 0.1**number, "ab"[number % 2], seed, step, *rng.uniform(0, 10, 2), "x")
        for number in range(4)
        for seed in (5, 6)
        for step in (300, 100, 200)
    ]
    return pd.DataFrame(rows, columns=["run", "hp.lr", "hp.net", "s", "t", "ret", "len", "host"])


def read(folder, frame, roles=MAP):
    frame.to_csv(folder / "runs.csv", index=False)
    return imported(folder / "runs.csv", folder / "out", id=ID, map=roles)


def test_columns_by_their_roles(tmp_path):
    frame = table()
    data = read(tmp_path, frame)
    assert data.manifest.rows == {"configs": 4, "runs": 8, "evals": 24, "segments": 8}
    assert (data.manifest.objective.metric, data.metrics) == ("ret", ("ret", "len"))
    found = data.grid.lookup(frame.run, frame.s, frame.t)
    assert found == pytest.approx(frame.ret.to_numpy(np.float32))
    assert dict(data.config(12)) == pytest.approx({"hp.lr": 1e-2, "hp.net": "a"})
    assert any("Columns left out: host" in note for note in data.manifest.notes)


def test_a_mapping_file_and_options_of_the_command_line(tmp_path):
    (tmp_path / "map.yaml").write_text(
        "hyperparameters: [hp.lr, hp.net]\nseed: s\nstep: t\nmetrics: [ret, len]  # the first is the objective\n"
    )
    table().to_csv(tmp_path / "runs.csv", index=False)
    words = f"{tmp_path}/runs.csv --map {tmp_path}/map.yaml --id {ID} --metric len --unit 10"
    words += f" --direction minimize --about licence=CC0-1.0 --out {tmp_path}/out"
    result = CliRunner().invoke(app, ["landscape", "import", *words.split()])
    assert result.exit_code == 0, result.output
    found = Landscape(tmp_path / "out" / ID).manifest
    assert (found.objective.metric, found.objective.direction) == ("len", "minimize")
    assert found.steps == (1000, 2000, 3000)
    assert (found.licence, found.rows["configs"]) == ("CC0-1.0", 4)


def test_a_table_of_final_scores(tmp_path):
    """Neither config_id nor seed nor step: every row is a run, equal hyperparameters are one configuration."""
    frame = pd.DataFrame({"lr": [0.1, 0.1, 0.2, 0.2], "score": [1.0, 2.0, 3.0, 5.0]})
    data = read(tmp_path, frame, ("lr=hyperparameter", "score=metric"))
    assert data.grid.values[:, :, 0].tolist() == [[1.0, 2.0], [3.0, 5.0]]
    assert data.best("all", "mean").value == 4.0


def test_our_own_flat_table_comes_back(tmp_path):
    write_landscape(tmp_path / "a", tables(), manifest(), SPACE)
    original = Landscape(tmp_path / "a")
    export_table(original, tmp_path / "flat.csv.gz")
    own = ("config_id", "seed", "seed_role", "step", "status", "wall_seconds")
    roles = [f"{name}={name}" for name in own] + ["eval_return=metric"]
    roles += [f"{name}=hyperparameter" for name in SPACE.names]
    data = imported(tmp_path / "flat.csv.gz", tmp_path / "out", id=ID, map=tuple(roles))
    assert data.manifest.seeds == original.manifest.seeds
    assert np.array_equal(data.grid.values, original.grid.values)
    assert data.config(3)["learning_rate"] == pytest.approx(configs()[3]["learning_rate"])
    assert ("interval" in data.config(3)) == ("interval" in configs()[3])


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ((), r"runs\.csv: --map: not a format that is known"),
        (("ret=reward",), "--map: unknown role 'reward'"),
        (("rett=metric",), "--map: metric: no column 'rett' in runs.csv; it has run, hp.lr"),
        (("ret=metric", "ret=step"), "the column 'ret' is metric already"),
        (("s=seed", "t=seed"), "one column can be seed, got s, t"),
        (("ret=metric",), "a column has to be a hyperparameter"),
        (("hp.lr=hyperparameter",), "a column has to be a metric"),
        (("map.txt",), r"expected column=role or a \.yaml file, got 'map\.txt'"),
        ((*MAP[1:], "hp.net=step"), "the column 'hp.net' is hyperparameter already"),
    ],
)
def test_wrong_mappings_are_refused(tmp_path, roles, message):
    expect_error(message, read, tmp_path, table(), roles)


@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        (3, "ret", "high", r"runs\.csv:5: ret: expected a number, got 'high'"),
        (4, "s", 1.5, r"runs\.csv:6: s: expected a whole number, got 1\.5"),
        (5, "t", 100.5, r"runs\.csv: line 7: the budget 100\.5 is not a whole number of steps"),
        (2, "hp.lr", 7.0, r"runs\.csv:4: configuration 10 has other hyperparameters than before"),
        (1, "t", 300, r"runs\.csv:3: another row has the same configuration, seed and step"),
        (0, "status", "finished", r"runs\.csv:2: status 'finished'; allowed: done, stopped"),
        (0, "role", "train", r"runs\.csv:2: seed role 'train'; allowed: tuning, test"),
    ],
)
def test_wrong_cells_are_named_with_their_line(tmp_path, row, column, value, message):
    frame = table().assign(status="done", role="tuning").astype({column: object})
    frame.loc[row, column] = value
    expect_error(message, read, tmp_path, frame, (*MAP, "status=status", "role=seed_role"))
