"""A stranger's landscape, space file, query or warm start: one line, the right exit code, and no file is written."""

import contextlib
import gzip
import json
import os
import shutil
import traceback
from pathlib import Path

import duckdb
import pandas as pd
import pytest
import yaml
from hostile_manifests import COPY, hostile_texts, replaced
from landscape_samples import SPACE, manifest, tables
from small_studies import SMALL
from typer.testing import CliRunner

from autorl.cli import app
from autorl.core.types import InputError
from autorl.landscapes import Landscape, write_landscape
from autorl.landscapes.export import export_table
from autorl.space import to_yaml

FLOOR = f"'.length()) END AS FLOAT) AS value FROM evals; {COPY}; -- \""
LONGEST = 300
SEED, COUNT = 20261122, 250  # one in ten is run in `make test`, all of them with the slow tests


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A landscape to make copies of."""
    folder = tmp_path_factory.mktemp("sample") / "l"
    write_landscape(folder, tables(), manifest(), SPACE)
    return folder


@pytest.fixture
def place(sample, tmp_path, monkeypatch):
    """A sample landscape in `l`, a working folder beside it, and a file outside that nobody may read."""
    shutil.copytree(sample, tmp_path / "l")
    (tmp_path / "cwd").mkdir()
    (tmp_path / "secret.csv").write_text("token\nhunter2\n")
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def files(folder):
    """Every file below a folder with its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def autorl(*arguments):
    """Exit code, standard output and standard error; an exception that is no message is an error of the test."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        pytest.fail("".join(traceback.format_exception(result.exception)))
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments, saying, code=2, near=None):
    """The one line a command ends with."""
    status, _, error = autorl(*arguments)
    assert status == code, error
    assert len(error.strip().splitlines()) == 1, error
    assert saying in error
    assert len(error.replace(str(near), "")) < LONGEST, error
    return error


def importing(file, out, *columns):
    """The command that imports a table, whose columns are `name=kind`."""
    mapped = [word for column in columns for word in ("--map", column)]
    return ("landscape", "import", file, "--id", "a/b/c", *mapped, "--out", out)


def edit(folder, path, value):
    """Replace one place of `manifest.json`."""
    file = folder / "manifest.json"
    file.write_text(json.dumps(replaced(json.loads(file.read_text()), path, value)))


@pytest.mark.parametrize("command", ["info", "best", "validate", "top"])
@pytest.mark.parametrize("key", ["floor", "penalty"])
def test_sql_in_the_objective_is_a_wrong_number_and_nothing_runs(place, command, key):
    edit(place / "l", ("objective", key), FLOOR)
    before = files(place)
    refused("landscape", command, place / "l", saying=f"objective.{key}: ", near=place)
    assert files(place) == before


def test_a_metric_with_a_quote_in_its_name_is_a_name(tmp_path):
    name = 'eval"; SELECT 1; --'
    data = tables()
    evals = data.evals.rename(columns={"eval_return": name})
    written = type(data)(data.configs, data.runs, evals, data.segments)
    odd = manifest(objective=type(manifest().objective)(metric=name))
    write_landscape(tmp_path / "l", written, odd, SPACE)
    ordinary = tmp_path / "o"
    write_landscape(ordinary, data, manifest(), SPACE)
    assert Landscape(tmp_path / "l").best().value == Landscape(ordinary).best().value
    assert autorl("landscape", "validate", tmp_path / "l")[0] == 0


QUERIES = {
    "explain analyze copy": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "explain with options": "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{out}'",
    "explain behind a comment": "/* ; */ -- x\n EXPLAIN /* y */ ANALYZE COPY (SELECT 1) TO '{out}'",
    "explain a copy": "EXPLAIN COPY (SELECT 1) TO '{out}'",
    "copy of a pivot": "COPY (PIVOT runs ON status USING count(*)) TO '{out}'",
    "table of a pivot": "CREATE TABLE t AS PIVOT runs ON status USING count(*)",
    "copy over a file of its own": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{own}'",
    "copy": "COPY (SELECT 1) TO '{out}'",
    "two": "SELECT 1; SELECT 2",
    "set": "SET enable_external_access = true",
    "pragma": "PRAGMA enable_profiling",
    "attach": "ATTACH '{out}'",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "drop": "DROP VIEW runs",
    "call": "CALL enable_logging()",
    "explain analyze drop": "EXPLAIN ANALYZE DROP VIEW runs",
    "csv": "SELECT * FROM read_csv('{secret}')",
    "text": "SELECT content FROM read_text('{secret}')",
    "bare file": "SELECT * FROM '{secret}'",
    "glob": "SELECT * FROM glob('{folder}/*')",
    "sniff": "SELECT * FROM sniff_csv('{secret}')",
    "query in a query": "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "network": "SELECT * FROM 'https://127.0.0.1:9/x.csv'",
    "a frame of the caller": "SELECT * FROM frame",
}


def hostile(place, case):
    return QUERIES[case].format(
        out=place / "cwd/out",
        own=place / "l/segments.parquet",
        secret=place / "secret.csv",
        folder=place,
    )


@pytest.mark.parametrize(
    ("way", "case"),
    [
        *(("query", case) for case in QUERIES),
        *(("python", case) for case in ("copy", "set", "csv", "a frame of the caller")),
    ],
)
def test_a_query_reaches_no_file_and_changes_nothing(place, way, case):
    text = hostile(place, case)
    before = files(place)
    if way == "query":
        refused("landscape", "query", place / "l", text, saying="", near=place)
    else:
        frame = pd.DataFrame({"x": [1]})
        with pytest.raises((InputError, duckdb.Error)):
            Landscape(place / "l").sql(text).fetchall()
        assert len(frame) == 1
    assert files(place) == before


def test_a_query_of_a_study_file_has_the_same_guard(place):
    warm_start = {"landscape": str(place / "l"), "sql": hostile(place, "text")}
    study = place / "study.yaml"
    study.write_text(yaml.safe_dump(SMALL | {"warm_start": warm_start}))
    refused("tune", study, "--dry-run", saying="sql", near=place)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM runs",
        "WITH r AS (SELECT * FROM runs) SELECT * FROM r",
        "FROM configs",
        "EXPLAIN SELECT * FROM scores",
        "EXPLAIN ANALYZE SELECT count(*) FROM scores",
        "/* how */ EXPLAIN (FORMAT json) SELECT 1",
        "DESCRIBE evals",
        "SUMMARIZE runs",
        "SHOW TABLES",
        "PIVOT runs ON seed_role USING count(*);",
        "VALUES (1)",
    ],
)
def test_what_only_reads_is_answered(place, text):
    code, said, error = autorl("landscape", "query", place / "l", text)
    assert code == 0, error
    assert said.strip()
    assert json.loads(autorl("landscape", "query", place / "l", text, "--json")[1])


def test_a_running_study_is_asked_with_the_same_guard(tmp_path):
    from landscape_samples import run_study

    folder = run_study(tmp_path / "s", SMALL)
    data = Landscape(folder)
    assert data.sql("SELECT count(*) FROM evals").fetchall()[0][0] > 0
    with pytest.raises(InputError):
        data.sql(f"SELECT * FROM read_text('{folder / 'study.yaml'}')").fetchall()


KEYS = [
    (("id",), 3),
    (("id",), "a/b/" + "c" * 5000),
    (("steps",), ["a", 1]),
    (("steps",), [10**30]),
    (("seeds",), 5),
    (("seeds",), {"tuning": "x"}),
    (("objective",), 7),
    (("rows",), None),
    (("rows",), {f"runs; {COPY}": 1}),
    (("return_bounds",), "x"),
    (("notes",), 5),
    (("description",), {"a": "b" * 5000}),
    (("packages",), {"autorl": "1.0"}),
    (("sources",), [7]),
    (("evaluation",), {"overshoot": "0) OR (1=1"}),
    (("evaluation",), {"steps": ["1); SELECT 1"]}),
    (("files",), {"evals/../../../x.parquet": "0" * 64}),
    (("objective", "floor"), float("nan")),
    (("objective", "direction"), "up"),
    (("step_unit",), "laps"),
]


@pytest.mark.parametrize("place_of", range(len(KEYS)))
def test_every_key_of_the_manifest_has_a_type(place, place_of):
    path, value = KEYS[place_of]
    edit(place / "l", path, value)
    for command in ("info", "best", "validate")[: 3 if path == ("objective",) else 1]:
        said = refused("landscape", command, place / "l", saying=path[0], near=place)
        assert "manifest.json" in said


RAW = {
    "brackets": "[" * 100_000,
    "mappings": '{"a":' * 100_000,
    "a list": "[]",
    "nothing": "",
    "half a character": '{"id": "\\ud800"}',
    "a number of 10,000 digits": '{"id": ' + "9" * 10_000 + "}",
    "bytes": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("case", RAW)
def test_a_manifest_that_is_none_is_one_line(place, case):
    text = RAW[case]
    (place / "l/manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused("landscape", "info", place / "l", saying="manifest.json", near=place)


@pytest.mark.parametrize(
    "part",
    [range(SEED, SEED + 2), pytest.param(range(SEED + 2, SEED + 20), marks=pytest.mark.slow)],
)
def test_generated_manifests_write_nothing_and_end_with_a_line(place, part):
    """COUNT manifests in all: none writes a file, raises anything but a message, or says it at length."""
    good = json.loads((place / "l/manifest.json").read_text())
    lines = 0
    for seed in part:
        for text in hostile_texts(good, seed, COUNT // 20):
            (place / "l/manifest.json").write_text(text)
            before = files(place)
            for command in ("info", "best", "validate"):
                code, _, error = autorl("landscape", command, place / "l")
                assert code in (0, 1, 2), text[:1000]
                assert len(error.strip().splitlines()) <= 1, error
                assert len(error.replace(str(place), "")) < LONGEST, error
                lines += code == 2
            assert files(place) == before, text[:1000]
    assert lines > 0


WRONG_TABLES = [
    ("runs", lambda frame: frame.assign(seed="zero"), "seed"),
    ("configs", lambda frame: frame.drop(columns="learning_rate"), "learning_rate"),
    ("runs", lambda frame: frame.drop(columns="run_id"), "run_id"),
    ("evals/part-00000", lambda frame: frame.assign(eval_return="high"), "eval_return"),
    ("configs", lambda frame: frame.assign(width="wide"), "width"),
    ("runs", lambda frame: frame.assign(status="well"), "status"),
    ("runs", lambda frame: pd.concat([frame, frame]), "run_id"),
    ("configs", lambda frame: frame.assign(width=10**6), "width"),
]


@pytest.mark.parametrize(("name", "change", "word"), WRONG_TABLES)
def test_tables_that_are_not_the_schemas_are_one_line(place, name, change, word):
    rewrite(place / f"l/{name}.parquet", change)
    refused("landscape", "best", place / "l", saying=word, near=place)
    code, said, _ = autorl("landscape", "validate", place / "l")
    assert code == 1
    assert word in said


def rewrite(file, change):
    """Change a Parquet file in place."""
    with duckdb.connect() as connection:
        frame = connection.execute("SELECT * FROM read_parquet(?)", [str(file)]).df()
        changed = change(frame)
        connection.register("changed", changed)
        connection.execute(f"COPY changed TO '{file}' (FORMAT parquet)")


def test_a_table_that_is_a_link_out_of_the_folder_is_refused(place):
    outside = place / "outside.parquet"
    shutil.move(place / "l/configs.parquet", outside)
    os.symlink(outside, place / "l/configs.parquet")
    refused("landscape", "best", place / "l", saying="outside", near=place)


def test_the_space_of_a_landscape_reads_no_other_file(place):
    (place / "other.yaml").write_text(to_yaml(SPACE))
    (place / "l/space.yaml").write_text("extends: ../other.yaml\n")
    refused("landscape", "best", place / "l", saying="extends", near=place)
    (place / "l/space.yaml").unlink()
    os.symlink(place / "other.yaml", place / "l/space.yaml")
    refused("landscape", "best", place / "l", saying="outside", near=place)


@pytest.mark.parametrize(
    "text",
    [
        "root:hunter2:0:0\nhunter2\n",
        "password: hunter2\nuser: hunter2\n",
        "- hunter2\n",
        "hunter2" + "(" * 5000,
    ],
)
def test_a_file_that_is_no_space_is_not_shown(place, text):
    (place / "other.yaml").write_text(text)
    (place / "study.yaml").write_text(yaml.safe_dump(SMALL | {"space": "other.yaml"}))
    (place / "extending.yaml").write_text("extends: other.yaml\n")
    for command, saying in (
        (("list", "spaces", place / "other.yaml"), "other.yaml"),
        (("tune", place / "study.yaml", "--dry-run"), "other.yaml"),
        (("list", "spaces", place / "extending.yaml"), ""),
    ):
        assert "hunter2" not in refused(*command, saying=saying, near=place)


def test_long_values_are_cut(place):
    long = "x" * 5000
    (place / "s.yaml").write_text(f"hyperparameters: {{x: {{type: {long}}}}}\n")
    refused("list", "spaces", place / "s.yaml", saying="type", near=place)
    (place / "s.yaml").write_text(
        f"hyperparameters: {{x: {{type: float, lower: 0, upper: 1}}}}\nconstraints: ['{'(' * 5000}']\n"
    )
    refused("list", "spaces", place / "s.yaml", saying="constraints", near=place)


def test_a_csv_export_has_no_formulas(tmp_path):
    data = tables()
    runs = data.runs.assign(member="=cmd|'/C calc'!A0", wall_seconds=-1.5)
    runs.loc[0, "member"] = "-3.5"
    evals = data.evals.assign(**{"@metric": -2.0})
    written = type(data)(data.configs, runs, evals, data.segments)
    write_landscape(tmp_path / "l", written, manifest(), SPACE)
    export_table(Landscape(tmp_path / "l"), tmp_path / "flat.csv")
    rows = pd.read_csv(tmp_path / "flat.csv", dtype=str)
    assert set(rows["member"].iloc[len(data.evals) // len(data.runs) :]) == {"'=cmd|'/C calc'!A0"}
    assert rows["member"].iloc[0] == "-3.5"
    assert set(rows["'@metric"]) == {"-2.0"}
    assert set(rows["wall_seconds"]) == {"-1.5"}


def test_terminals_get_no_control_characters(place):
    edit(place / "l", ("description",), "fine\x1b]0;title\x07\x1b[2J\u202e\nnote   all good")
    edit(place / "l", ("notes",), ["\x1b[31mred"])
    code, said, _ = autorl("landscape", "info", place / "l")
    assert code == 0
    assert "\\x1b]0;title\\x07" in said
    assert "\\x1b[31mred" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert "\nnote   all good" not in said
    error = autorl("landscape", "info", "no\x1b[2Jwhere")[2]
    assert "\x1b" not in error
    rewrite(place / "l/runs.parquet", lambda frame: frame.assign(member="\x1b[2J"))
    said = autorl("landscape", "query", place / "l", "SELECT member FROM runs")[1]
    assert "\x1b" not in said
    assert "\\x1b[2J" in said


def test_a_limit_is_asked_of_the_query(place):
    endless = "SELECT i FROM range(2000000000) AS t(i)"  # ten seconds and more if it is read whole
    query = ("landscape", "query", place / "l")
    code, said, error = autorl(*query, endless, "--limit", 5)
    assert (code, len(said.splitlines())) == (0, 6)
    assert "more rows" in error
    code, said, error = autorl(*query, endless, "--limit", 5, "--json")
    assert json.loads(said) == [{"i": number} for number in range(5)]
    assert "more rows" in error
    code, said, error = autorl(*query, "SELECT * FROM runs", "--json")
    assert len(json.loads(said)) == len(tables().runs)
    assert not error
    assert json.loads(autorl(*query, "SELECT 1 WHERE false", "--json")[1]) == []


def test_a_query_without_an_end_is_ended_in_one_line(place):
    endless = "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT i FROM t) SELECT max(i) FROM t"
    asked = ("landscape", "query", place / "l", endless, "--seconds", "0.05")
    refused(*asked, saying="no answer within 0.05 seconds", near=place)
    assert autorl("landscape", "query", place / "l", "SELECT 1 AS x", "--seconds", "0")[0] == 0


LR = ("lr=hyperparameter", "return=metric")
TORN = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "changed": lambda whole: whole[:20] + bytes([whole[20] ^ 255]) + whole[21:],
    "not gzip": lambda whole: b"lr,return\n1,2\n",
}


@pytest.mark.parametrize("case", TORN)
def test_a_torn_file_is_not_an_interruption(tmp_path, case):
    rows = "lr,seed,return\n" + "".join(f"{number / 7},0,{number / 3}\n" for number in range(500))
    (tmp_path / "torn.csv.gz").write_bytes(TORN[case](gzip.compress(rows.encode())))
    torn = importing(tmp_path / "torn.csv.gz", tmp_path / "out", *LR)
    said = refused(*torn, saying="torn.csv.gz", near=tmp_path)
    assert "interrupted" not in said
    named = tmp_path / "CartPole-v1_dqn.csv.gz"
    shutil.copy(tmp_path / "torn.csv.gz", named)
    other = ("landscape", "import", named, "--out", tmp_path / "out")
    assert "interrupted" not in refused(*other, saying="CartPole", near=tmp_path)


def test_an_end_of_file_in_the_program_is_not_an_interruption(monkeypatch):
    def ends():
        raise EOFError("the fork server is gone")

    monkeypatch.setattr("autorl.cli.landscape_query.list_landscapes", lambda root: ends())
    monkeypatch.setattr("autorl.cli.landscape_query.shipped_root", Path)
    result = CliRunner().invoke(app, ["landscape", "list"])
    assert isinstance(result.exception, EOFError)
    assert "interrupted" not in result.stderr


@pytest.mark.parametrize(
    "row", ["0.2,1e30,10,1", "0.2,0,1e300,1", "0.2,0,10,1e999"], ids=["seed", "step", "return"]
)
def test_an_import_with_numbers_nobody_can_store_is_one_line(tmp_path, row):
    (tmp_path / "t.csv").write_text(f"lr,seed,step,return\n0.1,0,10,1\n{row}\n")
    arguments = importing(tmp_path / "t.csv", tmp_path / "out", *LR, "seed=seed", "step=step")
    if row.endswith("999"):
        assert autorl(*arguments)[0] == 0  # infinite: a failed evaluation
    else:
        refused(*arguments, saying="t.csv", near=tmp_path)
        assert not (tmp_path / "out").exists()


def test_an_import_does_not_replace_a_link_in_silence(place):
    (place / "out/a/b").mkdir(parents=True)
    os.symlink(place / "l", place / "out/a/b/c")
    (place / "t.csv").write_text("lr,return\n0.1,1\n0.2,2\n")
    arguments = importing(place / "t.csv", place / "out", *LR)
    before = files(place / "l")
    refused(*arguments, "--replace", saying="out/a/b/c: ", near=place)
    assert (place / "out/a/b/c").is_symlink()
    assert files(place / "l") == before


def test_a_study_whose_database_is_a_strangers_is_one_line(tmp_path):
    import sqlite3

    from landscape_samples import run_study

    folder = run_study(tmp_path / "s", SMALL)
    for statement in (
        "UPDATE configurations SET config = '{'",
        "UPDATE runs SET seed = 'zero'",
        "UPDATE configurations SET config = '[1]'",
    ):
        copied = tmp_path / "copy"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(folder, copied)
        with contextlib.closing(sqlite3.connect(copied / "study.sqlite")) as connection, connection:
            connection.execute("PRAGMA writable_schema = 1")
            connection.execute(statement)
        refused("landscape", "info", copied, saying=str(copied), near=tmp_path)
