"""`croissant.json` describes exactly the files, and MLCommons' own reader accepts it where it is installed."""

import json

import duckdb
import pytest
from landscape_samples import SPACE, N, manifest, tables

from autorl.landscapes import append, write_landscape


@pytest.fixture
def folder(tmp_path):
    write_landscape(tmp_path / "x", tables(), manifest(), SPACE)
    append(tmp_path / "x", tables(first=N, count=2))
    return tmp_path / "x"


def test_record_sets_are_the_files_and_fields_their_columns(folder):
    description = json.loads((folder / "croissant.json").read_text())
    files = {each["@id"]: each for each in description["distribution"]}
    assert set(files) == {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
    assert {each["encodingFormat"] for each in files.values()} == {"application/x-parquet"}
    hashes = json.loads((folder / "manifest.json").read_text())["files"]
    assert {name: each["sha256"] for name, each in files.items()} == {
        name: sha for name, sha in hashes.items() if name.endswith(".parquet")
    }
    names = [each["@id"] for each in description["recordSet"]]
    assert names == ["configs", "runs", "segments", "evals", "evals-1"]
    for record_set in description["recordSet"]:
        file = record_set["field"][0]["source"]["fileObject"]["@id"]
        columns = duckdb.read_parquet(str(folder / file)).columns
        assert [field["name"] for field in record_set["field"]] == columns
        sources = [field["source"]["extract"]["column"] for field in record_set["field"]]
        assert sources == columns


def test_the_reference_reader_accepts_it_and_streams_records(folder):
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    dataset = mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))
    assert not dataset.metadata.issues.errors
    assert sum(1 for _ in dataset.records("runs")) == 5 * (N + 2)
    assert next(iter(dataset.records("evals-1")))["evals-1/step"] == 100
