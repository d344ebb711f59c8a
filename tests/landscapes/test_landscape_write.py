"""Writing, appending, compacting, and what the folder says about itself."""

import dataclasses
import json
import os
from pathlib import Path

import duckdb
import numpy as np
import pytest
from landscape_samples import SPACE, N, configs, manifest, tables
from refusals import expect_error

from autorl.core.types import InputError
from autorl.landscapes import (
    Landscape,
    Manifest,
    Tables,
    append,
    compact,
    config_rows,
    list_landscapes,
    load_landscape,
    write_landscape,
)
from autorl.landscapes.manifest import file_sha256
from autorl.landscapes.schema import SCHEMA_VERSION
from autorl.landscapes.validate import validate
from autorl.space import compile_algorithms, load_space, read_space


@pytest.fixture
def folder(tmp_path):
    write_landscape(tmp_path / "it's one", tables(), manifest(), SPACE)
    return tmp_path / "it's one"


def test_layout_counts_and_hashes(folder):
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == [
        "configs.parquet",
        "croissant.json",
        "evals/part-00000.parquet",
        "manifest.json",
        "runs.parquet",
        "segments.parquet",
        "space.yaml",
    ]
    written = Manifest.read(folder)
    assert dict(written.rows) == {"configs": N, "runs": 5 * N, "segments": 5 * N, "evals": 20 * N}
    assert written.space_hash == SPACE.hash
    assert all(file_sha256(folder / name) == sha for name, sha in written.files.items())
    query = "SELECT DISTINCT compression FROM parquet_metadata(?)"
    codecs = duckdb.execute(query, [str(folder / "runs.parquet")]).fetchall()
    assert codecs == [("ZSTD",)]


def test_configurations_survive_with_their_types(folder):
    landscape = Landscape(folder)
    for number, config in configs().items():
        assert landscape.config(number) == config
        assert {name: type(value) for name, value in landscape.config(number).items()} == {
            name: type(value) for name, value in config.items()
        }
    types = dict(
        landscape.sql("SELECT column_name, column_type FROM (DESCRIBE configs)").fetchall()
    )
    assert types["learning_rate"] == "DOUBLE"
    assert types["width"] == types["interval"] == "BIGINT"
    assert types["target"] == "BOOLEAN"
    assert types["activation"] == types["clip"] == types["shape"] == "VARCHAR"
    assert any("interval" not in config for config in configs().values())


def test_same_rows_same_bytes(tmp_path):
    one = write_landscape(tmp_path / "a", tables(), manifest(), SPACE)
    shuffled = tables()
    shuffled = dataclasses.replace(
        shuffled,
        evals=shuffled.evals.sample(frac=1, random_state=0),
        runs=shuffled.runs.sample(frac=1, random_state=1),
    )
    two = write_landscape(tmp_path / "b", shuffled, manifest(), SPACE)
    assert one.files == two.files


def test_an_existing_folder_is_not_replaced_unasked(folder):
    expect_error("is there already", write_landscape, folder, tables(), manifest(), SPACE)
    again = write_landscape(folder, tables(count=3), manifest(), SPACE, replace=True)
    assert again.rows["configs"] == 3
    assert Landscape(folder).sql("SELECT count(*) FROM configs").fetchall() == [(3,)]
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "notes").write_text("mine")
    with pytest.raises(InputError, match="is not a landscape"):
        write_landscape(folder.parent / "other", tables(), manifest(), SPACE, replace=True)
    with pytest.raises(InputError, match="lies among the files of"):
        write_landscape(folder / "evals" / "new", tables(), manifest(), SPACE)
    assert not (folder / "evals" / "new").exists()


def test_a_write_that_fails_leaves_nothing(tmp_path):
    wrong = tables()
    wrong = dataclasses.replace(wrong, runs=wrong.runs.drop(columns="seed"))
    with pytest.raises(InputError, match=r"'runs' lacks columns \['seed'\]"):
        write_landscape(tmp_path / "x", wrong, manifest(), SPACE)
    assert not (tmp_path / "x").exists()


