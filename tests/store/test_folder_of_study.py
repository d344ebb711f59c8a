"""Files that a study's folder must hold before a session goes on with it."""

import sqlite3

import pytest
from refusals import expect_error

from autorl.store.folder import DATABASE, check_free, holds_study, remove_unstarted


def test_a_folder_holds_a_study_where_its_file_lies(tmp_path):
    assert not holds_study(tmp_path)
    assert not holds_study(tmp_path / "nowhere")
    (tmp_path / "study.yaml").symlink_to("nowhere")
    assert holds_study(tmp_path)
    assert not holds_study(tmp_path / "study.yaml" / "below")


@pytest.mark.parametrize(
    ("name", "reason"), [("a\0b", "embedded null"), ("a" * 300, "File name too long")]
)
def test_a_path_that_is_none_is_one_line(tmp_path, name, reason):
    expect_error(f"cannot be a study's folder .*{reason}", holds_study, tmp_path / name)


@pytest.mark.parametrize(
    "name", ["study.sqlite", "study.sqlite-wal", "study.lock", ".tmp-abc", "checkpoints/"]
)
def test_a_study_begins_beside_what_a_killed_start_left(tmp_path, name):
    place = tmp_path / name
    place.mkdir() if name.endswith("/") else place.write_text("")
    check_free(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", "checkpoints/1.0", "logs/1.0.log", "study.sql"])
def test_a_study_does_not_begin_beside_anything_else(tmp_path, name):
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("")
    first = name.partition("/")[0]
    expect_error(rf"is not empty \({first}\)", check_free, tmp_path)


def database(path, *kinds):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE event (seq, kind, body, time, hash)")
    connection.executemany(
        "INSERT INTO event VALUES (1, ?, '{}', 0.0, '')", [(kind,) for kind in kinds]
    )
    connection.commit()
    connection.close()


def test_a_database_of_a_start_that_was_killed_is_removed(tmp_path):
    for kinds in ((), ("study_file",)):
        database(tmp_path / DATABASE, *kinds)
        (tmp_path / f"{DATABASE}-wal").write_bytes(b"")
        remove_unstarted(tmp_path)
        assert list(tmp_path.iterdir()) == []
    remove_unstarted(tmp_path)
    (tmp_path / DATABASE).write_bytes(b"")
    remove_unstarted(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_holds_more_is_kept(tmp_path):
    database(tmp_path / DATABASE, "study_file", "session")
    expect_error(r"whose study\.yaml is missing", remove_unstarted, tmp_path)
    assert (tmp_path / DATABASE).exists()


def test_a_database_that_cannot_be_read_is_kept(tmp_path):
    (tmp_path / DATABASE).write_bytes(b"no database" * 100)
    expect_error("cannot be used", remove_unstarted, tmp_path)
    assert (tmp_path / DATABASE).exists()
