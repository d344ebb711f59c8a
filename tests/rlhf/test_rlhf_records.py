"""Rows of a user's data sets: each format gives the same rows, and what cannot be read is one clear line."""

import json

import pytest
from refusals import expect_error

from autorl.trainers.language.data.rows import local, read_rows

ROWS = [{"prompt": "a b", "answer": "1"}, {"prompt": "c d", "answer": "2"}]
KEY = "environment.kwargs.data"


def write(folder, ending):
    path = folder / f"rows.{ending}"
    if ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in ROWS))
    elif ending == "json":
        path.write_text(json.dumps(ROWS))
    elif ending == "csv":
        path.write_text("\ufeffprompt,answer\na b,1\n" + '"c d",2\n')
    else:
        import duckdb

        values = "(VALUES ('a b', '1'), ('c d', '2')) AS t(prompt, answer)"
        duckdb.sql(f"COPY (SELECT * FROM {values}) TO '{path}' (FORMAT parquet)")
    return str(path)


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet"])
def test_every_format_gives_the_same_rows(ending, tmp_path):
    assert read_rows(write(tmp_path, ending), KEY) == ROWS


def test_nested_columns_of_parquet_and_quoted_lines_of_csv(tmp_path):
    import duckdb

    path = tmp_path / "chat.parquet"
    duckdb.sql(
        f"COPY (SELECT [{{'role': 'user', 'content': 'hi'}}] AS prompt) TO '{path}' (FORMAT parquet)"
    )
    assert read_rows(str(path), KEY) == [{"prompt": [{"role": "user", "content": "hi"}]}]
    (tmp_path / "two.csv").write_text('prompt\n"one\ntwo"\n')
    assert read_rows(str(tmp_path / "two.csv"), KEY) == [{"prompt": "one\ntwo"}]
    text = "one\u2028two"  # ends a line for `str.splitlines`, not for a CSV file
    (tmp_path / "three.csv").write_text(f"prompt\n{text}\n", encoding="utf-8")
    assert read_rows(str(tmp_path / "three.csv"), KEY) == [{"prompt": text}]


def test_a_folder_saved_by_datasets_with_and_without_splits(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="needs the extra rlhf")
    one = datasets.Dataset.from_list(ROWS)
    one.save_to_disk(tmp_path / "one")
    assert read_rows(str(tmp_path / "one"), KEY) == ROWS
    datasets.DatasetDict(train=one, test=one.select([1])).save_to_disk(tmp_path / "both")
    assert read_rows(str(tmp_path / "both"), KEY) == ROWS
    assert read_rows(f"{tmp_path}/both:test", KEY) == ROWS[1:]
    assert local(f"{tmp_path}/both:test") == tmp_path / "both"
    # a path that is written shorter or longer than it is
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for source in ("~/both:test", "./both:test", "both:test", "both/:test"):
        assert read_rows(source, KEY) == ROWS[1:]
    expect_error("no split 'dev'; it has train, test", read_rows, f"{tmp_path}/both:dev", KEY)
    (tmp_path / "other").mkdir()
    expect_error("save_to_disk", read_rows, str(tmp_path / "other"), KEY)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "bad.jsonl",
            '{"prompt": "a"}\n{"prompt": \n',
            r"bad\.jsonl:2: environment\.kwargs\.data: not JSON",
        ),
        ("bad.jsonl", '"text"\n', "row 1 is not a mapping"),
        ("bad.json", '{"prompt": "a"}', "expected a list"),
        ("bad.json", '[\n{"prompt": }]', r"bad\.json:2"),
        ("empty.jsonl", "\n", "has no row"),
        ("bad.txt", "a", r"ends in \.jsonl, \.json, \.csv, \.parquet"),
        ("bad.parquet", "a", "not a Parquet file"),
    ],
)
def test_files_that_cannot_be_read(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    assert expect_error(message, read_rows, str(tmp_path / name), KEY).key == KEY


def test_bytes_that_are_no_text_are_an_input_error(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"prompt\n\xff\xfe\n")
    expect_error("not UTF-8", read_rows, str(tmp_path / "bad.csv"), KEY)


def test_a_name_that_is_nowhere_says_that_nothing_is_downloaded():
    pytest.importorskip("datasets", reason="needs the extra rlhf")
    expect_error("nothing is downloaded unless HF_HUB_OFFLINE=0", read_rows, "nobody/has-this", KEY)


def test_a_name_on_a_hub_is_read_by_its_split_and_subset(monkeypatch):
    """Record the calls of `datasets`; a process that imported it earlier is offline too."""
    datasets = pytest.importorskip("datasets", reason="needs the extra rlhf")
    asked = []

    def load_dataset(name, subset, split):
        asked.append((name, subset, split, datasets.config.HF_HUB_OFFLINE))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    assert read_rows("someone/sums:test", KEY, "main") == ROWS
    assert read_rows("someone/sums", KEY) == ROWS
    assert asked == [("someone/sums", "main", "test", True), ("someone/sums", None, "train", True)]