def test_append_then_compact_equals_writing_at_once(tmp_path):
    whole = tables(count=8)

    def part(chosen):
        numbers = {name: whole[name].config_id for name in ("configs", "runs", "segments")}
        numbers["evals"] = whole.evals.run_id // 10
        return Tables(**{name: whole[name][chosen(each)] for name, each in numbers.items()})

    first, rest = part(lambda number: number < 5), part(lambda number: number >= 5)
    write_landscape(tmp_path / "parts", first, manifest(), SPACE)
    before = Landscape(tmp_path / "parts").to_pandas()
    appended = append(tmp_path / "parts", rest)
    parts = [name for name in appended.files if name.startswith("evals/")]
    assert parts == ["evals/part-00000.parquet", "evals/part-00001.parquet"]
    described = json.loads((tmp_path / "parts" / "croissant.json").read_text())
    assert described["recordSet"][-1]["@id"] == "evals-1"
    write_landscape(tmp_path / "whole", whole, manifest(), SPACE)
    expected = Landscape(tmp_path / "whole").to_pandas()
    assert len(before) < len(expected)
    assert Landscape(tmp_path / "parts").to_pandas().equals(expected)
    compacted = compact(tmp_path / "parts")
    assert Landscape(tmp_path / "parts").to_pandas().equals(expected)
    assert len(list((tmp_path / "parts" / "evals").iterdir())) == 1
    assert compacted.rows == Manifest.read(tmp_path / "whole").rows
    assert compact(tmp_path / "parts").rows == compacted.rows


def test_append_refuses_ids_that_exist_and_changes_nothing(folder):
    before = Manifest.read(folder)
    expect_error("config_id", append, folder, tables(count=1))
    assert Manifest.read(folder) == before


def test_a_part_the_manifest_does_not_name_is_not_read(folder):
    (folder / "evals" / "part-00001.parquet").write_bytes(
        (folder / "evals" / "part-00000.parquet").read_bytes()
    )
    assert Landscape(folder).sql("SELECT count(*) FROM evals").fetchall() == [(20 * N,)]
    append(folder, tables(first=N, count=1))
    assert Landscape(folder).sql("SELECT count(*) FROM evals").fetchall() == [(20 * (N + 1),)]


def test_an_append_cut_off_before_the_manifest_is_reported(folder, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("autorl.landscapes.write._finish", killed)
    with pytest.raises(KeyboardInterrupt):
        append(folder, tables(first=N, count=1))
    assert Landscape(folder).grid.values.shape[0] == N + 1
    assert Landscape(folder).best().config_id < N
    assert {problem.rule for problem in validate(folder)} >= {"files_match_manifest"}


def test_an_unfinished_write_is_not_listed(folder, monkeypatch):
    replace, other = os.replace, folder.parent / "other"

    def killed_at_the_end(source, target):
        if target == other:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        write_landscape(other, tables(), manifest(), SPACE)
    monkeypatch.undo()
    assert (folder.parent / ".other.building" / "manifest.json").exists()
    assert list_landscapes(folder.parent) == {manifest().id: folder}
    write_landscape(other, tables(), manifest(), SPACE)
    assert sorted(path.name for path in folder.parent.iterdir()) == sorted([folder.name, "other"])


def test_an_environment_id_with_a_slash_is_a_nested_folder(tmp_path):
    one = manifest(environment="ALE/Pong-v5")
    write_landscape(tmp_path / one.id, tables(environment="ALE/Pong-v5"), one, SPACE)
    assert load_landscape("sample/dqn/ALE/Pong-v5", tmp_path).manifest.environment == "ALE/Pong-v5"


def test_more_metrics_and_metrics_that_appear_later(tmp_path):
    first = tables(count=2)
    write_landscape(tmp_path / "x", first, manifest(), SPACE)
    later = tables(first=2, count=1)
    append(tmp_path / "x", dataclasses.replace(later, evals=later.evals.assign(kl=0.5)))
    landscape = Landscape(tmp_path / "x")
    assert landscape.metrics == ("eval_return", "kl")
    assert landscape.sql("SELECT count(kl), count(*) FROM evals").fetchall() == [(20, 60)]


def test_manifest_round_trip():
    one = manifest(notes=("n",), return_bounds=(None, 1.5), parents=("a/b/c",))
    assert Manifest.from_dict(json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"objectiv": {}}, "did you mean 'objective'"),
        ({"objective": {"metrc": "x"}}, "did you mean 'metric'"),
        ({"schema_version": SCHEMA_VERSION + 1}, "schema version 2"),
        ({"schema_version": SCHEMA_VERSION - 1}, "schema version 0"),
        ({"schema_version": "1"}, "schema version"),
        ({"id": "CartPole"}, "namespace/algorithm/environment"),
        ({"id": "a/../../b"}, "namespace/algorithm/environment"),
        ({"steps": [2, 1]}, "ascending"),
        ({"seeds": {"tuning": [1], "test": [1]}}, "both tuning and test"),
        ({"seeds": {"validation": [1]}}, "tuning and test"),
        ({"objective": {"direction": "up"}}, "'maximize' or 'minimize'"),
    ],
)
def test_wrong_manifests_are_refused(tmp_path, changes, rule):
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest().to_dict(), **changes}))
    assert "manifest.json" in str(expect_error(rule, Manifest.read, tmp_path))


