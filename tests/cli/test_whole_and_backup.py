"""`autorl doctor` and `autorl backup`: exit codes, JSON, one line for what is wrong."""

import sqlite3

import pytest
from cli_support import as_json, autorl, contents, finished_study, query


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return finished_study(tmp_path_factory.mktemp("verify"))


def test_a_whole_study(study):
    before = contents(study)
    text = autorl("doctor", study).stdout
    assert text.splitlines()[0] == f"{study}: whole"
    found = as_json("doctor", study)
    assert contents(study) == before
    ((events,),) = query(study, "SELECT count(*) FROM event")
    assert (found["whole"], found["events"], found["problems"]) == (True, events, [])


def test_a_damaged_study_is_told_what_can_be_saved(study, tmp_path):
    autorl("backup", study, tmp_path / "s")
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        connection.execute("UPDATE event SET body = replace(body, '0.', '1.') WHERE seq = 12")
    text = autorl("doctor", tmp_path / "s", code=1).stdout
    assert "damaged: study.sqlite: event 12 is not what was recorded" in text
    command = text.splitlines()[-1].partition("`")[2].partition("`")[0]
    assert command == f"autorl backup {tmp_path / 's'} COPY --until 11"
    found = as_json("doctor", tmp_path / "s", code=1)
    assert (found["whole"], found["events"]) == (False, 11)
    error = autorl("resume", tmp_path / "s", code=2).stderr
    assert "event 12 is not what was recorded, events 1 to 11 are whole" in error
    autorl(*(tmp_path / "c" if part == "COPY" else part for part in command.split()[1:]))
    autorl("resume", tmp_path / "c", "--quiet")
    same = "SELECT proposal, score FROM proposals ORDER BY 1"
    assert query(tmp_path / "c", same) == query(study, same)


def test_a_copy_is_the_study(study, tmp_path):
    found = as_json("backup", study, tmp_path / "copy")
    assert found == {
        "folder": str(tmp_path / "copy"),
        "events": query(study, "SELECT count(*) FROM event")[0][0],
        "checkpoints": query(study, "SELECT count(*) FROM segments WHERE checkpoint IS NOT NULL")[
            0
        ][0],
        "logs": 0,
        "notes": [],
    }
    assert query(tmp_path / "copy", "SELECT * FROM event") == query(study, "SELECT * FROM event")
    assert autorl("best", tmp_path / "copy").stdout == autorl("best", study).stdout


@pytest.mark.parametrize("command", ["doctor", "backup"])
def test_a_folder_without_a_study_is_one_line(tmp_path, command):
    more = [tmp_path / "copy"] if command == "backup" else []
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        error = autorl(command, tmp_path / folder, *more, code=2).stderr
        assert "is missing" in error or "are missing" in error