def test_unknown_columns_and_clashing_names(tmp_path):
    rows = tables()
    more = dataclasses.replace(rows, runs=rows.runs.assign(extra=1))
    with pytest.raises(InputError, match=r"unknown columns \['extra'\]"):
        write_landscape(tmp_path / "x", more, manifest(), SPACE)
    clash = read_space(
        {"hyperparameters": {"origin": {"type": "float", "lower": 0, "upper": 1, "default": 0}}}
    )
    with pytest.raises(InputError, match=r"\['origin'\] have the name of a column"):
        write_landscape(tmp_path / "x", rows, manifest(), clash)


def test_schedules_and_algorithm_choice_have_columns_with_dots(tmp_path):
    rate = {"type": "float", "lower": 1e-5, "upper": 1e-1, "scale": "log", "default": 1e-3}
    one = load_space({"learning_rate": {**rate, "schedule": ["constant", "linear"]}})
    two = load_space(
        {"learning_rate": rate, "steps": {"type": "ordinal", "choices": [8, 16], "default": 8}}
    )
    space = compile_algorithms({"ppo": one, "dqn": two})
    chosen = {number: space.sample(np.random.default_rng(number)) for number in range(N)}
    assert len({config["algorithm"] for config in chosen.values()}) == 2
    rows = dataclasses.replace(tables(), configs=config_rows(space, chosen, "sobol"))
    write_landscape(tmp_path / "x", rows, manifest(), space)
    landscape = Landscape(tmp_path / "x")
    assert [landscape.config(number) for number in range(N)] == list(chosen.values())
    names = ("ppo.learning_rate", "dqn.steps")
    found = landscape.sql('SELECT count("ppo.learning_rate"), count("dqn.steps") FROM configs')
    counts = tuple(sum(name in config for config in chosen.values()) for name in names)
    assert found.fetchall() == [counts]
    assert validate(tmp_path / "x") == []


V1 = Path(__file__).parent / "fixtures" / "v1"


def test_a_kept_landscape_of_this_format_is_read_and_valid():
    """The folder is never rewritten: whoever changes the format keeps another beside its number."""
    landscape = Landscape(V1)
    assert landscape.manifest.schema_version == 1
    assert landscape.manifest.rows == {"configs": 2, "runs": 10, "segments": 10, "evals": 40}
    assert landscape.metrics == ("eval_return",)
    assert landscape.grid.values.shape == (2, 5, 4)
    assert landscape.best("tuning", "mean").config_id == 0
    assert landscape.best("tuning", "mean").value == pytest.approx(303.66205, rel=1e-6)
    assert landscape.config(0)["shape"] == (16, 16)
    assert validate(V1) == []
